//! Where routes are found: by host first, then by path, segment by segment.
//!
//! The routes of one host pattern are a [tree](Tree), and a request is looked up in a few of them: that of its host,
//! those of the domains above it, and that of the routes for any host. What is found there meets a route's host and path;
//! the caller says whether it meets the rest, and the lowest position that does is the answer. So the order of the rule
//! file decides, as if each route were tried in turn.
//!
//! No part of a tree is looked at twice, and none in which all routes come after one that was found: whatever a client
//! sends, a lookup costs no more than trying all routes would.

mod literals;

use hashbrown::HashMap;
use smallvec::SmallVec;

use self::literals::Literals;
use super::matcher::Matcher;
use super::pattern::{HostPattern, PathPattern, Segment, bare};

/// The positions of routes, by host and path.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// By host.
    hosts: HashMap<Box<str>, Tree>,
    /// By domain, with the dot before it: for the hosts below.
    domains: HashMap<Box<str>, Tree>,
    /// Most dots in any of those domains.
    deepest: usize,
    /// For any host.
    anywhere: Tree,
}

/// The positions of routes by path. A node stands for the segments on the way to it; the first is the root.
#[derive(Clone, Debug, Default)]
struct Tree(Vec<Node>);

#[derive(Clone, Debug, Default)]
struct Node {
    /// The lowest position in this node and below.
    lowest: usize,
    /// The nodes one segment further, by its text.
    literals: Literals,
    /// The node after a segment of any text.
    any: Option<usize>,
    /// The routes whose path ends here, ascending.
    ends: SmallVec<[usize; 1]>,
    /// The routes for everything from here on, ascending.
    rests: SmallVec<[usize; 1]>,
}

/// The lowest position so far, and what it has to meet.
struct Lowest<M> {
    position: Option<usize>,
    meets_the_rest: M,
}

// === impl Table ===

impl Table {
    /// A table of the routes with these matchers, in their order.
    pub(super) fn new<'m>(matchers: impl Iterator<Item = &'m Matcher>) -> Self {
        let mut table = Self::default();
        for (position, matcher) in matchers.enumerate() {
            table.tree(matcher.host.as_ref()).insert(matcher.path.as_ref(), position);
        }
        table
    }

    /// The lowest position of a route for this host, in lower case, and this path, in its normal form, that meets the
    /// rest of its conditions.
    pub(super) fn find(&self, host: &str, path: &str, meets_the_rest: impl Fn(usize) -> bool) -> Option<usize> {
        let mut lowest = Lowest { position: None, meets_the_rest };
        let path = Some(bare(path)).filter(|path| !path.is_empty());
        for tree in self.trees(host) {
            tree.find(0, path, &mut lowest);
        }
        lowest.position
    }

    /// The trees of all host patterns that match.
    fn trees(&self, host: &str) -> impl Iterator<Item = &Tree> {
        let own = (!self.hosts.is_empty()).then(|| self.hosts.get(host)).flatten();
        let above = host.rmatch_indices('.').take(self.deepest).filter(|(dot, _)| *dot > 0);
        let above = above.filter_map(move |(dot, _)| self.domains.get(host.get(dot..)?));
        own.into_iter().chain(above).chain([&self.anywhere])
    }

    fn tree(&mut self, host: Option<&HostPattern>) -> &mut Tree {
        match host {
            Some(HostPattern::Exact(host)) => self.hosts.entry(host.as_str().into()).or_default(),
            Some(HostPattern::Suffix(domain)) => {
                self.deepest = self.deepest.max(domain.matches('.').count());
                self.domains.entry(domain.as_str().into()).or_default()
            }
            None => &mut self.anywhere,
        }
    }
}

// === impl Tree ===

impl Tree {
    /// Adds a route, whose position is above all that are there; without a path it is for all of them.
    fn insert(&mut self, path: Option<&PathPattern>, position: usize) {
        if self.0.is_empty() {
            self.0.push(Node { lowest: position, ..Node::default() });
        }
        let (segments, rest) = path.map_or((&[][..], true), |path| (path.segments.as_slice(), path.rest));
        let end = segments.iter().fold(0, |node, segment| self.child(node, segment, position));
        let node = &mut self.0[end];
        if rest { node.rests.push(position) } else { node.ends.push(position) }
    }

    /// The node after this one and the segment; a new one if there is none.
    fn child(&mut self, node: usize, segment: &Segment, position: usize) -> usize {
        let new = self.0.len();
        let parent = &mut self.0[node];
        let child = match segment {
            Segment::Literal(text) => parent.literals.get_or_insert(text, new),
            Segment::Any(_) => *parent.any.get_or_insert(new),
        };
        if child == new {
            self.0.push(Node { lowest: position, ..Node::default() });
        }
        child
    }

    /// Looks from this node on for what is left of a path.
    fn find<M: Fn(usize) -> bool>(&self, node: usize, mut path: Option<&str>, lowest: &mut Lowest<M>) {
        let mut next = Some(node);
        while let Some(node) = next.and_then(|node| self.0.get(node)).filter(|node| lowest.is_above(node.lowest)) {
            lowest.look_among(&node.rests);
            let Some(left) = path else { return lowest.look_among(&node.ends) };
            let (segment, after) = left.split_once('/').map_or((left, None), |(segment, after)| (segment, Some(after)));
            let literal = node.literals.get(segment);
            if let (Some(literal), Some(_)) = (literal, node.any) {
                self.find(literal, after, lowest);
            }
            (next, path) = (node.any.or(literal), after);
        }
    }
}

// === impl Lowest ===

impl<M: Fn(usize) -> bool> Lowest<M> {
    /// Is nothing found yet, or only what comes after this position?
    fn is_above(&self, position: usize) -> bool {
        self.position.is_none_or(|found| found > position)
    }

    fn look_among(&mut self, positions: &[usize]) {
        let lower = positions.iter().copied().take_while(|position| self.is_above(*position));
        if let Some(position) = { lower }.find(|position| (self.meets_the_rest)(*position)) {
            self.position = Some(position);
        }
    }
}

#[cfg(test)]
mod tests;
