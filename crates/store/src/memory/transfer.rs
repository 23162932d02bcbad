//! Buckets that a handover moves to the embedded store of another process. Both stores hash clients with the same
//! secret, so a bucket is sent as its owner and its numbers. Overflow buckets are not sent.

use std::sync::Arc;

use super::Memory;
use super::lookup::Lookup;
use super::owner::Owner;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::{BucketState, Mode, Quota};
use tidegate_rules::charge::{Charge, Limiter};
use tidegate_rules::settings::store::KeySecret;

/// Buckets are sorted by the sixteenths of their capacity that are in use.
const LEVELS: usize = 17;

/// The bytes of the budget that the owner of a bucket takes.
const OWNER_BYTES: usize = 48;
const NUMBER_BYTES: usize = 14;

impl Memory {
    /// Hashes clients with the secret of the process that sends buckets, unless this store has a secret already.
    /// Returns `true` if both have the same secret.
    pub(crate) fn share_secret(&self, secret: KeySecret) -> bool {
        *self.secret.get_or_init(|| secret) == secret
    }

    /// Passes the limiter, the slowest quotas of its clients, and the owner and the numbers of each bucket in use to
    /// `each`. If all of them would take more than about `budget` bytes, passes those that are used most, and returns
    /// how many it left out. Locks one shard after the other.
    pub(crate) fn export(&self, budget: usize, mut each: impl FnMut(&Limiter, &[Quota], [u8; 16], &[i64])) -> usize {
        let now = self.clock.now();
        let mut sizes = [0_usize; LEVELS];
        self.each_in_use(now, |limiter, _, _, state| {
            let numbers = state.to_numbers(&limiter.quota, now).len();
            sizes[level(state, &limiter.quota, now)] += OWNER_BYTES + NUMBER_BYTES * numbers;
        });
        let (mut remaining, mut left_out) = (budget, 0);
        let mut budgets = [0; LEVELS];
        for (budget, size) in budgets.iter_mut().zip(sizes).rev() {
            *budget = remaining;
            remaining = remaining.saturating_sub(size);
        }
        self.each_in_use(now, |limiter, quotas, owner, state| {
            let numbers = state.to_numbers(&limiter.quota, now);
            let remaining = &mut budgets[level(state, &limiter.quota, now)];
            match remaining.checked_sub(OWNER_BYTES + NUMBER_BYTES * numbers.len()) {
                Some(less) => {
                    *remaining = less;
                    each(limiter, quotas, owner.bytes(), &numbers);
                }
                None => left_out += 1,
            }
        });
        left_out
    }

    /// Adds a bucket of another process, where clients of the limit had these quotas, too. Returns `false` if the bucket
    /// is full, has another mode or algorithm, or exists already, or if there is no capacity for it.
    pub(crate) fn import(&self, limiter: &Arc<Limiter>, quotas: &[Quota], owner: [u8; 16], numbers: &[i64]) -> bool {
        let (owner, now) = (Owner::of_bytes(owner), self.clock.now());
        let Some(state) = BucketState::from_numbers(&limiter.quota, numbers, now) else { return false };
        let is_full = quotas.iter().chain([&limiter.quota]).all(|quota| state.full_at(quota) <= now);
        if owner.is_overall() != (limiter.mode == Mode::Overall) || is_full {
            return false;
        }
        let charge = Charge::new(Arc::clone(limiter), None, 0);
        let mut lookup = Lookup::with_owner(&charge, owner, &self.hasher);
        let mut lock_shard = self.lock_shards[lookup.lock_shard()].lock();
        let is_added = lock_shard.insert(&mut lookup, &state, &self.capacity, &self.hasher);
        if is_added {
            lock_shard.add_quotas(&lookup, quotas);
        }
        is_added
    }

    /// Makes a charge that another process has granted, even if this bucket lacks the permits. Without capacity for the
    /// bucket, does nothing.
    pub(crate) fn charge_granted(&self, charge: &Charge) {
        let mut lookup = self.lookup(charge);
        let mut lock_shard = self.lock_shards[lookup.lock_shard()].lock();
        if lock_shard.find(&mut lookup)
            || lock_shard.insert(&mut lookup, &BucketState::EMPTY, &self.capacity, &self.hasher)
        {
            _ = lock_shard.charge(&lookup, self.clock.now());
        }
    }

    fn each_in_use(&self, now: Timestamp, mut each: impl FnMut(&Limiter, &[Quota], Owner, &BucketState)) {
        for lock_shard in &self.lock_shards {
            lock_shard.lock().each_in_use(now, &mut each);
        }
    }
}

/// Returns the number of sixteenths of a bucket that are in use.
fn level(state: &BucketState, quota: &Quota, now: Timestamp) -> usize {
    let (capacity, remaining) = (u64::from(quota.capacity()), u64::from(state.check(quota, 0, now).remaining));
    let used = capacity.saturating_sub(remaining) * 16 / capacity.max(1);
    usize::try_from(used).map_or(LEVELS - 1, |level| level.min(LEVELS - 1))
}
