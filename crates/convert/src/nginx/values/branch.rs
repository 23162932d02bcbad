//! The values of a variable, each with its conditions.

use super::Unknown;
use super::networks::subtract_all;
use super::pattern::{Test, Values};
use super::source::Source;

/// The most branches of a value.
pub(super) const MAX_BRANCHES: usize = 64;

/// A value of a text with variables, for the requests that meet all of `when` and none of `unless`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Branch {
    pub(crate) when: Vec<Test>,
    pub(crate) unless: Vec<Test>,
    pub(crate) value: Vec<Piece>,
}

/// A part of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Source(Source),
}

// === impl Branch ===

impl Branch {
    /// Returns a branch without conditions.
    pub(super) fn of(piece: Piece) -> Self {
        Self { value: vec![piece], ..Self::default() }
    }

    /// Returns the value if it contains no part of the request.
    pub(crate) fn constant(&self) -> Option<String> {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => Some(text.clone()),
            Piece::Source(_) => None,
        };
        self.value.iter().map(text).collect()
    }

    /// Returns the part of the request that is the whole value.
    pub(crate) fn only_source(&self) -> Option<&Source> {
        match self.value.as_slice() {
            [Piece::Source(source)] => Some(source),
            _ => None,
        }
    }

    /// Returns `true` if the value is empty for all requests.
    pub(crate) fn is_empty(&self) -> bool {
        self.constant().is_some_and(|text| text.is_empty())
    }

    /// Returns a branch with the conditions of both, and the value of `next` after this value.
    fn and(&self, next: &Self) -> Self {
        let joined = |own: &[Test], others: &[Test]| [own, others].concat();
        Self {
            when: joined(&self.when, &next.when),
            unless: joined(&self.unless, &next.unless),
            value: [self.value.as_slice(), next.value.as_slice()].concat(),
        }
    }

    /// Adds the requests of another branch with the same value, if a single condition can describe both. Returns `false`
    /// otherwise.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        match (self.when.as_mut_slice(), self.unless.as_mut_slice(), other.when.as_slice(), other.unless.as_slice()) {
            ([own], [], [other], []) if own.source == other.source => own.values.add(&other.values),
            ([], [own], [other], []) if own.source == other.source => own.values.remove(&other.values),
            _ => false,
        }
    }

    /// Returns a branch with this value and the conditions of another one.
    pub(super) fn under(&self, outer: &Self) -> Self {
        Self { value: Vec::new(), ..outer.clone() }.and(self)
    }
}

// === impl Values ===

impl Values {
    /// Adds values of the same kind.
    fn add(&mut self, others: &Self) -> bool {
        match (self, others) {
            (Self::Patterns(own), Self::Patterns(others)) => own.extend(others.iter().cloned()),
            (Self::Networks(own), Self::Networks(others)) => own.extend(others),
            _ => return false,
        }
        true
    }

    /// Removes values of the same kind. Some must be left, and all of `others` must be among the values.
    fn remove(&mut self, others: &Self) -> bool {
        match (self, others) {
            (Self::Patterns(own), Self::Patterns(others)) => {
                let is_part = others.iter().all(|other| own.contains(other)) && others.len() < own.len();
                own.retain(|own| !is_part || !others.contains(own));
                is_part
            }
            (Self::Networks(own), Self::Networks(others)) => {
                let left = subtract_all(own, others);
                let is_left = !left.is_empty();
                *own = if is_left { left } else { std::mem::take(own) };
                is_left
            }
            _ => false,
        }
    }
}

/// Returns each combination of two lists of branches.
pub(super) fn product(first: &[Branch], second: &[Branch]) -> Result<Vec<Branch>, Unknown> {
    if first.len().saturating_mul(second.len()) > MAX_BRANCHES {
        return Err(format!("its variables have more than {MAX_BRANCHES} combinations"));
    }
    Ok(first.iter().flat_map(|first| second.iter().map(|second| first.and(second))).collect())
}
