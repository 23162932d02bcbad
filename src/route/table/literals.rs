//! The nodes one segment further: where there are a few, they are compared; where there are many, they are hashed.

use std::collections::HashMap;

use smallvec::SmallVec;

/// So many are compared faster than one is hashed.
const FEW: usize = 4;

/// Nodes by the text of their segment.
#[derive(Clone, Debug)]
pub(super) enum Literals {
    Few(SmallVec<[(Box<str>, usize); 1]>),
    Many(HashMap<Box<str>, usize>),
}

impl Literals {
    /// The node of this segment.
    pub(super) fn get(&self, segment: &str) -> Option<usize> {
        match self {
            Self::Few(few) => few.iter().find(|(text, _)| **text == *segment).map(|(_, node)| *node),
            Self::Many(many) => many.get(segment).copied(),
        }
    }

    /// The node of this segment, which is `new` if there was none.
    pub(super) fn get_or_insert(&mut self, segment: &str, new: usize) -> usize {
        if let Some(node) = self.get(segment) {
            return node;
        }
        match self {
            Self::Few(few) if few.len() < FEW => few.push((segment.into(), new)),
            Self::Few(few) => *self = Self::Many(few.drain(..).chain([(segment.into(), new)]).collect()),
            Self::Many(many) => _ = many.insert(segment.into(), new),
        }
        new
    }
}

impl Default for Literals {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}
