//! Packed trees of path segments. Memory latency dominates the cost of a lookup among many thousands of routes.

use smallvec::SmallVec;

use super::literals::{Child, Literals};
use crate::route::pattern::{PathPattern, Segment};

/// The nodes of all trees.
#[derive(Clone, Debug)]
pub(super) struct Trees(Vec<Node>);

/// The number of a tree's first node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root(u32);

/// A node, which represents the segments on the path to it. It fills exactly one cache line.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Node {
    /// The lowest position in this node and below.
    lowest: u32,
    /// The node after a segment of any text.
    any: Option<Child>,
    /// The routes whose pattern ends here, or matches all paths from here on; ascending.
    ends: SmallVec<[End; 4]>,
    /// The child nodes, by literal segment.
    literals: Literals,
}

const _: () = assert!(size_of::<Node>() == 64, "a node must fit into a cache line");

/// The position of a route, and in the highest bit, whether its pattern matches all paths from here on.
#[derive(Clone, Copy, Debug)]
struct End(u32);

/// The lowest matching position so far, and the check of a route's other conditions.
pub(super) struct BestMatch<M> {
    position: Option<usize>,
    meets_other_conditions: M,
}

/// Splits a path after its first segment. For short segments, a search for a byte takes half the instructions of
/// `split_once`.
fn split_segment(path: &str) -> (&str, Option<&str>) {
    match path.bytes().position(|byte| byte == b'/') {
        Some(end) => (&path[..end], Some(&path[end + 1..])),
        None => (path, None),
    }
}

/// Converts a position or the number of a node. Memory limits their number, so that the conversion cannot fail.
fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

// === impl Trees ===

impl Trees {
    pub(super) fn add_root(&mut self) -> Root {
        let root = Root(to_u32(self.0.len()));
        self.0.push(Node::with_lowest(usize::MAX));
        root
    }

    /// Adds a route, whose position must not be lower than any earlier one. Without a path it matches all paths. A
    /// pattern that is not [plain](PathPattern::is_plain) gets the place of a plain pattern that also matches its
    /// paths.
    pub(super) fn insert(&mut self, root: Root, path: Option<&PathPattern>, position: usize) {
        let (segments, rest) = path.map_or((&[][..], true), |path| (path.segments.as_slice(), path.rest));
        let node = &mut self.0[root.0 as usize];
        node.lowest = node.lowest.min(to_u32(position));
        let end = segments.iter().fold(root.0, |node, segment| self.child(node, segment, position).get());
        self.0[end as usize].ends.push(End::new(position, rest));
    }

    /// Returns the child of a node for this segment; adds it if it is missing.
    fn child(&mut self, node: u32, segment: &Segment, position: usize) -> Child {
        let new = Child::MIN.saturating_add(to_u32(self.0.len() - 1));
        let parent = &mut self.0[node as usize];
        let child = match segment {
            Segment::Literal(text) => parent.literals.get_or_insert(text, new),
            Segment::Any(_) | Segment::Glob(_) => *parent.any.get_or_insert(new),
        };
        if child == new {
            self.0.push(Node::with_lowest(position));
        }
        child
    }

    /// Searches a tree for routes that match the path.
    pub(super) fn find<M: Fn(usize) -> bool>(&self, root: Root, path: Option<&str>, best: &mut BestMatch<M>) {
        self.find_from(root.0, path, best);
    }

    /// Searches from this node on for the rest of a path.
    fn find_from<M: Fn(usize) -> bool>(&self, node: u32, mut path: Option<&str>, best: &mut BestMatch<M>) {
        let mut next = Some(node);
        while let Some(node) = next.and_then(|node| self.0.get(node as usize)).filter(|node| best.can_improve(node)) {
            let Some(rest) = path else { return best.try_candidates(node.ends.iter()) };
            best.try_candidates(node.ends.iter().filter(|end| end.is_prefix()));
            if node.any.is_none() && node.literals.is_empty() {
                return;
            }
            let (segment, after) = split_segment(rest);
            let literal = node.literals.get(segment);
            if let (Some(literal), Some(_)) = (literal, node.any) {
                self.find_from(literal.get(), after, best);
            }
            (next, path) = (node.any.or(literal).map(Child::get), after);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Default for Trees {
    /// Only the tree of the routes for all hosts, which is empty.
    fn default() -> Self {
        let mut trees = Self(Vec::new());
        trees.add_root();
        trees
    }
}

impl Root {
    /// The tree of the routes for all hosts.
    pub(super) const ANYWHERE: Self = Self(0);
}

// === impl Node ===

impl Node {
    fn with_lowest(lowest: usize) -> Self {
        Self { lowest: to_u32(lowest), ..Self::default() }
    }
}

impl End {
    const REST: u32 = 1 << 31;

    fn new(position: usize, rest: bool) -> Self {
        Self(to_u32(position) & !Self::REST | if rest { Self::REST } else { 0 })
    }

    fn position(self) -> usize {
        (self.0 & !Self::REST) as usize
    }

    fn is_prefix(self) -> bool {
        self.0 & Self::REST != 0
    }
}

// === impl BestMatch ===

impl<M: Fn(usize) -> bool> BestMatch<M> {
    pub(super) fn new(meets_other_conditions: M) -> Self {
        Self { position: None, meets_other_conditions }
    }

    pub(super) fn position(&self) -> Option<usize> {
        self.position
    }

    /// Returns `true` if the node may contain a lower position than the one found.
    fn can_improve(&self, node: &Node) -> bool {
        self.position.is_none_or(|found| found > node.lowest as usize)
    }

    fn try_candidates<'e>(&mut self, ends: impl Iterator<Item = &'e End>) {
        let mut lower = ends.map(|end| end.position()).take_while(|end| self.position.is_none_or(|found| found > *end));
        if let Some(position) = lower.find(|position| (self.meets_other_conditions)(*position)) {
            self.position = Some(position);
        }
    }
}
