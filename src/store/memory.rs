//! The embedded store: buckets in this process.
//!
//! Buckets live in shards, each under a lock of its own. A decision holds the locks of all shards that it touches, taken
//! in ascending order so that two decisions never wait for each other. The number of buckets is bounded: full ones are
//! swept out as a shard grows, and at the cap a new bucket is refused rather than one in use forgotten.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::StoreError;
use super::settings::KeySecret;
use crate::clock::{Clock, Timestamp};
use crate::limit::{Charge, ClientId, Decision, Outcome, Quota, State, live_granted};

const SHARDS: usize = 64;

/// Buckets that all shards hold together at most; a bucket that was used once takes some 200 bytes.
const MAX_BUCKETS: usize = 1 << 21;

/// Shards smaller than this are not swept.
const SMALL: usize = 256;

/// Buckets in this process.
#[derive(Debug)]
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    clock: Arc<dyn Clock>,
    secret: KeySecret,
}

#[derive(Debug)]
struct Shard {
    buckets: HashMap<u128, Bucket>,
    sweep_at: usize,
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
    /// An empty store. Without a secret it makes one up.
    pub fn new(clock: Arc<dyn Clock>, secret: Option<KeySecret>) -> Self {
        let shard = || Mutex::new(Shard { buckets: HashMap::new(), sweep_at: SMALL });
        let shards = (0..SHARDS).map(|_| shard()).collect();
        Self { shards, clock, secret: secret.unwrap_or_else(KeySecret::random) }
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
    /// [`StoreError::Full`], at the cap of buckets.
    pub fn take_at(&self, charges: &[Charge], now: Timestamp) -> Result<Outcome, StoreError> {
        let places: Vec<Place> = charges.iter().map(|charge| self.place(charge)).collect();
        let mut locked = self.lock(&places);
        let judge = |(charge, place): (&Charge, &Place)| locked.shard(*place).check(place.key, charge, now);
        let mut decisions: Vec<Decision> = charges.iter().zip(&places).map(judge).collect();
        let granted = live_granted(charges, &decisions);
        if granted {
            for (charge, place) in charges.iter().zip(&places).filter(|(charge, _)| !charge.shadow) {
                locked.shard(*place).make_room(place.key, charge, now)?;
            }
        }
        for ((charge, place), decision) in charges.iter().zip(&places).zip(&mut decisions) {
            let shard = locked.shard(*place);
            if !(granted && decision.granted) {
                shard.settle(place.key, charge, now);
            } else if !charge.shadow || shard.make_room(place.key, charge, now).is_ok() {
                // A shadow that finds no room is not remembered; that is no reason to refuse anybody.
                *decision = shard.charge(place.key, charge, now);
            }
        }
        Ok(Outcome::new(now, decisions, charges))
    }

    /// Gives back what charges took at `granted_at`; what has returned by itself is left alone.
    pub fn give_back(&self, charges: &[Charge], granted_at: Timestamp) {
        self.give_back_at(charges, granted_at, self.clock.now());
    }

    /// Gives back what charges took at `granted_at`, as if the clock showed `now`.
    pub fn give_back_at(&self, charges: &[Charge], granted_at: Timestamp, now: Timestamp) {
        for charge in charges {
            let Place { shard, key } = self.place(charge);
            if let Some(bucket) = self.shards[shard].lock().buckets.get_mut(&key) {
                bucket.state.give_back(&charge.limiter.quota, charge.permits, granted_at, now);
            }
        }
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
    fn make_room(&mut self, key: u128, charge: &Charge, now: Timestamp) -> Result<(), StoreError> {
        if charge.permits == 0 || self.buckets.contains_key(&key) {
            return Ok(());
        }
        if self.buckets.len() >= self.sweep_at {
            self.buckets.retain(|_, bucket| bucket.state.full_at(&bucket.quota) > now);
            self.sweep_at = (self.buckets.len() * 2).clamp(SMALL, MAX_BUCKETS / SHARDS);
        }
        if self.buckets.len() >= MAX_BUCKETS / SHARDS { Err(StoreError::Full) } else { Ok(()) }
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
            bucket.state.settle(&charge.limiter.quota, now);
        }
    }
}
