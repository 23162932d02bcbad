//! How the values of settings appear in the JSON of `/api/v1/config`, for serde's `serialize_with`.

use std::fmt::Display;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// Serializes whole milliseconds.
pub fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    time.as_millis().serialize(serializer)
}

/// Serializes whole milliseconds, or null.
pub fn optional_millis<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_millis()).serialize(serializer)
}

/// Serializes a value as the text that its `Display` writes.
pub fn text<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Serializes the text of each value.
pub fn texts<T: Display, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

/// Serializes a secret as `***`, or null.
pub fn masked<T, S: Serializer>(secret: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(|_| "***").serialize(serializer)
}
