//! The entries of the negative cache: a bounded table of refusals by bucket.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::key::{Key, Keys};
use super::refunds::Refunds;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::redisson::Sharing;
use tidegate_limit::{Algorithm, Wait};
use tidegate_rules::charge::{Charge, Decision, Limiter, Outcome};

const LOCK_SHARDS: usize = 64;

/// The maximum size of all entries, in bytes.
pub(super) const MAX_BYTES: usize = 20 << 20;

/// The maximum number of entries of a lock shard: 896. The capacity of a table is seven eighths of a power of two, and
/// it doubles if many entries are added and removed.
const MAX_PER_LOCK_SHARD: usize = {
    let buckets = MAX_BYTES / LOCK_SHARDS / (size_of::<Entry>() + 1);
    (1 << buckets.ilog2()) / 2 / 8 * 7
};

/// The interval at which a request asks the store about a bucket although a cached refusal is valid.
const RECHECK_EVERY: Duration = Duration::from_secs(1);

/// The time to live of refusals that no wait can change, because the cost exceeds the capacity of the bucket.
const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The maximum time to live for a shared limiter: other programs may release permits or change its rate.
const SHARED_TTL: Duration = Duration::from_millis(100);

/// All cached refusals.
#[derive(Debug)]
pub(super) struct Entries {
    lock_shards: Box<[Mutex<LockShard>]>,
    /// The number of entries.
    len: AtomicUsize,
    /// The number of refunds so far.
    generation: AtomicU64,
    keys: Keys,
}

/// The entries of some buckets, and the refunds of these buckets.
#[derive(Debug, Default)]
struct LockShard {
    entries: HashTable<Entry>,
    refunds: Refunds,
}

/// The number of refunds at some time. A refund makes earlier replies about its bucket obsolete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation(u64);

/// A refusal that the store has just returned.
#[derive(Debug)]
pub(super) struct Refused<'d> {
    /// The store's time of the decision.
    pub(super) decided_at: Timestamp,
    /// When the request was sent and when the reply arrived. The store decided in between.
    pub(super) sent_at: Instant,
    pub(super) received_at: Instant,
    pub(super) permits: u32,
    /// The longest delay that the request would have accepted, in milliseconds.
    pub(super) patience: u64,
    pub(super) decision: &'d Decision,
}

/// A cached refusal.
#[derive(Debug)]
struct Entry {
    key: Key,
    permits: u32,
    patience: u64,
    remaining: u32,
    /// Milliseconds; `None` if waiting cannot help.
    wait: Option<u64>,
    reset: u64,
    decided_at: Timestamp,
    sent_at: Instant,
    received_at: Instant,
    valid_until: Instant,
    recheck_at: Instant,
}

// === impl Entries ===

impl Default for Entries {
    fn default() -> Self {
        let lock_shards = (0..LOCK_SHARDS).map(|_| Mutex::default()).collect();
        Self { lock_shards, len: AtomicUsize::new(0), generation: AtomicU64::new(0), keys: Keys::default() }
    }
}

impl Entries {
    /// Returns `true` if there are no entries, which is usual and saves the lookup.
    pub(super) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Returns the cached refusals of these charges, at the store's time; `None` if the store has to be asked.
    pub(super) fn find(&self, charges: &[Charge], now: Instant) -> Option<Outcome> {
        let mut time = None;
        let mut decisions = Vec::with_capacity(charges.len());
        for charge in charges {
            let refusal = if charge.shadow { Ok(None) } else { self.find_charge(charge, now) };
            decisions.push(refusal.ok()?.map_or(Decision::UNKNOWN, |(present, decision)| {
                time = Some(present);
                decision
            }));
        }
        time.map(|now| Outcome::with_granted(now, decisions, false))
    }

    /// Returns `true` if this charge has a cached refusal.
    pub(super) fn refuses(&self, charge: &Charge) -> bool {
        if self.len.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let (key, now) = (self.keys.key_of(charge), Instant::now());
        let hash = self.keys.hash_of(&key);
        let lock_shard = self.lock_shard(hash).lock();
        lock_shard.entries.find(hash, |entry| entry.key == key).is_some_and(|entry| entry.refuses(charge, now))
    }

    /// Returns the cached refusal of a charge, if there is one. For a limit in shards, all shards must refuse, and the
    /// refusal with the shortest wait counts.
    ///
    /// # Errors
    /// The store should be asked again.
    fn find_charge(&self, charge: &Charge, now: Instant) -> Result<Option<(Timestamp, Decision)>, ()> {
        if charge.limiter.shards().is_empty() {
            return self.find_bucket(charge, now);
        }
        let mut first: Option<(Timestamp, Decision)> = None;
        for shard in 0..charge.limiter.shards().len() {
            let shard = u16::try_from(shard).ok();
            let Some((time, decision)) = self.find_bucket(&charge.on_shard(shard), now)? else { return Ok(None) };
            if first.is_none_or(|(_, first)| decision.wait < first.wait) {
                first = Some((time, Decision { shard, ..decision }));
            }
        }
        Ok(first)
    }

    /// Returns the cached refusal of a charge on one bucket, if there is one.
    ///
    /// # Errors
    /// The store should be asked again.
    fn find_bucket(&self, charge: &Charge, now: Instant) -> Result<Option<(Timestamp, Decision)>, ()> {
        let key = self.keys.key_of(charge);
        let hash = self.keys.hash_of(&key);
        let mut lock_shard = self.lock_shard(hash).lock();
        let Some(entry) = lock_shard.entries.find_mut(hash, |entry| entry.key == key) else { return Ok(None) };
        if !entry.refuses(charge, now) {
            return Ok(None);
        }
        if entry.recheck_at <= now {
            entry.recheck_at = now + RECHECK_EVERY;
            return Err(());
        }
        Ok(Some(entry.at(now, charge)))
    }

    /// Returns the number of refunds so far. To be read before the store is asked.
    pub(super) fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::SeqCst))
    }

    /// Adds a refusal, unless the bucket had a refund since the request was sent.
    pub(super) fn insert(&self, charge: &Charge, refused: &Refused<'_>, generation: Generation) {
        let Some(ttl) = cache_ttl(&charge.limiter, refused.decision) else { return };
        let key = self.keys.key_of(charge);
        let hash = self.keys.hash_of(&key);
        let mut lock_shard = self.lock_shard(hash).lock();
        let existing = lock_shard.entries.find(hash, |entry| entry.key == key);
        let existing = existing.map(|entry| entry.valid_until <= refused.received_at || entry.is_within(refused));
        let is_obsolete = lock_shard.refunds.is_newer(&key, hash, generation.0);
        if is_obsolete || !self.has_capacity(&mut lock_shard.entries, existing, refused) {
            return;
        }
        let place = lock_shard.entries.entry(hash, |entry| entry.key == key, |entry| self.keys.hash_of(&entry.key));
        if let TableEntry::Vacant(_) = place {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        place.insert(Entry::new(key, refused, ttl));
    }

    /// Returns `true` if this refusal may be added. `existing` states whether it may replace the refusal of its bucket.
    fn has_capacity(&self, lock_shard: &mut HashTable<Entry>, existing: Option<bool>, refused: &Refused<'_>) -> bool {
        if let Some(may_replace) = existing {
            return may_replace;
        }
        if lock_shard.len() >= MAX_PER_LOCK_SHARD {
            let before = lock_shard.len();
            lock_shard.retain(|entry| entry.valid_until > refused.received_at);
            self.len.fetch_sub(before - lock_shard.len(), Ordering::Relaxed);
        }
        lock_shard.len() < MAX_PER_LOCK_SHARD
    }

    /// Removes the entries of charges that the store has granted. Keeps entries of requests that were sent later.
    pub(super) fn remove_granted<'c>(&self, charges: impl Iterator<Item = &'c Charge>, sent_at: Instant) {
        if self.is_empty() {
            return;
        }
        for charge in charges {
            let key = self.keys.key_of(charge);
            let hash = self.keys.hash_of(&key);
            let mut lock_shard = self.lock_shard(hash).lock();
            self.remove_if(&mut lock_shard, &key, hash, |entry| entry.covers(charge) && entry.sent_at <= sent_at);
        }
    }

    /// Records refunds of these charges, and removes the entries of their buckets. No other bucket is affected.
    pub(super) fn remove_refunded<'c>(&self, charges: impl Iterator<Item = &'c Charge>) {
        let number = self.next_refund();
        for charge in charges {
            let key = self.keys.key_of(charge);
            let hash = self.keys.hash_of(&key);
            let mut lock_shard = self.lock_shard(hash).lock();
            lock_shard.refunds.add(key, hash, number, |key| self.keys.hash_of(key));
            self.remove_if(&mut lock_shard, &key, hash, |_| true);
        }
    }

    /// Removes all entries, as if all buckets had a refund.
    pub(super) fn clear(&self) {
        let number = self.next_refund();
        for lock_shard in &self.lock_shards {
            let mut lock_shard = lock_shard.lock();
            lock_shard.refunds.add_for_all(number);
            self.len.fetch_sub(lock_shard.entries.len(), Ordering::Relaxed);
            lock_shard.entries.clear();
        }
    }

    fn next_refund(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn remove_if(&self, lock_shard: &mut LockShard, key: &Key, hash: u64, which: impl Fn(&Entry) -> bool) {
        if let Ok(found) = lock_shard.entries.find_entry(hash, |entry| entry.key == *key && which(entry)) {
            found.remove();
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the shard of a hash, by bits that the tables do not use.
    fn lock_shard(&self, hash: u64) -> &Mutex<LockShard> {
        &self.lock_shards[usize::try_from(hash >> 32).unwrap_or_default() % LOCK_SHARDS]
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let len = self.lock_shards.iter().map(|lock_shard| lock_shard.lock().entries.len()).sum();
        assert_eq!(self.len.load(Ordering::Relaxed), len);
        len
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let bytes = |lock_shard: &LockShard| lock_shard.entries.allocation_size() + lock_shard.refunds.bytes();
        self.lock_shards.iter().map(|lock_shard| bytes(&lock_shard.lock())).sum()
    }
}

/// Returns how long a refusal is cached, from the time of the request; `None` if it is not cached. One millisecond
/// less than the wait, since the store decided at an unknown point of its millisecond.
fn cache_ttl(limiter: &Limiter, decision: &Decision) -> Option<Duration> {
    let ttl = match decision.wait {
        Wait::Now | Wait::Millis(0 | 1) => return None,
        Wait::Millis(wait) => Duration::from_millis(wait - 1),
        Wait::Never => MAX_TTL,
    };
    match limiter.quota.algorithm() {
        Algorithm::Redisson(Sharing::Library) => None,
        Algorithm::Redisson(_) => Some(ttl.min(SHARED_TTL)),
        // Any gateway can settle a reservation.
        _ if limiter.budget.is_some() => Some(ttl.min(SHARED_TTL)),
        _ => Some(ttl),
    }
}

// === impl Entry ===

impl Entry {
    fn new(key: Key, refused: &Refused<'_>, ttl: Duration) -> Self {
        let Refused { decided_at, sent_at, received_at, permits, patience, decision } = *refused;
        let wait = match decision.wait {
            Wait::Millis(wait) => Some(wait),
            Wait::Now | Wait::Never => None,
        };
        let (valid_until, recheck_at) = (sent_at + ttl, sent_at + RECHECK_EVERY);
        let Decision { remaining, reset, .. } = *decision;
        Self {
            key,
            permits,
            patience,
            remaining,
            wait,
            reset,
            decided_at,
            sent_at,
            received_at,
            valid_until,
            recheck_at,
        }
    }

    fn refuses(&self, charge: &Charge, now: Instant) -> bool {
        self.covers(charge) && now < self.valid_until
    }

    /// Returns `true` if a charge is refused while the entry is valid: it needs at least as many permits, at least as
    /// early.
    fn covers(&self, charge: &Charge) -> bool {
        charge.permits >= self.permits && charge.patience() <= self.patience
    }

    /// Returns `true` if a refusal covers all charges that this entry covers.
    fn is_within(&self, refused: &Refused<'_>) -> bool {
        self.permits >= refused.permits && self.patience <= refused.patience
    }

    /// Returns the least possible time of the store's clock, and the refusal of a charge at that time. Counts from the
    /// arrival of the reply, so that a client that waits as long as reported is not too early.
    fn at(&self, now: Instant, charge: &Charge) -> (Timestamp, Decision) {
        let passed = u64::try_from(now.saturating_duration_since(self.received_at).as_millis()).unwrap_or(u64::MAX);
        let earlier = self.patience - charge.patience().min(self.patience);
        let wait = self.wait.map_or(Wait::Never, |wait| Wait::Millis(wait.saturating_sub(passed).max(1) + earlier));
        let decision = Decision::new(self.remaining, wait, self.reset.saturating_sub(passed));
        (self.decided_at.plus_millis(passed), decision)
    }
}
