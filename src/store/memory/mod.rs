//! The embedded store: buckets in this process.
//!
//! Buckets live in shards, each under a lock of its own. A decision holds the locks of all shards that it touches, taken
//! in ascending order so that two decisions never wait for each other. The number of buckets is bounded: full ones are
//! swept out as a shard grows, and at the cap a new bucket is refused rather than one in use forgotten.

mod place;
mod shard;

use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use self::place::Place;
use self::shard::Shard;
use super::StoreError;
use super::registry::Registry;
use super::settings::KeySecret;
use crate::clock::{Clock, Timestamp};
use crate::limit::{Charge, Decision, Granted, Outcome, live_granted};

const SHARDS: usize = 64;

/// Buckets that all shards hold together at most, unless told otherwise; one that was used once takes some 300 bytes.
const MAX_BUCKETS: usize = 1 << 21;

/// Limits of one decision that need no memory of their own.
const FEW: usize = 4;

/// Buckets in this process.
#[derive(Debug)]
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    clock: Arc<dyn Clock>,
    /// Tells buckets apart in their tables; nobody outside knows it, so nobody can fill one slot of a table.
    hasher: DefaultHashBuilder,
    secret: KeySecret,
    /// Buckets that a shard holds at most.
    most: usize,
    limiters: Registry,
}

/// The locked shards of one decision.
struct Locked<'m>(SmallVec<[(usize, MutexGuard<'m, Shard>); FEW]>);

// === impl Memory ===

impl Memory {
    /// An empty store of at most two million buckets. Without a secret it makes one up.
    pub fn new(clock: Arc<dyn Clock>, secret: Option<KeySecret>) -> Self {
        Self::bounded(clock, secret, MAX_BUCKETS)
    }

    /// An empty store of at most so many buckets. They are spread over 64 shards, each of which holds its part of them.
    pub fn bounded(clock: Arc<dyn Clock>, secret: Option<KeySecret>, most: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let secret = secret.unwrap_or_else(KeySecret::random);
        let (hasher, limiters) = (DefaultHashBuilder::default(), Registry::default());
        Self { shards, clock, hasher, secret, most: most.div_ceil(SHARDS), limiters }
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
        let places: SmallVec<[Place<'_>; FEW]> = charges.iter().map(|charge| self.place(charge)).collect();
        let mut locked = self.lock(&places);
        let mut decisions: Vec<Decision> = places.iter().map(|place| locked.shard(place).check(place, now)).collect();
        let granted = live_granted(charges, &decisions);
        if granted {
            for place in places.iter().filter(|place| !place.charge.shadow) {
                locked.shard(place).make_room(place, now, self.most)?;
            }
        }
        for (place, decision) in places.iter().zip(&mut decisions) {
            let shard = locked.shard(place);
            if !(granted && decision.granted) {
                shard.settle(place, now);
            } else if !place.charge.shadow || shard.make_room(place, now, self.most).is_ok() {
                // A shadow that finds no room is not remembered; that is no reason to refuse anybody.
                *decision = shard.charge(place, now);
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
            let place = self.place(charge);
            self.shards[place.shard()].lock().give_back(&place, *at, now);
        }
    }

    /// The limiters of the library, and the present.
    pub(super) fn limiters(&self) -> (&Registry, Timestamp) {
        (&self.limiters, self.clock.now())
    }

    /// How many buckets are kept at present.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Is no bucket kept?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn place<'c>(&self, charge: &'c Charge) -> Place<'c> {
        Place::of(charge, &self.hasher, &self.secret)
    }

    fn lock(&self, places: &[Place<'_>]) -> Locked<'_> {
        let mut shards: SmallVec<[usize; FEW]> = places.iter().map(Place::shard).collect();
        shards.sort_unstable();
        shards.dedup();
        Locked(shards.into_iter().map(|shard| (shard, self.shards[shard].lock())).collect())
    }
}

// === impl Locked ===

impl Locked<'_> {
    fn shard(&mut self, place: &Place<'_>) -> &mut Shard {
        let found = self.0.iter().position(|(shard, _)| *shard == place.shard());
        let position = found.unwrap_or_default();
        &mut self.0[position].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::limit::{Algorithm, ClientId, Limiter, Mode, Quota};

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
    fn a_bucket_is_a_name_an_algorithm_and_a_client() {
        let memory = Memory::new(Arc::new(ManualClock::default()), None);
        let left = |name: &str, algorithm, client: Option<ClientId>| {
            let quota = Quota::new(10, 10_000, algorithm).expect("a quota");
            let mode = if client.is_some() { Mode::PerClient } else { Mode::Overall };
            let limiter = Arc::new(Limiter { name: name.into(), mode, quota });
            let charge = Charge { limiter, client, permits: 1, shadow: false };
            memory.take(&[charge]).expect("room").decisions[0].remaining
        };
        let address = |text: &str| Some(ClientId::Address(text.parse().expect("a network")));
        let value = |value: &[u8]| Some(ClientId::Value(value.into()));
        let clients = [
            None,
            address("192.0.2.1/32"),
            address("192.0.2.2/32"),
            address("2001:db8::/64"),
            address("2001:db8::/63"),
            value(b"a"),
            value(b"b"),
            value(&[192, 0, 2, 1]),
            Some(ClientId::Instance("a".into())),
        ];
        // Each time with a limiter of its own, as after a reload.
        for expected in [9, 8] {
            for client in &clients {
                for (name, algorithm) in [
                    ("l", Algorithm::TokenBucket),
                    ("m", Algorithm::TokenBucket),
                    ("l", Algorithm::SlidingWindow { segments: 2 }),
                ] {
                    assert_eq!(left(name, algorithm, client.clone()), expected, "{name} {algorithm:?} {client:?}");
                }
            }
        }
        assert_eq!(memory.len(), clients.len() * 3);
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
        assert!(memory.len() <= 64 * shard::SMALL, "{} buckets", memory.len());
    }
}
