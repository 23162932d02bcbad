//! The lookup table of routes: by host first, then by path, segment by segment.
//!
//! The routes of each host pattern form a [tree](Trees). A request is looked up in the tree of its host, in the trees
//! of the parent domains, and in the tree of the routes for all hosts. The trees contain candidates that match host and
//! path. The caller checks all other conditions, and the lowest position that meets them is the result. So the order of
//! the rule file decides, as if the routes were tried one after the other.
//!
//! In a tree, a segment with `*` is any segment, and a pattern ends at its `**`: the caller checks these patterns like
//! other conditions. So exact paths and prefixes do not pay for them.
//!
//! A lookup visits no node twice, and skips nodes whose routes all come after a route already found. So a lookup never
//! costs more than trying all routes, for any client input.

mod literals;
mod tree;

use hashbrown::HashMap;
use smallvec::SmallVec;

use self::tree::{BestMatch, Root, Trees};
use super::case::Case;
use super::matcher::Matcher;
use super::pattern::{HostPattern, PathPattern, trim_slashes};

/// The positions of routes, by host and path.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// For paths that are compared in the case that clients send.
    sensitive: Hosts,
    /// For paths in lower case, if a route ignores the case.
    insensitive: Option<Box<Hosts>>,
}

/// The positions of routes, by host and path in one way of comparing letters.
#[derive(Clone, Debug, Default)]
struct Hosts {
    trees: Trees,
    /// By host.
    hosts: HashMap<Name, Root>,
    /// By domain, with a leading dot: for all hosts below the domain.
    domains: HashMap<Name, Root>,
    /// The maximal number of dots in these domains.
    deepest: usize,
}

/// A host or a domain. Usual lengths are stored inline, which saves a memory access.
type Name = SmallVec<[u8; 24]>;

// === impl Table ===

impl Table {
    /// Creates the table of the routes with these matchers, in their order.
    pub(super) fn new<'m>(matchers: impl Iterator<Item = &'m Matcher>) -> Self {
        let mut table = Self::default();
        for (position, matcher) in matchers.enumerate() {
            for (host, path) in matcher.pairs() {
                match path.filter(|path| path.case() == Case::Insensitive) {
                    None => table.sensitive.insert(host, path, position),
                    Some(path) => {
                        table.insensitive.get_or_insert_default().insert(host, Some(&path.to_lowercase()), position);
                    }
                }
            }
        }
        table
    }

    /// Returns the lowest position of a route that matches this host, in lower case, and this path, in its normal form,
    /// and that meets its other conditions. These include the path if the pattern is not
    /// [plain](PathPattern::is_plain).
    pub(super) fn find(&self, host: &str, path: &str, meets_other_conditions: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best = BestMatch::new(meets_other_conditions);
        self.sensitive.find(host, path, &mut best);
        if let Some(insensitive) = &self.insensitive {
            insensitive.find(host, &path.to_ascii_lowercase(), &mut best);
        }
        best.position()
    }
}

// === impl Hosts ===

impl Hosts {
    fn insert(&mut self, host: Option<&HostPattern>, path: Option<&PathPattern>, position: usize) {
        let root = self.root(host);
        self.trees.insert(root, path, position);
    }

    fn find<M: Fn(usize) -> bool>(&self, host: &str, path: &str, best: &mut BestMatch<M>) {
        let path = Some(trim_slashes(path)).filter(|path| !path.is_empty());
        for root in self.roots(host) {
            self.trees.find(root, path, best);
        }
    }

    /// Iterates over the trees of all matching host patterns.
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
