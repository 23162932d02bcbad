//! The embedded store: buckets in this process.
//!
//! Buckets are divided into lock shards, each with its own lock. A decision locks all shards that it needs, in ascending
//! order so that two decisions cannot deadlock, then the overflow buckets if it needs one. Only then it reads the
//! clock, so the decision times of a bucket never decrease.
//!
//! The number of buckets is bounded: growing shards remove full buckets. Each limit has a share of the [`capacity`]. If
//! the share is used up, no bucket in use is evicted; new clients of the limit share one [`overflow`] bucket.

mod capacity;
mod inheritance;
mod inspection;
mod lock_shard;
mod lookup;
mod overflow;
mod owner;
mod receipts;
mod registry;
mod reservations;
mod reset;
mod table;
#[cfg(test)]
mod tests;
mod transaction;
mod transfer;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, MutexGuard};

use self::capacity::{BucketCapacity, LimitCapacity};
use self::lock_shard::{LockShard, SWEEP_PAUSE};
use self::lookup::Lookup;
use self::overflow::Overflow;
pub(crate) use self::receipts::Receipt;
use self::receipts::Receipts;
use self::registry::Registry;
use self::reservations::Reservations;
use self::transaction::{Locked, Lookups, Transaction, lock};
use super::StoreError;
use super::in_flight::InFlight;
use crate::operations::local_overrides::LocalOverrides;
use crate::post_paid::PostPaidLimits;
use tidegate_limit::Mode;
use tidegate_limit::clock::{Clock, Timestamp};
use tidegate_rules::charge::{Charge, Granted, Limiter, Outcome};
use tidegate_rules::settings::store::KeySecret;

/// The number of lock shards: one for each bit of a word, since a decision stores the set of its shards in a word.
const LOCK_SHARDS: usize = u64::BITS as usize;

/// The maximal number of buckets that one decision visits to free capacity, in about a tenth of a millisecond.
const MAX_VISITED: usize = 1 << 15;

/// Buckets in this process.
#[derive(Debug)]
pub struct Memory {
    lock_shards: Box<[Mutex<LockShard>]>,
    overflow: Mutex<Overflow>,
    capacity: BucketCapacity,
    /// The shard that is swept next if there is no capacity.
    next_lock_shard: AtomicUsize,
    /// All shards were swept without success: no sweep before this time, in milliseconds.
    no_sweep_until: AtomicU64,
    clock: Arc<dyn Clock>,
    /// Randomly seeded, so that clients cannot produce collisions in the tables.
    hasher: DefaultHashBuilder,
    /// Created at first use, unless the rule file has one.
    secret: OnceLock<KeySecret>,
    limiters: Mutex<Registry>,
    in_flight: InFlight,
    overrides: Mutex<LocalOverrides>,
    post_paid: PostPaidLimits,
    receipts: Mutex<Receipts>,
    reservations: Mutex<Reservations>,
}

/// The bucket usage of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The number of its buckets, including full ones that have not been removed yet.
    pub held: usize,
    /// The number of buckets reserved for it. It may have more.
    pub share: usize,
    /// Whether new clients share the overflow bucket.
    pub overflowing: bool,
}

// === impl Memory ===

impl Memory {
    /// The default for the maximal number of buckets: about 200 MB, if each was used once.
    pub const MAX_BUCKETS: usize = 1 << 21;

    /// Returns the keyed hash of a client's value.
    pub(super) fn key_of(&self, value: &[u8]) -> u128 {
        self.secret().hash(value)
    }

    /// Returns the secret that clients are hashed with.
    #[inline]
    pub(super) fn secret(&self) -> &KeySecret {
        self.secret.get_or_init(KeySecret::random)
    }

    /// Creates an empty store of at most two million buckets. Without a secret it uses a random one.
    pub fn new(clock: Arc<dyn Clock>, secret: Option<KeySecret>) -> Self {
        Self::bounded(clock, secret, Self::MAX_BUCKETS)
    }

    /// Creates an empty store of at most `max_buckets` buckets: half of them divided evenly among the limits, half for
    /// any limit that needs more. The buckets of OVERALL limits are not counted.
    pub fn bounded(clock: Arc<dyn Clock>, secret: Option<KeySecret>, max_buckets: usize) -> Self {
        let lock_shards = (0..LOCK_SHARDS).map(|_| Mutex::default()).collect();
        let secret = secret.map_or_else(OnceLock::new, OnceLock::from);
        Self {
            lock_shards,
            overflow: Mutex::default(),
            capacity: BucketCapacity::new(max_buckets),
            next_lock_shard: AtomicUsize::default(),
            no_sweep_until: AtomicU64::default(),
            clock,
            hasher: DefaultHashBuilder::default(),
            secret,
            limiters: Mutex::default(),
            in_flight: InFlight::default(),
            overrides: Mutex::default(),
            post_paid: PostPaidLimits::default(),
            receipts: Mutex::default(),
            reservations: Mutex::default(),
        }
    }

    /// Reserves capacity for these limits, and releases it for the limits of `previous`. A limit in neither
    /// list gets its share when it is first used.
    pub fn set_active_limits<'l>(
        &self,
        limiters: impl IntoIterator<Item = &'l Limiter>,
        previous: impl IntoIterator<Item = &'l Limiter>,
    ) {
        self.capacity.set_active(limiters.into_iter(), previous.into_iter());
    }

    /// Makes all live charges or none, now. If it makes the live charges, it also makes each granted shadow charge.
    ///
    /// # Errors
    /// [`StoreError::NotInitialised`] for an adopted limiter, whose quota only Redis has.
    pub fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        if charges.iter().any(|charge| charge.limiter.quota.is_adopted()) {
            return Err(StoreError::NotInitialised);
        }
        let (mut lookups, mut locked) = (Lookups::new(), Locked::new());
        self.look_up(charges, &mut lookups);
        lock(self, &mut lookups, &mut locked);
        let mut transaction = Transaction::new(self, &mut lookups, &mut locked);
        let mut reservations = transaction.lock_reservations();
        // Read under the locks: with an earlier time, concurrent charges of other requests would be dated in the future
        // and return too early.
        let now = self.clock.now();
        let granted = transaction.check(now);
        transaction.charge_found(granted, now);
        transaction.charge_new(granted, now);
        if let Some(reservations) = &mut reservations {
            reservations.apply(&mut lookups, granted);
        }
        let decisions = lookups.iter().map(|lookup| lookup.decision).collect();
        Ok(Outcome::with_granted(now, decisions, granted))
    }

    /// Gives back granted charges, unless their permits have returned.
    pub fn give_back(&self, granted: &[Granted]) {
        for Granted { charge, at, overflow } in granted {
            if let Some(settled) = charge.settled(0) {
                _ = self.take(&[settled]);
                continue;
            }
            let mut lookup = self.lookup(charge);
            if *overflow {
                let Some(limit_capacity) = self.capacity.get(&charge.limiter) else { continue };
                let mut overflow = self.overflow.lock();
                overflow.give_back(&limit_capacity, &lookup, *at, self.clock.now());
                continue;
            }
            let mut lock_shard = self.lock_shards[lookup.lock_shard()].lock();
            if lock_shard.find(&mut lookup) {
                lock_shard.give_back(&lookup, *at, self.clock.now());
            }
        }
    }

    /// Ends overflows of limits that have capacity again. A request for a new bucket does the same, so this is for
    /// limits without new requests.
    pub fn run_maintenance(&self) {
        if self.overflow.lock().is_empty() {
            return;
        }
        for lock_shard in &self.lock_shards {
            let mut lock_shard = lock_shard.lock();
            lock_shard.sweep_if_due(&self.capacity, self.clock.now());
        }
        let mut overflow = self.overflow.lock();
        overflow.remove_recovered(&self.capacity, self.clock.now());
    }

    /// Returns the bucket usage of this limit.
    pub fn usage(&self, limiter: &Arc<Limiter>) -> Usage {
        if limiter.mode == Mode::Overall {
            let charge = Charge::new(Arc::clone(limiter), None, 0);
            let mut lookup = self.lookup(&charge);
            let found = self.lock_shards[lookup.lock_shard()].lock().find(&mut lookup);
            return Usage { held: found.into(), share: 1, overflowing: false };
        }
        let Some(limit_capacity) = self.capacity.get(limiter) else {
            return Usage { held: 0, share: 0, overflowing: false };
        };
        let overflowing = limit_capacity.overflowing.load(Ordering::Relaxed);
        Usage { held: limit_capacity.bucket_count(), share: self.capacity.share_of(&limit_capacity), overflowing }
    }

    /// Returns the slots of all routes.
    pub(super) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Returns the limits that were checked before their costs were known.
    pub(super) fn post_paid(&self) -> &PostPaidLimits {
        &self.post_paid
    }

    /// Returns the limiters of the library, locked, and the time, read under the lock.
    pub(super) fn limiters(&self) -> (MutexGuard<'_, Registry>, Timestamp) {
        (self.limiters.lock(), self.clock.now())
    }

    /// Returns the overrides of limits, locked, and the time, read under the lock.
    pub(super) fn overrides(&self) -> (MutexGuard<'_, LocalOverrides>, Timestamp) {
        (self.overrides.lock(), self.clock.now())
    }

    /// Returns the time of its clock.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the number of buckets, without overflow buckets.
    pub fn len(&self) -> usize {
        self.lock_shards.iter().map(|lock_shard| lock_shard.lock().len()).sum()
    }

    /// Returns the bytes of all tables.
    #[cfg(test)]
    fn occupied(&self) -> usize {
        self.lock_shards.iter().map(|lock_shard| lock_shard.lock().occupied()).sum()
    }

    /// Returns `true` if there are no buckets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sweeps other shards, one after the other, until there is capacity or [`MAX_VISITED`] buckets were visited. After
    /// an unsuccessful round it pauses, so that a flood of new clients does not cause permanent sweeping.
    fn sweep_other_shards(&self, limit_capacity: &LimitCapacity, shadow: bool, now: Timestamp) {
        let mut visited = 0;
        while visited < MAX_VISITED && now.as_millis() >= self.no_sweep_until.load(Ordering::Relaxed) {
            if self.capacity.has_capacity(limit_capacity, shadow) {
                return;
            }
            let next = self.next_lock_shard.fetch_add(1, Ordering::Relaxed) % LOCK_SHARDS;
            // Skips locked shards: the shards of this decision were swept already, and others would delay it.
            visited += self.lock_shards[next]
                .try_lock()
                .map_or(0, |mut lock_shard| lock_shard.sweep_if_due(&self.capacity, now));
            if next == LOCK_SHARDS - 1 {
                self.no_sweep_until.store(now.plus_millis(SWEEP_PAUSE).as_millis(), Ordering::Relaxed);
            }
        }
    }

    /// Adds the lookup of each charge. Successive charges usually have the same client, which is hashed once.
    #[inline]
    fn look_up<'c>(&self, charges: &'c [Charge], lookups: &mut Lookups<'c>) {
        for charge in charges {
            let lookup = match lookups.last() {
                Some(last) if last.charge.client == charge.client => last.of_same_client(charge, &self.hasher),
                _ => self.lookup(charge),
            };
            lookups.push(lookup);
        }
    }

    fn lookup<'c>(&self, charge: &'c Charge) -> Lookup<'c> {
        Lookup::new(charge, &self.hasher, self.secret())
    }
}
