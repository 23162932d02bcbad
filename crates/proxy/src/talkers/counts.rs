//! The sketches: one for each amount.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};

use datasketches::frequencies::{ErrorType, FrequentItemsSketch};
use hashbrown::DefaultHashBuilder;
use ipnet::IpNet;

use super::{Bounds, Use};

/// The number of slots of a sketch. It is exact for 768 clients. Otherwise it miscounts a client by at most 0.4 % of the sum
/// of all clients.
pub(super) const SLOTS: usize = 1_024;

/// An amount that clients are listed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Requests, rejected or not.
    Requests,
    /// The bytes of both bodies.
    Bytes,
    /// The permits of all limits together.
    Permits,
}

/// A client with the hash of its address. The sketch itself hashes without a secret, so that clients could choose addresses
/// with equal hashes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) client: IpNet,
    hash: u64,
}

/// The amounts of all clients.
#[derive(Debug)]
pub(super) struct Counts([Sketch; Amount::ALL.len()]);

type Sketch = FrequentItemsSketch<Key>;

// === impl Amount ===

impl Amount {
    /// All amounts, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Requests, Self::Bytes, Self::Permits];

    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Bytes => "bytes",
            Self::Permits => "permits",
        }
    }

    /// Returns the amount with a name in the API.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|amount| amount.as_str() == name)
    }
}

// === impl Key ===

impl Key {
    pub(super) fn new(client: IpNet, hasher: &DefaultHashBuilder) -> Self {
        Self { client, hash: hasher.hash_one(client) }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (self.hash, self.client) == (other.hash, other.client)
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

// === impl Counts ===

impl Counts {
    /// Creates empty sketches. They grow from 8 slots.
    #[expect(clippy::expect_used, reason = "a number of slots that is a power of two is valid")]
    pub(super) fn new() -> Self {
        Self(Amount::ALL.map(|_| FrequentItemsSketch::new(SLOTS).expect("a power of two")))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(FrequentItemsSketch::is_empty)
    }

    /// Counts a request.
    pub(super) fn add(&mut self, key: Key, used: Use) {
        for (sketch, amount) in self.0.iter_mut().zip([1, used.bytes, used.permits]) {
            if amount > 0 {
                sketch.update_with_count(key, amount);
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sketch, other)| sketch.merge(other));
    }

    /// Returns the clients with the most of an amount, the highest first.
    pub(super) fn most(&self, by: Amount) -> Vec<Key> {
        let rows = self.0[by as usize].frequent_items(ErrorType::NoFalseNegatives);
        rows.iter().map(|row| *row.item()).collect()
    }

    /// Returns the bounds of an amount of all known clients.
    pub(super) fn bounds(&self, amount: Amount) -> HashMap<Key, Bounds> {
        let rows = self.0[amount as usize].frequent_items(ErrorType::NoFalseNegatives);
        let bounds = |count, lower| Bounds { count, error: count - lower };
        rows.iter().map(|row| (*row.item(), bounds(row.estimate(), row.lower_bound()))).collect()
    }

    /// Returns the highest possible amount of a client that is in no list.
    pub(super) fn rest(&self, amount: Amount) -> u64 {
        self.0[amount as usize].maximum_error()
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.0.iter().map(FrequentItemsSketch::estimated_size).sum()
    }
}
