//! The nodes one segment further: where there are a few, they are compared; where there are many, they are hashed.

use std::num::NonZeroU32;

use hashbrown::HashMap;
use smallvec::SmallVec;

/// The number of a node that is not that of the first tree's root.
pub(super) type Child = NonZeroU32;

/// So many are compared faster than one is hashed.
const FEW: usize = 4;

/// A segment; one of the usual length is where it is found, and not behind a pointer: a look elsewhere in memory costs as
/// much as the comparison.
type Text = SmallVec<[u8; 16]>;

/// Nodes by the text of their segment.
#[derive(Clone, Debug)]
pub(super) enum Literals {
    One(Text, Child),
    Few(Vec<(Text, Child)>),
    Many(Box<HashMap<Text, Child>>),
}

impl Literals {
    /// The node of this segment.
    pub(super) fn get(&self, segment: &str) -> Option<Child> {
        match self {
            Self::One(text, child) => (**text == *segment.as_bytes()).then_some(*child),
            Self::Few(few) => few.iter().find(|(text, _)| **text == *segment.as_bytes()).map(|(_, child)| *child),
            Self::Many(many) => many.get(segment.as_bytes()).copied(),
        }
    }

    /// The node of this segment, which is `new` if there was none.
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
