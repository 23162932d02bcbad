//! How patterns compare letters.

use tidegate_limit::text::words::words;

words! {
    /// How paths and values are compared with the patterns of a match.
    pub enum Case, default Sensitive {
        /// Letters are equal only in the same case.
        Sensitive = "sensitive",
        // Other letters are percent-encoded in paths, and have no fixed encoding in fields.
        /// ASCII letters are equal in both cases.
        Insensitive = "insensitive",
    }
}

impl Case {
    /// Returns `true` if two texts are equal.
    pub(super) fn is_equal(self, text: &[u8], other: &[u8]) -> bool {
        match self {
            Self::Sensitive => text == other,
            Self::Insensitive => text.eq_ignore_ascii_case(other),
        }
    }

    /// Returns the text after `prefix`, or `None` if the text does not start with it.
    pub(super) fn strip_prefix<'t>(self, text: &'t [u8], prefix: &[u8]) -> Option<&'t [u8]> {
        let (start, rest) = text.split_at_checked(prefix.len())?;
        self.is_equal(start, prefix).then_some(rest)
    }

    /// Returns the text before `suffix`, or `None` if the text does not end with it.
    pub(super) fn strip_suffix<'t>(self, text: &'t [u8], suffix: &[u8]) -> Option<&'t [u8]> {
        let (rest, end) = text.split_at_checked(text.len().checked_sub(suffix.len())?)?;
        self.is_equal(end, suffix).then_some(rest)
    }

    /// Returns the text after the first `part`, or `None` if the text does not contain it.
    pub(super) fn after<'t>(self, text: &'t [u8], part: &[u8]) -> Option<&'t [u8]> {
        if part.is_empty() {
            return Some(text);
        }
        let start = text.windows(part.len()).position(|window| self.is_equal(window, part))?;
        text.get(start + part.len()..)
    }

    /// Returns `true` if everything that matches a pattern in the case `narrow` can match the same pattern in this case.
    pub(super) fn includes(self, narrow: Self) -> bool {
        self == Self::Insensitive || narrow == Self::Sensitive
    }

    /// Returns the case in which a text matches if it matches in one of both.
    pub(super) fn wider(self, other: Self) -> Self {
        if self == Self::Insensitive { self } else { other }
    }
}
