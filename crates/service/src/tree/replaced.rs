//! Limits that do not apply to a call because another limit of the call replaces them.

use smallvec::SmallVec;

use crate::tree::rule::RuleLimit;

/// The names of replaced limits.
#[derive(Debug)]
pub(crate) struct Replaced<'d>(SmallVec<[&'d str; 4]>);

impl<'d> Replaced<'d> {
    /// Collects the names from the limits of all descriptors of a call. Unlimited and replaced limits replace others, too.
    pub(crate) fn new(limits: impl Iterator<Item = &'d RuleLimit>) -> Self {
        Self(limits.flat_map(|limit| &limit.replaces).map(String::as_str).collect())
    }

    /// Returns `true` if the limit does not apply.
    pub(crate) fn includes(&self, limit: &RuleLimit) -> bool {
        limit.name.as_deref().is_some_and(|name| self.0.contains(&name))
    }
}
