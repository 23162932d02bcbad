//! The values of bodies that a route reads.

use super::Route;
use crate::limits::rule::Limit;
use crate::request::body::BodyReads;
use tidegate_usage::Pointer;

impl Route {
    /// Returns the values of bodies that the limits read. Returns `None` if they do not depend on bodies.
    pub(super) fn body_reads(&self) -> Option<BodyReads> {
        let pointers: Vec<&Pointer> = self.limits.iter().flat_map(Limit::body_pointers).collect();
        BodyReads::new(self.api(), &pointers)
    }
}
