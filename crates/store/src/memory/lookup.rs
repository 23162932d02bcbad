//! The lookup of a charge's bucket: the lock shard, the limit's table in it, and the index in the table.

use std::hash::{BuildHasher, Hasher};

use hashbrown::DefaultHashBuilder;

use super::LOCK_SHARDS;
use super::owner::Owner;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::{BucketDecision, BucketState, Wait};
use tidegate_rules::charge::{Charge, ChargeKind, Decision, RESERVED_WAIT};
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
    /// The permits that open reservations of the bucket reserve.
    pub(super) reserved: u32,
    /// The reservation that the charge settles has ended before.
    pub(super) is_ended: bool,
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
        let (location, decision) = (Location::Unknown, Decision::UNKNOWN);
        Self { charge, owner, name_hash, hash, location, lock: 0, decision, reserved: 0, is_ended: false }
    }

    /// Creates the lookup of a PER_CLIENT limit's table, without a bucket, for any lock shard.
    pub(super) fn of_limit(charge: &'c Charge, hasher: &DefaultHashBuilder) -> Self {
        Self::with_owner(charge, Owner::ANY, hasher)
    }

    /// Returns `true` if the bucket is charged once all live charges are granted.
    pub(super) fn is_charged(&self) -> bool {
        let is_charge = !self.charge.kind.is_check() && !matches!(self.charge.kind, ChargeKind::Reserve(_));
        self.decision.granted && is_charge && !self.is_ended
    }

    /// Evaluates the charge on a bucket, without any change. An unconditional charge is always granted.
    #[inline]
    pub(super) fn evaluate(&self, state: &BucketState, now: Timestamp) -> Decision {
        let quota = &self.charge.limiter.quota;
        let decision = self.check(state, now);
        let decision = match self.charge.kind {
            ChargeKind::Unconditional => BucketDecision { granted: true, wait: Wait::Now, delay: 0, ..decision },
            ChargeKind::Settle(_) => {
                let remaining = if self.is_ended { 0 } else { state.check(quota, 0, now).remaining };
                BucketDecision { granted: true, wait: Wait::Now, delay: 0, remaining, ..decision }
            }
            ChargeKind::Take | ChargeKind::Check | ChargeKind::Reserve(_) => decision,
            ChargeKind::NoDebt => without_debt(decision, state.debt_wait(quota, now)),
        };
        decision.into()
    }

    /// Checks the permits, and those that are reserved.
    #[inline]
    fn check(&self, state: &BucketState, now: Timestamp) -> BucketDecision {
        let (quota, permits) = (&self.charge.limiter.quota, self.charge.permits);
        if self.reserved == 0 {
            return state.check(quota, permits, now);
        }
        let checked = if permits == 0 { 0 } else { permits.saturating_add(self.reserved) };
        let mut decision = state.check(quota, checked, now);
        decision.remaining = decision.remaining.saturating_sub(self.reserved);
        // Reservations end in time.
        if decision.wait == Wait::Never && state.check(quota, permits, now).wait != Wait::Never {
            decision.wait = Wait::Millis(RESERVED_WAIT);
        }
        decision
    }

    /// Makes the granted charge on a bucket, and returns the new state of the bucket.
    #[inline]
    pub(super) fn make(&self, state: &mut BucketState, now: Timestamp) -> Decision {
        let (quota, permits) = (&self.charge.limiter.quota, self.charge.permits);
        let decision = match self.charge.kind {
            ChargeKind::Unconditional => state.charge_unconditionally(quota, permits, now),
            ChargeKind::Settle(_) => {
                let decision = state.charge_unconditionally(quota, permits, now);
                return BucketDecision { remaining: self.decision.remaining, ..decision }.into();
            }
            ChargeKind::Take | ChargeKind::Check | ChargeKind::NoDebt | ChargeKind::Reserve(_) => {
                state.charge(quota, permits, now)
            }
        };
        BucketDecision { remaining: decision.remaining.saturating_sub(self.reserved), ..decision }.into()
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
