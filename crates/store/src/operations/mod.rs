//! Limiters of the library, overrides, resets, and the state of a bucket.

pub(crate) mod inspection;
pub(crate) mod limiters;
pub(crate) mod local_overrides;
pub(crate) mod overrides;
pub(crate) mod reset;
