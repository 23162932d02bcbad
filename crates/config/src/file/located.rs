//! Values of the rule file with their locations, as the structs of [`file`](crate::file) contain them.

use std::borrow::Cow;
use std::time::Duration;

use crate::problem::{Checked, Location, Problems, Reported};
use crate::values::units::{Bytes, Millis};

/// The value of a key, or an item of a list, with its location.
pub(crate) struct Located<T> {
    /// The location of the value. If the key is absent, the location of its map, so that there is always a location to
    /// report.
    pub location: Location,
    /// The location of the key, or `None` if the key is absent. An item of a list has no key but its own location.
    pub key: Option<Location>,
    /// `None` if the key is absent, or if its value is invalid, which has been reported.
    value: Option<T>,
}

/// A value of a key with a short form: a plain value or a map.
pub(crate) enum ValueOrMap<V, M> {
    Value(V),
    Map(M),
}

/// A value, or a list of values.
pub(crate) enum OneOrList<T> {
    List(Vec<Located<T>>),
    One(T),
}

// === impl Located ===

impl<T> Located<T> {
    /// Creates the value of a key, or of an item of a list.
    pub(crate) fn new(location: Location, key: Option<Location>, value: Option<T>) -> Self {
        Self { location, key, value }
    }

    /// Returns the value. Returns `None` if it is absent or invalid.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Returns the value without its location.
    pub(crate) fn into_value(self) -> Option<T> {
        self.value
    }

    /// Returns `true` if the key is present, even if its value is invalid.
    pub(crate) fn is_present(&self) -> bool {
        self.key.is_some()
    }

    /// Returns the location of the key, or of the map if the key is absent.
    pub(crate) fn key_location(&self) -> Location {
        self.key.unwrap_or(self.location)
    }

    /// Returns an optional value, or [`Reported`] if the key is present with an invalid value.
    pub(crate) fn optional(&self, problems: &mut Problems) -> Checked<Option<&T>> {
        match &self.value {
            None if self.is_present() => Err(problems.reported(self.location)),
            value => Ok(value.as_ref()),
        }
    }

    /// Returns a required value, whose absence has been reported.
    pub(crate) fn required(&self, problems: &mut Problems) -> Checked<&T> {
        self.value.as_ref().ok_or_else(|| problems.reported(self.location))
    }

    /// Reports an error about the value.
    pub(crate) fn report(
        &self,
        message: impl Into<Cow<'static, str>>,
        help: impl Into<Cow<'static, str>>,
        problems: &mut Problems,
    ) -> Reported {
        problems.add(self.location, message, help)
    }
}

impl<T: Copy + Default> Located<T> {
    /// Returns the value, or the default if the key is absent.
    pub(crate) fn or_default(&self, problems: &mut Problems) -> Checked<T> {
        Ok(self.optional(problems)?.copied().unwrap_or_default())
    }
}

impl<T> Located<Vec<Located<T>>> {
    /// Returns the items, or an empty slice if the list is absent or invalid.
    pub(crate) fn items(&self) -> &[Located<T>] {
        self.get().map(Vec::as_slice).unwrap_or_default()
    }
}

impl Located<u64> {
    /// Converts the number to the type of the program.
    pub(crate) fn number<N: TryFrom<u64>>(&self, default: N, problems: &mut Problems) -> Checked<N> {
        self.get().map_or(Ok(default), |value| N::try_from(*value).map_err(|_| problems.reported(self.location)))
    }
}

impl Located<Bytes> {
    /// Converts the size to the type of the program.
    pub(crate) fn size<N: TryFrom<u64>>(&self, default: N, problems: &mut Problems) -> Checked<N> {
        self.get().map_or(Ok(default), |Bytes(value)| N::try_from(*value).map_err(|_| problems.reported(self.location)))
    }
}

impl Located<Millis> {
    pub(crate) fn duration(&self, default: Duration) -> Duration {
        self.get().map_or(default, |millis| millis.duration())
    }
}
