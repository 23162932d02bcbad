//! Windows beside each other.

use crate::clock::Timestamp;

/// Three windows that follow each other, and the start of the one before them: a list of boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub [Timestamp; 5]);

/// From its start until just before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// When the window before it starts.
    pub previous: Timestamp,
    /// Its first moment.
    pub start: Timestamp,
    /// The first moment of the next.
    pub end: Timestamp,
}

// === impl Span ===

impl Span {
    /// The window in the middle, for which it was made.
    pub fn middle(&self) -> Window {
        let [_, previous, start, end, _] = self.0;
        Window { previous, start, end }
    }

    /// The window that a moment is in, if it is one of these.
    pub fn window(&self, at: Timestamp) -> Option<Window> {
        let found = self.0.windows(3).find(|three| (three[1]..three[2]).contains(&at));
        found.map(|three| Window { previous: three[0], start: three[1], end: three[2] })
    }
}

/// One that holds no moment.
impl Default for Span {
    fn default() -> Self {
        Self([Timestamp::default(); 5])
    }
}
