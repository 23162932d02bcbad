//! Where a charge's bucket is: the shard, the table of its limit there, and how it is known from others in that.

use std::hash::{BuildHasher, Hasher};

use hashbrown::DefaultHashBuilder;

use super::SHARDS;
use super::owner::Owner;
use crate::limit::Charge;
use crate::store::settings::KeySecret;

/// A charge, and the place of its bucket.
#[derive(Debug)]
pub(super) struct Place<'c> {
    pub(super) charge: &'c Charge,
    /// Whose bucket.
    pub(super) owner: Owner,
    /// Of the limit's name.
    pub(super) name_hash: u64,
    /// Of the owner.
    pub(super) hash: u64,
    pub(super) seat: Seat,
}

/// Which bucket judges a charge.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seat {
    /// None is known.
    Unknown,
    /// The client's own, until tables or buckets are added or swept out.
    Own { table: usize, slot: usize },
    /// One that is added to this table when it is charged; there is room for it.
    New { table: usize },
    /// The one that all clients of this table share for whom there is no room.
    Overflow { table: usize },
}

impl<'c> Place<'c> {
    pub(super) fn of(charge: &'c Charge, hasher: &DefaultHashBuilder, secret: &KeySecret) -> Self {
        let owner = Owner::of(charge.client.as_ref(), secret);
        let hash = if owner.is_everybody() { 0 } else { hash(owner, hasher) };
        let mut of_name = hasher.build_hasher();
        of_name.write(charge.limiter.name.as_bytes());
        let name_hash = of_name.finish();
        Self { charge, owner, name_hash, hash, seat: Seat::Unknown }
    }

    /// By bits that a table does not tell slots apart by.
    pub(super) fn shard(&self) -> usize {
        usize::try_from((self.name_hash ^ self.hash) >> 32).unwrap_or_default() % SHARDS
    }
}

/// By a fast function with a random seed: what clients may choose freely has been hashed with a secret before.
pub(super) fn hash(owner: Owner, hasher: &DefaultHashBuilder) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u128(owner.bits());
    hasher.finish()
}
