//! The embedded store: buckets in this process.
//!
//! Buckets live in shards, each under a lock of its own. A decision holds the locks of all shards that it touches, taken
//! in ascending order so that two decisions never wait for each other, and only then looks at the clock: a bucket's
//! decisions are dated in the order in which they are made. The number of buckets is bounded: full ones are
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
use crate::limit::{Charge, Granted, Outcome, live_granted};

/// As many as a word has bits.
const SHARDS: usize = u64::BITS as usize;

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
    limiters: Mutex<Registry>,
}

/// The charges of one decision, with their places.
type Places<'c> = SmallVec<[Place<'c>; FEW]>;

/// A shard, by its number, that is locked for one decision.
type Locked<'m> = (usize, MutexGuard<'m, Shard>);

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
        let (hasher, limiters) = (DefaultHashBuilder::default(), Mutex::default());
        Self { shards, clock, hasher, secret, most: most.div_ceil(SHARDS), limiters }
    }

    /// Makes all live charges or none, at the clock's present, and each shadow charge that goes with them.
    ///
    /// # Errors
    /// [`StoreError::Full`], at the cap of buckets.
    pub fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        self.decide(charges, None)
    }

    /// Makes all live charges or none at `now`, and each shadow charge that goes with them.
    ///
    /// # Errors
    /// [`StoreError::Full`], at the cap of buckets; [`StoreError::NotInitialised`] for a limiter that only Redis knows.
    pub fn take_at(&self, charges: &[Charge], now: Timestamp) -> Result<Outcome, StoreError> {
        self.decide(charges, Some(now))
    }

    /// At the clock's present, unless told of another. It is read under the locks: by an earlier one, permits that others
    /// have taken since would seem to be ahead of time, and come back too early.
    fn decide(&self, charges: &[Charge], now: Option<Timestamp>) -> Result<Outcome, StoreError> {
        if charges.iter().any(|charge| charge.limiter.quota.is_adopted()) {
            return Err(StoreError::NotInitialised);
        }
        let mut places: Places<'_> = charges.iter().map(|charge| self.place(charge)).collect();
        let mut locked = self.lock(&places);
        let now = now.unwrap_or_else(|| self.clock.now());
        let (places, locked) = (&mut places[..], &mut locked[..]);
        let mut decisions = Vec::with_capacity(charges.len());
        for place in &mut *places {
            decisions.push(shard(locked, place).check(place, now));
        }
        let granted = live_granted(charges, &decisions);
        if places.iter().any(|place| place.slot.is_none()) {
            // A bucket that is added may move others.
            places.iter_mut().for_each(|place| place.slot = None);
            for place in places.iter().filter(|place| granted && !place.charge.shadow) {
                shard(locked, place).make_room(place, now, self.most)?;
            }
        }
        for (place, decision) in places.iter().zip(&mut decisions) {
            let shard = shard(locked, place);
            if !(granted && decision.granted) {
                shard.settle(place, now);
            } else if !place.charge.shadow || shard.make_room(place, now, self.most).is_ok() {
                // A shadow that finds no room is not remembered; that is no reason to refuse anybody.
                *decision = shard.charge(place, now);
            }
        }
        Ok(Outcome::decided(now, decisions, granted))
    }

    /// Gives back what was granted; what has returned by itself is left alone.
    pub fn give_back(&self, granted: &[Granted]) {
        self.put_back(granted, None);
    }

    /// Gives back what was granted, as if the clock showed `now`.
    pub fn give_back_at(&self, granted: &[Granted], now: Timestamp) {
        self.put_back(granted, Some(now));
    }

    /// At the clock's present, unless told of another; it is read under the lock here, too.
    fn put_back(&self, granted: &[Granted], now: Option<Timestamp>) {
        for Granted { charge, at } in granted {
            let place = self.place(charge);
            let mut shard = self.shards[place.shard()].lock();
            shard.give_back(&place, *at, now.unwrap_or_else(|| self.clock.now()));
        }
    }

    /// The limiters of the library, and the present, which is read under their lock too.
    pub(super) fn limiters(&self) -> (MutexGuard<'_, Registry>, Timestamp) {
        (self.limiters.lock(), self.clock.now())
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

    fn lock(&self, places: &[Place<'_>]) -> SmallVec<[Locked<'_>; FEW]> {
        // A bit for each, so that they are in ascending order, and each is there once.
        let mut left = places.iter().fold(0_u64, |bits, place| bits | 1 << place.shard());
        let mut locked = SmallVec::new();
        while left != 0 {
            let shard = left.trailing_zeros() as usize;
            locked.push((shard, self.shards[shard].lock()));
            left &= left - 1;
        }
        locked
    }
}

/// The shard of this place, which is one of those.
fn shard<'l>(locked: &'l mut [Locked<'_>], place: &Place<'_>) -> &'l mut Shard {
    let number = place.shard();
    let position = locked.iter().position(|(locked, _)| *locked == number).unwrap_or_default();
    &mut locked[position].1
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{OnceLock, Weak};

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

    /// Shows another moment whenever it is asked, and lets others go on before it tells.
    #[derive(Debug, Default)]
    struct Ticking(AtomicU64);

    impl Clock for Ticking {
        fn now(&self) -> Timestamp {
            let now = self.0.fetch_add(1, Ordering::SeqCst);
            std::thread::yield_now();
            Timestamp::from_millis(now)
        }
    }

    #[test]
    fn nobody_who_is_held_up_takes_back_what_others_have_taken_since() {
        let memory = Memory::new(Arc::new(Ticking::default()), None);
        let quota = Quota::new(1, 10, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter { name: "l".into(), mode: Mode::Overall, quota });
        let charge = [Charge { limiter, client: None, permits: 1, shadow: false }];
        let granted = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let outcome = memory.take(&charge).expect("room");
                        if outcome.granted() {
                            granted.lock().push(outcome.now);
                        }
                    }
                });
            }
        });
        let mut granted = granted.into_inner();
        granted.sort_unstable();
        assert!(granted.windows(2).all(|two| two[1].millis_since(two[0]) >= 10), "{granted:?}");
    }

    /// Counts how often it is asked while nothing of its store is locked.
    #[derive(Debug, Default)]
    struct Watching(OnceLock<Weak<Memory>>, AtomicU64);

    impl Clock for Watching {
        fn now(&self) -> Timestamp {
            let memory = self.0.get().and_then(Weak::upgrade).expect("its store");
            let locked = memory.shards.iter().any(Mutex::is_locked) || memory.limiters.is_locked();
            self.1.fetch_add(u64::from(!locked), Ordering::SeqCst);
            Timestamp::from_millis(1_700_000_000_000)
        }
    }

    /// A giving back that was held up between clock and lock set a bucket back in time, and what had returned since
    /// returned once more.
    #[test]
    fn the_clock_is_read_only_under_the_lock_of_what_it_dates() {
        let clock = Arc::new(Watching::default());
        let memory = Arc::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>, None));
        clock.0.set(Arc::downgrade(&memory)).expect("set once");
        let charge = charge(1);
        let outcome = memory.take(std::slice::from_ref(&charge)).expect("room");
        memory.give_back(&[Granted { charge, at: outcome.now }]);
        drop(memory.limiters());
        assert_eq!(clock.1.load(Ordering::SeqCst), 0);
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
