//! The embedded store: buckets in this process.
//!
//! Buckets live in shards, each under a lock of its own. A decision holds the locks of all shards that it touches, taken
//! in ascending order so that two decisions never wait for each other, then that of the overflow buckets if it needs one,
//! and only then looks at the clock: a bucket's decisions are dated in the order in which they are made.
//!
//! The number of buckets is bounded: full ones are swept out as a shard grows. Each limit has [`room`] of its own; where
//! it is used up, no bucket in use is forgotten, and new clients of the limit share one [`overflow`] bucket.

mod deciding;
mod overflow;
mod owner;
mod place;
mod room;
mod shard;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, MutexGuard};

use self::deciding::{Deciding, Places, lock};
use self::overflow::Overflow;
use self::place::Place;
use self::room::{Room, Rooms};
use self::shard::{CROWDED, Shard};
use super::StoreError;
use super::registry::Registry;
use super::settings::KeySecret;
use crate::clock::{Clock, Timestamp};
use crate::limit::{Charge, Granted, Limiter, Mode, Outcome, live_granted};

/// As many as a word has bits.
const SHARDS: usize = u64::BITS as usize;

/// How many buckets one decision looks at to find room for another: some tenth of a millisecond.
const PATIENCE: usize = 1 << 15;

/// Buckets in this process.
#[derive(Debug)]
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    overflow: Mutex<Overflow>,
    rooms: Rooms,
    /// The shard that is swept next for want of room in others.
    hand: AtomicUsize,
    /// Until when it is known that there is none, in milliseconds.
    crowded_until: AtomicU64,
    clock: Arc<dyn Clock>,
    /// Tells buckets apart in their tables; nobody outside knows it, so nobody can fill one slot of a table.
    hasher: DefaultHashBuilder,
    secret: KeySecret,
    limiters: Mutex<Registry>,
}

/// How many buckets a limit has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// How many there are; also those that are full again and were not swept out yet.
    pub held: usize,
    /// How many are kept for it, whatever other limits hold. It may have more.
    pub share: usize,
    /// Do new clients share one, or did of late?
    pub overflowing: bool,
}

// === impl Memory ===

impl Memory {
    /// Buckets that all limits hold together at most, unless told otherwise: some 200 MB, if each was used once.
    pub const MAX_BUCKETS: usize = 1 << 21;

    /// What stands for a client's value.
    pub(super) fn key_of(&self, value: &[u8]) -> u128 {
        self.secret.hash(value)
    }

    /// An empty store of at most two million buckets. Without a secret it makes one up.
    pub fn new(clock: Arc<dyn Clock>, secret: Option<KeySecret>) -> Self {
        Self::bounded(clock, secret, Self::MAX_BUCKETS)
    }

    /// An empty store of at most so many buckets: half of them shared out evenly among the limits, and half for whichever
    /// needs more. Limits of everybody have one each beside that.
    pub fn bounded(clock: Arc<dyn Clock>, secret: Option<KeySecret>, most: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let secret = secret.unwrap_or_else(KeySecret::random);
        Self {
            shards,
            overflow: Mutex::default(),
            rooms: Rooms::new(most),
            hand: AtomicUsize::default(),
            crowded_until: AtomicU64::default(),
            clock,
            hasher: DefaultHashBuilder::default(),
            secret,
            limiters: Mutex::default(),
        }
    }

    /// From now on these limits have room kept for them, and no longer those that were in force before. So has any other
    /// limit from the first time on that it is asked for.
    pub fn keep_room_for<'l>(
        &self,
        limiters: impl IntoIterator<Item = &'l Limiter>,
        were: impl IntoIterator<Item = &'l Limiter>,
    ) {
        self.rooms.keep_for(limiters.into_iter(), were.into_iter());
    }

    /// Makes all live charges or none, at the clock's present, and each shadow charge that goes with them.
    ///
    /// # Errors
    /// [`StoreError::NotInitialised`] for a limiter that only Redis knows.
    pub fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        self.decide(charges, None)
    }

    /// Makes all live charges or none at `now`, and each shadow charge that goes with them.
    ///
    /// # Errors
    /// [`StoreError::NotInitialised`] for a limiter that only Redis knows.
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
        let mut locked = lock(self, &places);
        let mut deciding = Deciding::begin(self, &mut places, &mut locked, now);
        let now = now.unwrap_or_else(|| self.clock.now());
        let mut decisions = deciding.check(now);
        let granted = live_granted(charges, &decisions);
        deciding.charge_found(granted, &mut decisions, now);
        deciding.charge_new(granted, &mut decisions, now);
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
        let present = || now.unwrap_or_else(|| self.clock.now());
        for Granted { charge, at, overflow } in granted {
            let mut place = self.place(charge);
            if *overflow {
                let Some(room) = self.rooms.known(&charge.limiter) else { continue };
                let mut overflow = self.overflow.lock();
                overflow.give_back(&room, &place, *at, present());
                continue;
            }
            let mut shard = self.shards[place.shard()].lock();
            if shard.find(&mut place) {
                shard.give_back(&place, *at, present());
            }
        }
    }

    /// Finds out of limits without room whether that is over. So it is when clients come; but perhaps none do.
    pub fn tend(&self) {
        if self.overflow.lock().is_empty() {
            return;
        }
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.sweep_for_room(&self.rooms, self.clock.now());
        }
        let mut overflow = self.overflow.lock();
        overflow.end_all(&self.rooms, self.clock.now());
    }

    /// How many buckets this limit has.
    pub fn usage(&self, limiter: &Arc<Limiter>) -> Usage {
        if limiter.mode == Mode::Overall {
            let charge = Charge { limiter: Arc::clone(limiter), client: None, permits: 0, shadow: false };
            let mut place = self.place(&charge);
            let found = self.shards[place.shard()].lock().find(&mut place);
            return Usage { held: found.into(), share: 1, overflowing: false };
        }
        let Some(room) = self.rooms.known(limiter) else {
            return Usage { held: 0, share: 0, overflowing: false };
        };
        let overflowing = room.overflowing.load(Ordering::Relaxed);
        Usage { held: room.held(), share: self.rooms.share_of(&room), overflowing }
    }

    /// The limiters of the library, and the present, which is read under their lock too.
    pub(super) fn limiters(&self) -> (MutexGuard<'_, Registry>, Timestamp) {
        (self.limiters.lock(), self.clock.now())
    }

    /// How many buckets are kept at present, beside those that clients without room share.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Bytes of all tables.
    #[cfg(test)]
    fn occupied(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().occupied()).sum()
    }

    /// Is no bucket kept?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sweeps other shards until there is room: one after the other, and no more at a time than a request can wait for.
    /// Where all of them have none it is not tried again for a while, so that a flood costs no more than its refusals.
    fn look_for_room(&self, room: &Room, shadow: bool, now: Timestamp) {
        let mut visited = 0;
        while visited < PATIENCE && now.as_millis() >= self.crowded_until.load(Ordering::Relaxed) {
            if self.rooms.is_left(room, shadow) {
                return;
            }
            let next = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            // Those that this decision has locked it has swept itself; the others are not waited for.
            visited += self.shards[next].try_lock().map_or(0, |mut shard| shard.sweep_for_room(&self.rooms, now));
            if next == SHARDS - 1 {
                self.crowded_until.store(now.plus_millis(CROWDED).as_millis(), Ordering::Relaxed);
            }
        }
    }

    fn place<'c>(&self, charge: &'c Charge) -> Place<'c> {
        Place::of(charge, &self.hasher, &self.secret)
    }
}
