//! The entries of the negative cache: a bounded table, keyed by buckets. A client that is known by an address is in its key as it
//! is, any other as a hash.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::hash_table::Entry as Slot;
use hashbrown::{DefaultHashBuilder, HashTable};
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::Known;
use crate::clock::Timestamp;
use crate::limit::foreign::Sharing;
use crate::limit::{Algorithm, Charge, ClientId, Decision, Limiter, Outcome, Wait};

const SHARDS: usize = 64;

/// The most bytes of all entries.
pub(super) const MAX_BYTES: usize = 20 << 20;

/// The most entries of a shard: 896. A table has a power of two of slots, fills seven of eight of them, and doubles when many
/// entries come and go.
const SHARD: usize = {
    let slots = MAX_BYTES / SHARDS / (size_of::<Entry>() + 1);
    (1 << slots.ilog2()) / 2 / 8 * 7
};

/// How often the store is asked again about a bucket whose refusal still holds.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How long a cost above the capacity of a bucket is cached. It is refused as long as the rule is in force.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a refusal of a shared limiter is cached: its other users may release permits, or change its rate.
const OF_SHARED: Duration = Duration::from_millis(100);

/// All cached refusals.
#[derive(Debug)]
pub(super) struct Entries {
    shards: Box<[Mutex<HashTable<Entry>>]>,
    /// How many entries there are.
    len: AtomicUsize,
    generation: AtomicU64,
    /// Of values that clients choose: two, with random keys. Together they are a hash of 128 bits, on which clients cannot produce
    /// collisions.
    hashers: [RandomState; 2],
    /// Finds a key in its table. A fast hash with a random seed is enough, since keys are compared and a table is small.
    finder: DefaultHashBuilder,
}

/// Counts the events that make earlier answers of the store obsolete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation(u64);

/// A refusal that the store has just answered.
#[derive(Debug)]
pub(super) struct Refused<'d> {
    /// The store's clock at the decision.
    pub(super) said: Timestamp,
    /// When the store was asked, and when it had answered; it decided in between.
    pub(super) asked: Instant,
    pub(super) heard: Instant,
    pub(super) permits: u32,
    pub(super) decision: &'d Decision,
}

/// A bucket: the address of its limiter, and its client. It holds nothing that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    limiter: usize,
    /// An address, or the hash of another identity.
    client: u128,
    /// What of these it is, and the length of an address's prefix.
    kind: (u8, u8),
}

/// A cached refusal.
#[derive(Debug)]
struct Entry {
    key: Key,
    #[expect(dead_code, reason = "keeps its address, which is part of the key, from being reused")]
    limiter: Arc<Limiter>,
    permits: u32,
    remaining: u32,
    /// Milliseconds; `None` if waiting cannot help.
    wait: Option<u64>,
    reset: u64,
    said: Timestamp,
    asked: Instant,
    heard: Instant,
    until: Instant,
    ask_again: Instant,
}

// === impl Entries ===

impl Default for Entries {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let hashers = [RandomState::new(), RandomState::new()];
        let (len, generation, finder) = (AtomicUsize::new(0), AtomicU64::new(0), DefaultHashBuilder::default());
        Self { shards, len, generation, hashers, finder }
    }
}

impl Entries {
    /// Are there none? So it is mostly, which saves the lookup.
    pub(super) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// The cached refusal of these charges, with the store's time; `None` if the store has to be asked.
    pub(super) fn known(&self, charges: &[Charge], now: Instant) -> Option<Known> {
        let mut time = None;
        let mut decisions = Vec::with_capacity(charges.len());
        for charge in charges {
            let known = if charge.shadow { Ok(None) } else { self.of_all(charge, now) };
            decisions.push(known.ok()?.map(|(present, decision)| {
                time = Some(present);
                decision
            }));
        }
        time.map(|now| Known { now, decisions })
    }

    /// Is there a refusal of this charge?
    pub(super) fn refuses(&self, charge: &Charge) -> bool {
        if self.len.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let (key, now) = (self.key(charge), Instant::now());
        let slot = self.slot(&key);
        let shard = self.shard(slot).lock();
        shard.find(slot, |entry| entry.key == key).is_some_and(|entry| entry.refuses(charge.permits, now))
    }

    /// The cached refusal of one charge; of one on a limit in shards, that of the shard that grants it first.
    ///
    /// # Errors
    /// It is time to ask the store again.
    fn of_all(&self, charge: &Charge, now: Instant) -> Result<Option<(Timestamp, Decision)>, ()> {
        if charge.limiter.shards().is_empty() {
            return self.of(charge, now);
        }
        let mut first: Option<(Timestamp, Decision)> = None;
        for shard in 0..charge.limiter.shards().len() {
            let shard = u16::try_from(shard).ok();
            let Some((time, decision)) = self.of(&charge.on_shard(shard), now)? else { return Ok(None) };
            if first.is_none_or(|(_, first)| decision.wait < first.wait) {
                first = Some((time, Decision { shard, ..decision }));
            }
        }
        Ok(first)
    }

    /// The cached refusal of one charge, if there is one.
    ///
    /// # Errors
    /// It is time to ask the store again.
    fn of(&self, charge: &Charge, now: Instant) -> Result<Option<(Timestamp, Decision)>, ()> {
        let key = self.key(charge);
        let slot = self.slot(&key);
        let mut shard = self.shard(slot).lock();
        let Some(entry) = shard.find_mut(slot, |entry| entry.key == key) else { return Ok(None) };
        if !entry.refuses(charge.permits, now) {
            return Ok(None);
        }
        if entry.ask_again <= now {
            entry.ask_again = now + ASK_AGAIN;
            return Err(());
        }
        Ok(Some(entry.at(now)))
    }

    /// The present generation; to be read before the store is asked.
    pub(super) fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::SeqCst))
    }

    /// Adds a refusal, unless the generation has changed since the store was asked.
    pub(super) fn remember(&self, charge: &Charge, refused: &Refused<'_>, generation: Generation) {
        let Some(lasts) = lasts(&charge.limiter, refused.decision) else { return };
        let key = self.key(charge);
        let slot = self.slot(&key);
        let mut shard = self.shard(slot).lock();
        let known = shard.find(slot, |entry| entry.key == key).map(|entry| (entry.permits, entry.until));
        if generation != self.generation() || !self.makes_space(&mut shard, known, refused) {
            return;
        }
        let place = shard.entry(slot, |entry| entry.key == key, |entry| self.slot(&entry.key));
        if let Slot::Vacant(_) = place {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        place.insert(Entry::new(key, &charge.limiter, refused, lasts));
    }

    /// May this refusal be added? One of fewer permits is kept over one of more, since it refuses more requests.
    fn makes_space(&self, shard: &mut HashTable<Entry>, known: Option<(u32, Instant)>, refused: &Refused<'_>) -> bool {
        if let Some((least, until)) = known {
            return least >= refused.permits || until <= refused.heard;
        }
        if shard.len() >= SHARD {
            let before = shard.len();
            shard.retain(|entry| entry.until > refused.heard);
            self.len.fetch_sub(before - shard.len(), Ordering::Relaxed);
        }
        shard.len() < SHARD
    }

    /// Removes the entries of charges that the store has granted, or may have (no outcome). Entries of requests that asked
    /// later stay.
    pub(super) fn answered(&self, charges: &[Charge], asked: Instant, outcome: Option<&Outcome>) {
        if self.is_empty() {
            return;
        }
        let refused = |index: usize| outcome.is_some_and(|outcome| !outcome.decisions[index].granted);
        for (_, charge) in charges.iter().enumerate().filter(|(index, _)| !refused(*index)) {
            self.remove_if(charge, |entry| entry.permits <= charge.permits && entry.asked <= asked);
        }
    }

    /// Removes the entries of these charges, and begins a new generation: permits are given back.
    pub(super) fn forget<'c>(&self, charges: impl Iterator<Item = &'c Charge>) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        charges.for_each(|charge| self.remove_if(charge, |_| true));
    }

    /// Removes all entries, and begins a new generation.
    pub(super) fn forget_all(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        for shard in &self.shards {
            let mut shard = shard.lock();
            self.len.fetch_sub(shard.len(), Ordering::Relaxed);
            shard.clear();
        }
    }

    fn remove_if(&self, charge: &Charge, which: impl Fn(&Entry) -> bool) {
        let key = self.key(charge);
        let slot = self.slot(&key);
        let mut shard = self.shard(slot).lock();
        if let Ok(known) = shard.find_entry(slot, |entry| entry.key == key && which(entry)) {
            known.remove();
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The bucket of a charge.
    fn key(&self, charge: &Charge) -> Key {
        let (kind, client) = match &charge.client {
            None => ((0, 0), 0),
            Some(ClientId::Address(IpNet::V4(network))) => ((1, network.prefix_len()), network.addr().to_bits().into()),
            Some(ClientId::Address(IpNet::V6(network))) => ((2, network.prefix_len()), network.addr().to_bits()),
            Some(ClientId::Value(value)) => ((3, 0), self.hash(value)),
            Some(ClientId::Instance(id)) => ((4, 0), self.hash(id.as_bytes())),
        };
        Key { limiter: Arc::as_ptr(&charge.limiter).addr(), client, kind }
    }

    /// A keyed hash of what a client chooses.
    fn hash(&self, bytes: &[u8]) -> u128 {
        let [high, low] = self.hashers.each_ref().map(|hasher| {
            let mut hasher = hasher.build_hasher();
            hasher.write(bytes);
            u128::from(hasher.finish())
        });
        high << 64 | low
    }

    /// Where a key is looked for.
    fn slot(&self, key: &Key) -> u64 {
        let mut finder = self.finder.build_hasher();
        finder.write_u128(key.client);
        finder.write_u64(key.limiter as u64 ^ u64::from(u16::from_le_bytes(key.kind.into())) << 48);
        finder.finish()
    }

    /// By bits that the tables do not use.
    fn shard(&self, slot: u64) -> &Mutex<HashTable<Entry>> {
        &self.shards[usize::try_from(slot >> 32).unwrap_or_default() % SHARDS]
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let len = self.shards.iter().map(|shard| shard.lock().len()).sum();
        assert_eq!(self.len.load(Ordering::Relaxed), len);
        len
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().allocation_size()).sum()
    }
}

/// How long a refusal holds after the store was asked; `None` if it is not cached. One millisecond less than the wait, since
/// the store's clock may have been late in its millisecond.
fn lasts(limiter: &Limiter, decision: &Decision) -> Option<Duration> {
    let lasts = match decision.wait {
        Wait::Now | Wait::Millis(0 | 1) => return None,
        Wait::Millis(wait) => Duration::from_millis(wait - 1),
        Wait::Never => NEVER,
    };
    match limiter.quota.algorithm() {
        Algorithm::Foreign(Sharing::Library) => None,
        Algorithm::Foreign(_) => Some(lasts.min(OF_SHARED)),
        _ => Some(lasts),
    }
}

// === impl Entry ===

impl Entry {
    fn new(key: Key, limiter: &Arc<Limiter>, refused: &Refused<'_>, lasts: Duration) -> Self {
        let Refused { said, asked, heard, permits, decision } = *refused;
        let wait = match decision.wait {
            Wait::Millis(wait) => Some(wait),
            Wait::Now | Wait::Never => None,
        };
        let limiter = Arc::clone(limiter);
        let (until, ask_again) = (asked + lasts, asked + ASK_AGAIN);
        let Decision { remaining, reset, .. } = *decision;
        Self { key, limiter, permits, remaining, wait, reset, said, asked, heard, until, ask_again }
    }

    fn refuses(&self, permits: u32, now: Instant) -> bool {
        permits >= self.permits && now < self.until
    }

    /// The least that the store's clock can show now, and the refusal at that time. Counted from the arrival of the answer,
    /// so that a client that waits as long as told is not too early.
    fn at(&self, now: Instant) -> (Timestamp, Decision) {
        let passed = u64::try_from(now.saturating_duration_since(self.heard).as_millis()).unwrap_or(u64::MAX);
        let wait = self.wait.map_or(Wait::Never, |wait| Wait::Millis(wait.saturating_sub(passed).max(1)));
        let decision = Decision::new(self.remaining, wait, self.reset.saturating_sub(passed));
        (self.said.plus_millis(passed), decision)
    }
}
