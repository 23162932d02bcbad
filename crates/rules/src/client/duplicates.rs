//! Selects one of several values that a request contains for the same name.

use super::ClientError;
use tidegate_limit::text::words::words;

words! {
    /// How a limit handles a request with several different client keys.
    pub enum Duplicates, default Reject {
        /// The request is rejected with 400.
        Reject = "reject",
        /// The first key counts, for origins that use the first one.
        First = "first",
        /// The request has no client key.
        Missing = "missing",
    }
}

/// The values of a request for one name. Equal values are one value.
pub(super) struct Values<'f> {
    first: Option<&'f [u8]>,
    is_ambiguous: bool,
}

impl<'f> Values<'f> {
    pub(super) const NONE: Self = Self { first: None, is_ambiguous: false };

    pub(super) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn add(&mut self, value: &'f [u8]) {
        self.is_ambiguous |= *self.first.get_or_insert(value) != value;
    }

    /// Adds a value that some origins do not read as a value of this name.
    pub(super) fn add_ambiguous(&mut self, value: &'f [u8]) {
        self.first.get_or_insert(value);
        self.is_ambiguous = true;
    }

    /// Returns the value that counts.
    ///
    /// # Errors
    /// The request has no value, or `duplicates` accepts no value of several.
    pub(super) fn get(self, duplicates: Duplicates) -> Result<&'f [u8], ClientError> {
        let first = self.first.ok_or(ClientError::Missing)?;
        match duplicates {
            Duplicates::Reject if self.is_ambiguous => Err(ClientError::Ambiguous),
            Duplicates::Missing if self.is_ambiguous => Err(ClientError::Missing),
            _ => Ok(first),
        }
    }
}
