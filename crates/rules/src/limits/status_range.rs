//! Ranges of response statuses in the rule file.

use std::fmt;

/// A range of status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    /// The lowest code.
    pub first: u16,
    /// The highest code.
    pub last: u16,
}

impl StatusRange {
    /// Returns `true` if the range includes this code.
    pub fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }
}

/// Writes the range as in the rule file.
impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
    }
}
