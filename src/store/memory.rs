//! The embedded store: buckets in this process.
//!
//! Buckets live in shards, each under a lock of its own. A decision holds the locks of all shards that it touches, taken
//! in ascending order so that two decisions never wait for each other. The number of buckets is bounded: full ones are
//! swept out as a shard grows, and at the cap a new bucket is refused rather than one in use forgotten.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::StoreError;
use super::registry::Registry;
use super::settings::KeySecret;
use crate::clock::{Clock, Timestamp};
use crate::limit::{Charge, ClientId, Decision, Granted, Outcome, Quota, State, live_granted};

const SHARDS: usize = 64;

/// Buckets that all shards hold together at most, unless told otherwise; one that was used once takes some 200 bytes.
const MAX_BUCKETS: usize = 1 << 21;

/// How long sweeping is not tried again where it made no room, in milliseconds.
const CROWDED: u64 = 250;

/// Shards smaller than this are not swept.
const SMALL: usize = 256;

/// Buckets in this process.
#[derive(Debug)]
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    clock: Arc<dyn Clock>,
    secret: KeySecret,
    /// Buckets that a shard holds at most.
    most: usize,
    limiters: Registry,
}

#[derive(Debug)]
struct Shard {
    buckets: HashMap<u128, Bucket>,
    /// How many buckets it may grow to before it is swept.
    sweep_at: usize,
    /// Until when it is known that sweeping makes no room.
    crowded_until: Timestamp,
}

#[derive(Debug)]
struct Bucket {
    state: State,
    quota: Quota,
}

/// Where a charge's bucket is.
#[derive(Clone, Copy, Debug)]
struct Place {
    shard: usize,
    key: u128,
}

/// The locked shards of one decision.
struct Locked<'m>(Vec<(usize, MutexGuard<'m, Shard>)>);

// === impl Memory ===

impl Memory {
    /// An empty store of at most two million buckets. Without a secret it makes one up.
    pub fn new(clock: Arc<dyn Clock>, secret: Option<KeySecret>) -> Self {
        Self::bounded(clock, secret, MAX_BUCKETS)
    }

    /// An empty store of at most so many buckets. They are spread over 64 shards, each of which holds its part of them.
    pub fn bounded(clock: Arc<dyn Clock>, secret: Option<KeySecret>, most: usize) -> Self {
        let shard =
            || Mutex::new(Shard { buckets: HashMap::new(), sweep_at: SMALL, crowded_until: Timestamp::default() });
        let shards = (0..SHARDS).map(|_| shard()).collect();
        let secret = secret.unwrap_or_else(KeySecret::random);
        Self { shards, clock, secret, most: most.div_ceil(SHARDS), limiters: Registry::default() }
    }

    /// Makes all live charges or none, at the clock's present, and each shadow charge that goes with them.
    ///
    /// # Errors
    /// [`StoreError::Full`], at the cap of buckets.
    pub fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        self.take_at(charges, self.clock.now())
    }

    /// Makes all live charges or none at `now`, and each shadow charge that goes with them.
    ///
    /// # Errors
    /// [`StoreError::Full`], at the cap of buckets; [`StoreError::NotInitialised`] for a limiter that only Redis knows.
    pub fn take_at(&self, charges: &[Charge], now: Timestamp) -> Result<Outcome, StoreError> {
        if charges.iter().any(|charge| charge.limiter.quota.is_adopted()) {
            return Err(StoreError::NotInitialised);
        }
        let places: Vec<Place> = charges.iter().map(|charge| self.place(charge)).collect();
        let mut locked = self.lock(&places);
        let judge = |(charge, place): (&Charge, &Place)| locked.shard(*place).check(place.key, charge, now);
        let mut decisions: Vec<Decision> = charges.iter().zip(&places).map(judge).collect();
        let granted = live_granted(charges, &decisions);
        if granted {
            for (charge, place) in charges.iter().zip(&places).filter(|(charge, _)| !charge.shadow) {
                locked.shard(*place).make_room(place.key, charge, now, self.most)?;
            }
        }
        for ((charge, place), decision) in charges.iter().zip(&places).zip(&mut decisions) {
            let shard = locked.shard(*place);
            if !(granted && decision.granted) {
                shard.settle(place.key, charge, now);
            } else if !charge.shadow || shard.make_room(place.key, charge, now, self.most).is_ok() {
                // A shadow that finds no room is not remembered; that is no reason to refuse anybody.
                *decision = shard.charge(place.key, charge, now);
            }
        }
        Ok(Outcome::new(now, decisions, charges))
    }

    /// Gives back what was granted; what has returned by itself is left alone.
    pub fn give_back(&self, granted: &[Granted]) {
        self.give_back_at(granted, self.clock.now());
    }

    /// Gives back what was granted, as if the clock showed `now`.
    pub fn give_back_at(&self, granted: &[Granted], now: Timestamp) {
        for Granted { charge, at } in granted {
            let Place { shard, key } = self.place(charge);
            if let Some(bucket) = self.shards[shard].lock().buckets.get_mut(&key) {
                bucket.state.give_back(&charge.limiter.quota, charge.permits, *at, now);
            }
        }
    }

    /// The limiters of the library, and the present.
    pub(super) fn limiters(&self) -> (&Registry, Timestamp) {
        (&self.limiters, self.clock.now())
    }

    /// How many buckets are kept at present.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().buckets.len()).sum()
    }

    /// Is no bucket kept?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn place(&self, charge: &Charge) -> Place {
        let mut name = Vec::with_capacity(128);
        name.extend_from_slice(&(charge.limiter.name.len() as u64).to_le_bytes());
        name.extend_from_slice(charge.limiter.name.as_bytes());
        name.extend_from_slice(charge.limiter.quota.algorithm().name().as_bytes());
        match &charge.client {
            None => {}
            Some(ClientId::Address(network)) => {
                name.push(b'a');
                name.extend_from_slice(network.to_string().as_bytes());
            }
            Some(ClientId::Value(value)) => {
                name.push(b'v');
                name.extend_from_slice(value);
            }
            Some(ClientId::Instance(id)) => {
                name.push(b'n');
                name.extend_from_slice(id.as_bytes());
            }
        }
        let key = self.secret.hash(&name);
        let [.., last] = key.to_le_bytes();
        Place { shard: usize::from(last) % SHARDS, key }
    }

    fn lock(&self, places: &[Place]) -> Locked<'_> {
        let mut shards: Vec<usize> = places.iter().map(|place| place.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        Locked(shards.into_iter().map(|shard| (shard, self.shards[shard].lock())).collect())
    }
}

// === impl Locked ===

impl Locked<'_> {
    fn shard(&mut self, place: Place) -> &mut Shard {
        let found = self.0.iter().position(|(shard, _)| *shard == place.shard);
        let position = found.unwrap_or_default();
        &mut self.0[position].1
    }
}

// === impl Shard ===

impl Shard {
    fn check(&self, key: u128, charge: &Charge, now: Timestamp) -> Decision {
        let (quota, permits) = (&charge.limiter.quota, charge.permits);
        match self.buckets.get(&key) {
            Some(bucket) => bucket.state.check(quota, permits, now),
            None => State::empty(quota).check(quota, permits, now),
        }
    }

    /// Sees to it that there is a place for the bucket before anything is charged.
    fn make_room(&mut self, key: u128, charge: &Charge, now: Timestamp, most: usize) -> Result<(), StoreError> {
        if charge.permits == 0 || self.buckets.contains_key(&key) {
            return Ok(());
        }
        if self.buckets.len() >= self.sweep_at.min(most) && now >= self.crowded_until {
            self.sweep(now, most);
        }
        if self.buckets.len() >= most { Err(StoreError::Full) } else { Ok(()) }
    }

    /// Forgets buckets that are full again. Where that makes no room it is not tried again for a while, so that a flood of
    /// new clients costs no more than their refusals.
    fn sweep(&mut self, now: Timestamp, most: usize) {
        self.buckets.retain(|_, bucket| bucket.state.full_at(&bucket.quota) > now);
        self.sweep_at = (self.buckets.len() * 2).max(SMALL);
        if self.buckets.len() >= most {
            if self.crowded_until == Timestamp::default() {
                tracing::warn!(buckets = most, "a part of the embedded store is full of buckets in use");
            }
            self.crowded_until = now.plus_millis(CROWDED);
        } else {
            self.crowded_until = Timestamp::default();
        }
    }

    fn charge(&mut self, key: u128, charge: &Charge, now: Timestamp) -> Decision {
        let quota = charge.limiter.quota;
        if charge.permits == 0 {
            return self.check(key, charge, now);
        }
        let empty = || Bucket { state: State::empty(&quota), quota };
        let bucket = self.buckets.entry(key).or_insert_with(empty);
        bucket.quota = quota;
        bucket.state.charge(&quota, charge.permits, now)
    }

    fn settle(&mut self, key: u128, charge: &Charge, now: Timestamp) {
        if let Some(bucket) = self.buckets.get_mut(&key) {
            bucket.quota = charge.limiter.quota;
            bucket.state.settle(&bucket.quota, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::limit::{Algorithm, Limiter, Mode};

    fn charge(client: u32) -> Charge {
        let quota = Quota::new(1, 10_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter { name: "l".into(), mode: Mode::PerClient, quota });
        Charge { limiter, client: Some(ClientId::Value(client.to_le_bytes().into())), permits: 1, shadow: false }
    }

    #[test]
    fn at_its_cap_the_store_forgets_full_buckets_and_none_in_use() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
        let memory = Memory::bounded(Arc::clone(&clock) as Arc<dyn Clock>, None, 640);
        let granted = |client| memory.take(&[charge(client)]).map(|outcome| outcome.granted());
        let taken: Vec<u32> = (0..2_000).filter(|client| granted(*client) == Ok(true)).collect();
        assert_eq!(memory.len(), taken.len());
        assert!((320..=640).contains(&taken.len()), "{} buckets", taken.len());
        assert_eq!(granted(2_001), Err(StoreError::Full));
        assert!(taken.iter().all(|client| granted(*client) == Ok(false)), "a bucket in use was forgotten");

        clock.advance_millis(10_000);
        assert_eq!(granted(2_001), Ok(true), "full buckets were kept");
    }

    #[test]
    fn unused_buckets_are_swept_out_while_others_come() {
        let clock = Arc::new(ManualClock::default());
        let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>, None);
        for client in 0..200_000 {
            clock.advance_millis(10);
            assert!(memory.take(&[charge(client)]).expect("room").granted());
        }
        // A thousand are in use at a time; a shard is swept when it has grown to twice what it kept.
        assert!(memory.len() <= 64 * SMALL, "{} buckets", memory.len());
    }
}
