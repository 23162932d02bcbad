//! The lookup of a charge's bucket: the lock shard, the limit's table in it, and the index in the table.

use std::hash::{BuildHasher, Hasher};

use hashbrown::DefaultHashBuilder;

use super::LOCK_SHARDS;
use super::owner::Owner;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::{BucketDecision, BucketState, Wait};
use tidegate_rules::charge::{Charge, ChargeKind, Decision};
use tidegate_rules::settings::store::KeySecret;

/// A charge, the hashes that identify its bucket, the location of the bucket, and its decision.
#[derive(Debug)]
pub(super) struct Lookup<'c> {
    pub(super) charge: &'c Charge,
    /// The client; the default value for an OVERALL limit.
    pub(super) owner: Owner,
    /// The hash of the limit's name.
    pub(super) name_hash: u64,
    /// The hash of the owner.
    pub(super) hash: u64,
    pub(super) location: Location,
    /// The position of the lock shard among the locked ones.
    pub(super) lock: usize,
    pub(super) decision: Decision,
}

/// The location of the bucket that decides a charge.
#[derive(Clone, Copy, Debug)]
pub(super) enum Location {
    /// Not looked up, or the limit has no table.
    Unknown,
    /// Not found in this table. Valid until tables or buckets are added or swept.
    Missing { table: usize },
    /// The client's own bucket. Valid until tables or buckets are added or swept.
    Own { table: usize, index: usize },
    /// A bucket that is added to this table when it is charged. Its memory is reserved.
    New { table: usize },
    /// The overflow bucket of this table's limit.
    Overflow { table: usize },
}

impl<'c> Lookup<'c> {
    pub(super) fn new(charge: &'c Charge, hasher: &DefaultHashBuilder, secret: &KeySecret) -> Self {
        Self::with_owner(charge, Owner::new(charge.client.as_ref(), secret), hasher)
    }

    /// Creates the lookup of another charge of the same client.
    pub(super) fn of_same_client(&self, charge: &'c Charge, hasher: &DefaultHashBuilder) -> Self {
        Self::with_hash(charge, self.owner, self.hash, hasher)
    }

    /// Creates the lookup of the bucket of this owner.
    pub(super) fn with_owner(charge: &'c Charge, owner: Owner, hasher: &DefaultHashBuilder) -> Self {
        let hash = if owner.is_overall() { 0 } else { hash(owner, hasher) };
        Self::with_hash(charge, owner, hash, hasher)
    }

    fn with_hash(charge: &'c Charge, owner: Owner, hash: u64, hasher: &DefaultHashBuilder) -> Self {
        let mut of_name = hasher.build_hasher();
        of_name.write(charge.limiter.name.as_bytes());
        let name_hash = of_name.finish();
        Self { charge, owner, name_hash, hash, location: Location::Unknown, lock: 0, decision: Decision::UNKNOWN }
    }

    /// Creates the lookup of a PER_CLIENT limit's table, without a bucket, for any lock shard.
    pub(super) fn of_limit(charge: &'c Charge, hasher: &DefaultHashBuilder) -> Self {
        Self::with_owner(charge, Owner::ANY, hasher)
    }

    /// Returns `true` if the bucket is charged once all live charges are granted.
    pub(super) fn is_charged(&self) -> bool {
        self.decision.granted && !self.charge.kind.is_check()
    }

    /// Evaluates the charge on a bucket, without any change. An unconditional charge is always granted.
    #[inline]
    pub(super) fn evaluate(&self, state: &BucketState, now: Timestamp) -> Decision {
        let decision = state.check(&self.charge.limiter.quota, self.charge.permits, now);
        let decision = match self.charge.kind {
            ChargeKind::Unconditional => BucketDecision { granted: true, wait: Wait::Now, delay: 0, ..decision },
            ChargeKind::Take | ChargeKind::Check => decision,
            ChargeKind::NoDebt => without_debt(decision, state.debt_wait(&self.charge.limiter.quota, now)),
        };
        decision.into()
    }

    /// Makes the granted charge on a bucket, and returns the new state of the bucket.
    #[inline]
    pub(super) fn make(&self, state: &mut BucketState, now: Timestamp) -> Decision {
        let (quota, permits) = (&self.charge.limiter.quota, self.charge.permits);
        let decision = match self.charge.kind {
            ChargeKind::Unconditional => state.charge_unconditionally(quota, permits, now),
            ChargeKind::Take | ChargeKind::Check | ChargeKind::NoDebt => state.charge(quota, permits, now),
        };
        decision.into()
    }

    /// Returns the number of the lock shard, from bits of the hash that the tables do not use. All buckets of a client
    /// are in one of them, so that a decision locks few.
    pub(super) fn lock_shard(&self) -> usize {
        let hash = if self.owner.is_overall() { self.name_hash } else { self.hash };
        usize::try_from(hash >> 32).unwrap_or_default() % LOCK_SHARDS
    }
}

/// Returns the decision of a bucket whose debt is paid after this many milliseconds.
fn without_debt(decision: BucketDecision, wait: u64) -> BucketDecision {
    let wait = if wait == 0 { Wait::Now } else { Wait::Millis(wait) };
    BucketDecision { granted: wait == Wait::Now, wait, delay: 0, ..decision }
}

/// Hashes an owner. A fast hash with a random seed suffices: an owner is an address or a hash with the secret.
pub(super) fn hash(owner: Owner, hasher: &DefaultHashBuilder) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u128(owner.bits());
    hasher.finish()
}
