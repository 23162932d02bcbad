//! Looking up the bucket of a charge: its shard, the limit's table in the shard, the slot in the table.

use std::hash::{BuildHasher, Hasher};

use hashbrown::DefaultHashBuilder;

use super::SHARDS;
use super::owner::Owner;
use crate::limit::Charge;
use crate::store::settings::KeySecret;

/// A charge, the hashes to look its bucket up by, and the location found.
#[derive(Debug)]
pub(super) struct Lookup<'c> {
    pub(super) charge: &'c Charge,
    /// The client, or none for an OVERALL limit.
    pub(super) owner: Owner,
    /// Hash of the limit's name.
    pub(super) name_hash: u64,
    /// Hash of the owner.
    pub(super) hash: u64,
    pub(super) location: Location,
}

/// Which bucket judges a charge.
#[derive(Clone, Copy, Debug)]
pub(super) enum Location {
    /// Not found.
    Unknown,
    /// The client's own bucket. Valid until tables or buckets are added or swept.
    Own { table: usize, slot: usize },
    /// To be added to this table when it is charged; capacity is reserved.
    New { table: usize },
    /// The overflow bucket of this table's limit.
    Overflow { table: usize },
}

impl<'c> Lookup<'c> {
    pub(super) fn new(charge: &'c Charge, hasher: &DefaultHashBuilder, secret: &KeySecret) -> Self {
        Self::with_owner(charge, Owner::new(charge.client.as_ref(), secret), hasher)
    }

    /// The bucket of this owner.
    pub(super) fn with_owner(charge: &'c Charge, owner: Owner, hasher: &DefaultHashBuilder) -> Self {
        let hash = if owner.is_overall() { 0 } else { hash(owner, hasher) };
        let mut of_name = hasher.build_hasher();
        of_name.write(charge.limiter.name.as_bytes());
        let name_hash = of_name.finish();
        Self { charge, owner, name_hash, hash, location: Location::Unknown }
    }

    /// The number of the shard, from bits that the tables do not use.
    pub(super) fn shard(&self) -> usize {
        usize::try_from((self.name_hash ^ self.hash) >> 32).unwrap_or_default() % SHARDS
    }
}

/// A fast hash with a random seed is enough: values that clients choose were hashed with the secret before.
pub(super) fn hash(owner: Owner, hasher: &DefaultHashBuilder) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u128(owner.bits());
    hasher.finish()
}
