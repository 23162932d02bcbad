//! The values of bodies that a route reads.

use super::Route;
use crate::limits::rule::Limit;
use crate::request::body::{BodyReads, CALL_ID};
use tidegate_usage::Pointer;

impl Route {
    /// Returns the values of bodies that the limits read. Returns `None` if they do not depend on bodies.
    pub(super) fn body_reads(&self) -> Option<BodyReads> {
        let reads_ids = self.reject.as_ref().is_some_and(|reject| reject.reads_body());
        let id = if reads_ids { Pointer::parse(CALL_ID).ok() } else { None };
        let pointers: Vec<&Pointer> = self.limits.iter().flat_map(Limit::body_pointers).chain(&id).collect();
        BodyReads::new(self.api(), &pointers)
    }
}
