//! The nodes one segment further: where there are a few, they are compared; where there are many, they are hashed.

use hashbrown::HashMap;
use smallvec::SmallVec;

/// So many are compared faster than one is hashed.
const FEW: usize = 4;

/// A segment; one of the usual length is where it is found, and not behind a pointer: a look elsewhere in memory costs as
/// much as the comparison.
type Text = SmallVec<[u8; 24]>;

/// Nodes by the text of their segment.
#[derive(Clone, Debug)]
pub(super) enum Literals {
    Few(SmallVec<[(Text, usize); 1]>),
    Many(HashMap<Text, usize>),
}

impl Literals {
    /// The node of this segment.
    pub(super) fn get(&self, segment: &str) -> Option<usize> {
        match self {
            Self::Few(few) => few.iter().find(|(text, _)| **text == *segment.as_bytes()).map(|(_, node)| *node),
            Self::Many(many) => many.get(segment.as_bytes()).copied(),
        }
    }

    /// The node of this segment, which is `new` if there was none.
    pub(super) fn get_or_insert(&mut self, segment: &str, new: usize) -> usize {
        if let Some(node) = self.get(segment) {
            return node;
        }
        match self {
            Self::Few(few) if few.len() < FEW => few.push((segment.as_bytes().into(), new)),
            Self::Few(few) => *self = Self::Many(few.drain(..).chain([(segment.as_bytes().into(), new)]).collect()),
            Self::Many(many) => _ = many.insert(segment.as_bytes().into(), new),
        }
        new
    }
}

impl Default for Literals {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}
