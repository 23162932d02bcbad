//! The embedded store: buckets in this process.
//!
//! Buckets live in shards, each with its own lock. A decision locks all shards that it touches, in ascending order so that
//! two decisions cannot deadlock, then the overflow buckets if it needs one, and only then reads the clock: so the times of
//! a bucket's decisions never decrease.
//!
//! The number of buckets is bounded: full ones are swept out as a shard grows. Each limit has a share of the [`capacity`].
//! When that is used up, no bucket in use is evicted, and new clients of the limit share one [`overflow`] bucket.

mod capacity;
mod lookup;
mod overflow;
mod owner;
mod registry;
mod shard;
mod table;
#[cfg(test)]
mod tests;
mod transaction;
#[cfg(feature = "gateway")]
mod transfer;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, MutexGuard};

use self::capacity::{BucketCapacity, LimitCapacity};
use self::lookup::Lookup;
use self::overflow::Overflow;
use self::registry::Registry;
use self::shard::{SWEEP_PAUSE, Shard};
use self::transaction::{Lookups, Transaction, lock};
use super::StoreError;
use super::settings::KeySecret;
use crate::clock::{Clock, Timestamp};
use crate::limit::{Charge, Granted, Limiter, Mode, Outcome, all_live_granted};

/// One for each bit of a word, since a decision keeps the set of its shards in one.
const SHARDS: usize = u64::BITS as usize;

/// How many buckets one decision visits at most to free capacity: some tenth of a millisecond.
const MAX_VISITED: usize = 1 << 15;

/// Buckets in this process.
#[derive(Debug)]
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    overflow: Mutex<Overflow>,
    capacity: BucketCapacity,
    /// The shard that is swept next when there is no capacity.
    next_shard: AtomicUsize,
    /// All shards were swept without success: no sweep before this time, in milliseconds.
    no_sweep_until: AtomicU64,
    clock: Arc<dyn Clock>,
    /// Randomly seeded, so that clients cannot produce collisions in the tables.
    hasher: DefaultHashBuilder,
    /// Made when it is first used, unless it is given.
    secret: OnceLock<KeySecret>,
    limiters: Mutex<Registry>,
}

/// How many buckets a limit has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// How many it has, including full ones that were not swept yet.
    pub held: usize,
    /// How many are reserved for it. It may have more.
    pub share: usize,
    /// Whether new clients share the overflow bucket.
    pub overflowing: bool,
}

// === impl Memory ===

impl Memory {
    /// The default for the most buckets of all limits together: some 200 MB, if each was used once.
    pub const MAX_BUCKETS: usize = 1 << 21;

    /// The keyed hash of a client's value.
    pub(super) fn key_of(&self, value: &[u8]) -> u128 {
        self.secret().hash(value)
    }

    /// The secret that clients are hashed with.
    #[inline]
    pub(super) fn secret(&self) -> &KeySecret {
        self.secret.get_or_init(KeySecret::random)
    }

    /// An empty store of at most two million buckets. Without a secret it takes a random one.
    pub fn new(clock: Arc<dyn Clock>, secret: Option<KeySecret>) -> Self {
        Self::bounded(clock, secret, Self::MAX_BUCKETS)
    }

    /// An empty store of at most so many buckets: half of them divided evenly among the limits, half for any limit that
    /// needs more. The buckets of OVERALL limits are not counted.
    pub fn bounded(clock: Arc<dyn Clock>, secret: Option<KeySecret>, max_buckets: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let secret = secret.map_or_else(OnceLock::new, OnceLock::from);
        Self {
            shards,
            overflow: Mutex::default(),
            capacity: BucketCapacity::new(max_buckets),
            next_shard: AtomicUsize::default(),
            no_sweep_until: AtomicU64::default(),
            clock,
            hasher: DefaultHashBuilder::default(),
            secret,
            limiters: Mutex::default(),
        }
    }

    /// Reserves capacity for these limits, and no longer for those that `were` in force. A limit that is named in neither
    /// gets its share when it is first used.
    pub fn set_active_limits<'l>(
        &self,
        limiters: impl IntoIterator<Item = &'l Limiter>,
        were: impl IntoIterator<Item = &'l Limiter>,
    ) {
        self.capacity.set_active(limiters.into_iter(), were.into_iter());
    }

    /// Makes all live charges or none, now; with live charges, also the shadow charges that their buckets grant.
    ///
    /// # Errors
    /// [`StoreError::NotInitialised`] for an adopted limiter, whose quota only Redis has.
    pub fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        self.decide(charges, None)
    }

    /// As [`take`](Self::take), at the time `now`.
    ///
    /// # Errors
    /// [`StoreError::NotInitialised`] for an adopted limiter, whose quota only Redis has.
    pub fn take_at(&self, charges: &[Charge], now: Timestamp) -> Result<Outcome, StoreError> {
        self.decide(charges, Some(now))
    }

    /// Reads the clock under the locks, unless `now` is given: with an earlier time, permits that other requests have taken
    /// meanwhile would lie ahead of the clock and return too early.
    fn decide(&self, charges: &[Charge], now: Option<Timestamp>) -> Result<Outcome, StoreError> {
        if charges.iter().any(|charge| charge.limiter.quota.is_adopted()) {
            return Err(StoreError::NotInitialised);
        }
        let mut lookups: Lookups<'_> = charges.iter().map(|charge| self.lookup(charge)).collect();
        let mut locked = lock(self, &lookups);
        let mut transaction = Transaction::new(self, &mut lookups, &mut locked, now);
        let now = now.unwrap_or_else(|| self.clock.now());
        let mut decisions = transaction.check(now);
        let granted = all_live_granted(charges, &decisions);
        transaction.charge_found(granted, &mut decisions, now);
        transaction.charge_new(granted, &mut decisions, now);
        Ok(Outcome::with_granted(now, decisions, granted))
    }

    /// Gives back what was granted. Permits that have returned by themselves are left alone.
    pub fn give_back(&self, granted: &[Granted]) {
        self.give_back_with(granted, None);
    }

    /// As [`give_back`](Self::give_back), at the time `now`.
    pub fn give_back_at(&self, granted: &[Granted], now: Timestamp) {
        self.give_back_with(granted, Some(now));
    }

    /// Reads the clock under the lock, unless `now` is given.
    fn give_back_with(&self, granted: &[Granted], now: Option<Timestamp>) {
        let present = || now.unwrap_or_else(|| self.clock.now());
        for Granted { charge, at, overflow } in granted {
            let mut lookup = self.lookup(charge);
            if *overflow {
                let Some(limit_capacity) = self.capacity.get(&charge.limiter) else { continue };
                let mut overflow = self.overflow.lock();
                overflow.give_back(&limit_capacity, &lookup, *at, present());
                continue;
            }
            let mut shard = self.shards[lookup.shard()].lock();
            if shard.find(&mut lookup) {
                shard.give_back(&lookup, *at, present());
            }
        }
    }

    /// Ends overflows that are over, for limits that get no new requests. A request for a new bucket does the same.
    pub fn run_maintenance(&self) {
        if self.overflow.lock().is_empty() {
            return;
        }
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.sweep_if_due(&self.capacity, self.clock.now());
        }
        let mut overflow = self.overflow.lock();
        overflow.remove_recovered(&self.capacity, self.clock.now());
    }

    /// How many buckets this limit has.
    pub fn usage(&self, limiter: &Arc<Limiter>) -> Usage {
        if limiter.mode == Mode::Overall {
            let charge = Charge { limiter: Arc::clone(limiter), client: None, permits: 0, shadow: false };
            let mut lookup = self.lookup(&charge);
            let found = self.shards[lookup.shard()].lock().find(&mut lookup);
            return Usage { held: found.into(), share: 1, overflowing: false };
        }
        let Some(limit_capacity) = self.capacity.get(limiter) else {
            return Usage { held: 0, share: 0, overflowing: false };
        };
        let overflowing = limit_capacity.overflowing.load(Ordering::Relaxed);
        Usage { held: limit_capacity.bucket_count(), share: self.capacity.share_of(&limit_capacity), overflowing }
    }

    /// The limiters of the library, and the time, read under their lock.
    pub(super) fn limiters(&self) -> (MutexGuard<'_, Registry>, Timestamp) {
        (self.limiters.lock(), self.clock.now())
    }

    /// How many buckets there are, without overflow buckets.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Bytes of all tables.
    #[cfg(test)]
    fn occupied(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().occupied()).sum()
    }

    /// Is there no bucket?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sweeps other shards, one after the other, until there is capacity or [`MAX_VISITED`] buckets were visited. After a
    /// round without success it pauses, so that new clients cost no more than their refusals.
    fn sweep_other_shards(&self, limit_capacity: &LimitCapacity, shadow: bool, now: Timestamp) {
        let mut visited = 0;
        while visited < MAX_VISITED && now.as_millis() >= self.no_sweep_until.load(Ordering::Relaxed) {
            if self.capacity.has_capacity(limit_capacity, shadow) {
                return;
            }
            let next = self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARDS;
            // Skips locked shards: those of this decision are swept already, and others are not worth a wait.
            visited += self.shards[next].try_lock().map_or(0, |mut shard| shard.sweep_if_due(&self.capacity, now));
            if next == SHARDS - 1 {
                self.no_sweep_until.store(now.plus_millis(SWEEP_PAUSE).as_millis(), Ordering::Relaxed);
            }
        }
    }

    fn lookup<'c>(&self, charge: &'c Charge) -> Lookup<'c> {
        Lookup::new(charge, &self.hasher, self.secret())
    }
}
