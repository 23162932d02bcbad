//! The actions of routes.

use crate::draft::value::Map;

/// The action of a route.
#[derive(Clone, Debug, Default)]
pub(super) struct Action {
    pub(super) upstream: Option<String>,
    /// `rewrite`, `redirect`, `respond` and similar keys.
    pub(super) more: Map,
    /// Whether nginx responds before it counts the request.
    pub(super) is_unlimited: bool,
}

// === impl Action ===

impl Action {
    /// Returns an empty response with this status.
    pub(super) fn response(status: u32) -> Self {
        let respond = Map::of([("status", status.into())]);
        Self { more: Map::of([("respond", respond.into())]), ..Self::default() }
    }
}
