//! The literal child nodes of a node, by segment: a few are compared one by one, many are hashed.

use std::num::NonZeroU32;

use hashbrown::HashMap;
use smallvec::SmallVec;

/// The number of a child node. Never 0, which is the root of the first tree.
pub(super) type Child = NonZeroU32;

/// Up to this number of children, comparing is faster than hashing.
const FEW: usize = 4;

/// A segment. Short ones are stored inline, since another memory access costs as much as the comparison.
type Text = SmallVec<[u8; 16]>;

/// Child nodes by the text of their segment.
#[derive(Clone, Debug)]
pub(super) enum Literals {
    One(Text, Child),
    Few(Vec<(Text, Child)>),
    Many(Box<HashMap<Text, Child>>),
}

impl Literals {
    /// Returns the node of this segment.
    pub(super) fn get(&self, segment: &str) -> Option<Child> {
        match self {
            Self::One(text, child) => (**text == *segment.as_bytes()).then_some(*child),
            Self::Few(few) => few.iter().find(|(text, _)| **text == *segment.as_bytes()).map(|(_, child)| *child),
            Self::Many(many) => many.get(segment.as_bytes()).copied(),
        }
    }

    /// Returns `true` if there are no literal child nodes.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Few(few) if few.is_empty())
    }

    /// Returns the node of this segment; adds `new` if it is missing.
    pub(super) fn get_or_insert(&mut self, segment: &str, new: Child) -> Child {
        if let Some(child) = self.get(segment) {
            return child;
        }
        let text = segment.as_bytes().into();
        match self {
            Self::Few(few) if few.is_empty() => *self = Self::One(text, new),
            Self::One(first, child) => *self = Self::Few(vec![(std::mem::take(first), *child), (text, new)]),
            Self::Few(few) if few.len() < FEW => few.push((text, new)),
            Self::Few(few) => *self = Self::Many(Box::new(few.drain(..).chain([(text, new)]).collect())),
            Self::Many(many) => _ = many.insert(text, new),
        }
        new
    }
}

impl Default for Literals {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}
