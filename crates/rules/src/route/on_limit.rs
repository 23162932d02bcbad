//! Forwards requests over a limit, instead of rejecting them.

use std::sync::Arc;

use http::HeaderName;
use serde::Serialize;

use crate::json;

/// The effect of a limit that refuses a request, in the place of a rejection. The limit is not charged, and all others are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLimit {
    /// The request is forwarded to the upstream with this name.
    Upstream(#[serde(serialize_with = "json::text")] Arc<str>),
    /// The request is forwarded with this field, which has the names of the limits.
    Mark(#[serde(serialize_with = "json::text")] HeaderName),
}

impl OnLimit {
    /// Returns the name of the upstream for requests over a limit, if there is one.
    pub fn upstream(&self) -> Option<&Arc<str>> {
        if let Self::Upstream(name) = self { Some(name) } else { None }
    }
}
