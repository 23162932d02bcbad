//! The buckets of clients for whom there is no room: one for each limit, of the limit's own rate.
//!
//! Nobody passes uncounted, then, and nobody's bucket is forgotten for somebody else's: clients without a bucket of their
//! own are judged together. Each bucket keeps its law. A client that was judged by the overflow bucket and then gets one of
//! its own, or the other way round when its own was full and is gone, is granted what both allow: at most twice the rate
//! in an interval.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::place::Place;
use super::room::{Room, Rooms};
use crate::clock::Timestamp;
use crate::limit::{Decision, Limiter, State};

/// Those of all limits that have no room, or had none of late, by the address of their room.
#[derive(Debug, Default)]
pub(super) struct Overflow(HashMap<usize, Bucket>);

#[derive(Debug)]
struct Bucket {
    /// Kept, so that its address stays its own.
    room: Arc<Room>,
    limiter: Arc<Limiter>,
    /// As it was asked for first.
    shadow: bool,
    state: State,
}

impl Overflow {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn check(&mut self, room: &Arc<Room>, place: &Place<'_>, now: Timestamp) -> Decision {
        let (quota, permits) = (&place.charge.limiter.quota, place.charge.permits);
        Decision { overflow: true, ..self.bucket(room, place).state.check(quota, permits, now) }
    }

    pub(super) fn charge(&mut self, room: &Arc<Room>, place: &Place<'_>, now: Timestamp) -> Decision {
        let (quota, permits) = (&place.charge.limiter.quota, place.charge.permits);
        Decision { overflow: true, ..self.bucket(room, place).state.charge(quota, permits, now) }
    }

    pub(super) fn settle(&mut self, room: &Arc<Room>, place: &Place<'_>, now: Timestamp) {
        self.bucket(room, place).state.settle(&place.charge.limiter.quota, now);
    }

    pub(super) fn give_back(&mut self, room: &Arc<Room>, place: &Place<'_>, at: Timestamp, now: Timestamp) {
        if let Some(bucket) = self.0.get_mut(&address(room)) {
            bucket.state.give_back(&place.charge.limiter.quota, place.charge.permits, at, now);
        }
    }

    /// Forgets the bucket of a limit that has room again, if nobody has used it for so long that it is full.
    pub(super) fn end(&mut self, room: &Arc<Room>, rooms: &Rooms, now: Timestamp) {
        if self.0.get(&address(room)).is_some_and(|bucket| bucket.ends(rooms, now)) {
            self.0.remove(&address(room));
        }
    }

    /// The same for all limits.
    pub(super) fn end_all(&mut self, rooms: &Rooms, now: Timestamp) {
        self.0.retain(|_, bucket| !bucket.ends(rooms, now));
    }

    fn bucket(&mut self, room: &Arc<Room>, place: &Place<'_>) -> &mut Bucket {
        let limiter = &place.charge.limiter;
        let bucket = self.0.entry(address(room)).or_insert_with(|| Bucket::new(room, limiter, place.charge.shadow));
        if !Arc::ptr_eq(&bucket.limiter, limiter) {
            bucket.limiter = Arc::clone(limiter);
        }
        bucket
    }
}

fn address(room: &Arc<Room>) -> usize {
    Arc::as_ptr(room).addr()
}

// === impl Bucket ===

impl Bucket {
    fn new(room: &Arc<Room>, limiter: &Arc<Limiter>, shadow: bool) -> Self {
        room.overflowing.store(true, Ordering::Relaxed);
        tracing::warn!(limit = limiter.name, buckets = room.held(), "no room for new clients: they share one bucket");
        Self { room: Arc::clone(room), limiter: Arc::clone(limiter), shadow, state: State::EMPTY }
    }

    /// Is it over? Then it is said.
    fn ends(&self, rooms: &Rooms, now: Timestamp) -> bool {
        let is_over = self.state.full_at(&self.limiter.quota) <= now && rooms.is_ample(&self.room, self.shadow);
        if is_over {
            self.room.overflowing.store(false, Ordering::Relaxed);
            tracing::info!(limit = self.limiter.name, "new clients have buckets of their own again");
        }
        is_over
    }
}
