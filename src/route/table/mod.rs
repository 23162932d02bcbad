//! Where routes are found: by host first, then by path, segment by segment.
//!
//! The routes of one host pattern are a [tree](Trees), and a request is looked up in a few of them: that of its host,
//! those of the domains above it, and that of the routes for any host. What is found there meets a route's host and path;
//! the caller says whether it meets the rest, and the lowest position that does is the answer. So the order of the rule
//! file decides, as if each route were tried in turn.
//!
//! No part of a tree is looked at twice, and none in which all routes come after one that was found: whatever a client
//! sends, a lookup costs no more than trying all routes would.

mod literals;
mod tree;

use hashbrown::HashMap;
use smallvec::SmallVec;

use self::tree::{BestMatch, Root, Trees};
use super::matcher::Matcher;
use super::pattern::{HostPattern, trim_slashes};

/// The positions of routes, by host and path.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    trees: Trees,
    /// By host.
    hosts: HashMap<Name, Root>,
    /// By domain, with the dot before it: for the hosts below.
    domains: HashMap<Name, Root>,
    /// Most dots in any of those domains.
    deepest: usize,
}

/// A host or a domain; one of the usual length is where it is found, and not behind a pointer.
type Name = SmallVec<[u8; 24]>;

// === impl Table ===

impl Table {
    /// A table of the routes with these matchers, in their order.
    pub(super) fn new<'m>(matchers: impl Iterator<Item = &'m Matcher>) -> Self {
        let mut table = Self::default();
        for (position, matcher) in matchers.enumerate() {
            let root = table.root(matcher.host.as_ref());
            table.trees.insert(root, matcher.path.as_ref(), position);
        }
        table
    }

    /// The lowest position of a route for this host, in lower case, and this path, in its normal form, that meets the
    /// rest of its conditions.
    pub(super) fn find(&self, host: &str, path: &str, meets_other_conditions: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best = BestMatch::new(meets_other_conditions);
        let path = Some(trim_slashes(path)).filter(|path| !path.is_empty());
        for root in self.roots(host) {
            self.trees.find(root, path, &mut best);
        }
        best.position()
    }

    /// The trees of all host patterns that match.
    fn roots(&self, host: &str) -> impl Iterator<Item = Root> {
        let own = (!self.hosts.is_empty()).then(|| self.hosts.get(host.as_bytes())).flatten();
        let above = host.rmatch_indices('.').take(self.deepest).filter(|(dot, _)| *dot > 0);
        let above = above.filter_map(move |(dot, _)| self.domains.get(host.get(dot..)?.as_bytes()));
        own.into_iter().chain(above).copied().chain([Root::ANYWHERE])
    }

    fn root(&mut self, host: Option<&HostPattern>) -> Root {
        let (roots, name) = match host {
            Some(HostPattern::Exact(host)) => (&mut self.hosts, host),
            Some(HostPattern::Suffix(domain)) => {
                self.deepest = self.deepest.max(domain.matches('.').count());
                (&mut self.domains, domain)
            }
            None => return Root::ANYWHERE,
        };
        *roots.entry(name.as_bytes().into()).or_insert_with(|| self.trees.add_root())
    }
}

#[cfg(test)]
mod tests;
