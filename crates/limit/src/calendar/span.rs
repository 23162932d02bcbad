//! Consecutive windows.

use crate::clock::Timestamp;

/// The boundaries of three consecutive windows, preceded by the start of the window before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub [Timestamp; 5]);

/// A window, from its start (inclusive) to its end (exclusive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The start of the previous window.
    pub previous: Timestamp,
    /// The first moment of the window.
    pub start: Timestamp,
    /// The first moment of the next window.
    pub end: Timestamp,
}

// === impl Window ===

impl Window {
    /// Returns the window that contains a moment. All windows have this length, and one begins at the Unix epoch.
    #[inline]
    pub fn regular(length: u64, at: Timestamp) -> Self {
        let start = at.as_millis() / length * length;
        let previous = Timestamp::from_millis(start.saturating_sub(length));
        let start = Timestamp::from_millis(start);
        Self { previous, start, end: start.plus_millis(length) }
    }
}

// === impl Span ===

impl Span {
    /// Returns the middle window.
    pub fn middle(&self) -> Window {
        let [_, previous, start, end, _] = self.0;
        Window { previous, start, end }
    }

    /// Returns the window that contains a moment; `None` if the moment is outside of the span.
    pub fn window(&self, at: Timestamp) -> Option<Window> {
        let found = self.0.windows(3).find(|three| (three[1]..three[2]).contains(&at));
        found.map(|three| Window { previous: three[0], start: three[1], end: three[2] })
    }
}

/// An empty span, which contains no moment.
impl Default for Span {
    fn default() -> Self {
        Self([Timestamp::default(); 5])
    }
}
