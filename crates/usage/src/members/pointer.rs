//! The place of one value that a rule reads.

use std::fmt;

use crate::json::{Field, PointerError, Pointers};

/// A JSON pointer (RFC 6901) to one value of a JSON body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pointer(Box<str>);

impl Pointer {
    /// Parses a pointer, such as `/params/name`.
    ///
    /// # Errors
    /// The pointer is empty or invalid, or has more segments or longer ones than the scanner compares.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        let segments = text.strip_prefix('/').ok_or_else(|| PointerError::NoSlash(text.to_owned()))?;
        if segments.split('/').any(|segment| segment == "*") {
            return Err(PointerError::Any(text.to_owned()));
        }
        Pointers::default().value(text, Field(0))?;
        Ok(Self(text.into()))
    }

    /// Returns the text of the pointer.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the pointers to all objects and arrays that contain the value, from the outside, and to the value itself.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = &str> {
        let inner = self.0.match_indices('/').skip(1).map(|(end, _)| &self.0[..end]);
        inner.chain([&*self.0])
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
