//! The requests in flight of routes with `concurrency`: each holds a [`Slot`] until its response has ended.
//!
//! An embedded store counts the slots in this process. In Redis, each slot is a lease that this gateway renews, so that
//! the slots of a gateway that has died become free. While Redis does not reply, a gateway keeps the slots that it holds,
//! and holds at most its share of each bound.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::{Backend, Store};
use crate::concurrency::Concurrency;
use crate::limit::ClientId;

/// The slots of all routes that requests of this process hold.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// By the name of the slots. Bounded by the number of routes, and kept for later rules.
    routes: RwLock<HashMap<Arc<str>, Arc<RouteSlots>>>,
}

/// The slots of one route that requests of this process hold.
#[derive(Debug, Default)]
pub(crate) struct RouteSlots {
    counts: Mutex<Counts>,
    waiting: AtomicUsize,
    /// Notified when a slot was released while requests wait.
    released: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    all: u32,
    /// Without clients that hold no slot.
    by_client: HashMap<ClientId, u32>,
}

/// A request for a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRequest<'r> {
    pub(crate) concurrency: &'r Concurrency,
    pub(crate) slots: &'r Arc<RouteSlots>,
    /// The client, if the bound of each client applies.
    pub(crate) client: Option<&'r ClientId>,
}

/// The right of a request to be in flight. Released on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Released first, so that a waiting request can take it.
    lease: Option<Box<dyn Lease>>,
    slots: Arc<RouteSlots>,
    client: Option<ClientId>,
    /// How many more slots the client could take when this one was taken.
    pub(crate) remaining: u32,
}

/// The lease of a slot in a store that several gateways share. Released on drop.
pub(crate) trait Lease: fmt::Debug + Send + Sync {}

/// The bounds that leave no slot for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) route: bool,
    pub(crate) client: bool,
}

/// Counts a request that waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitingRequest<'s>(&'s AtomicUsize);

impl Store {
    /// Returns the slots with this name.
    pub(crate) fn slots(&self, name: &Arc<str>) -> Arc<RouteSlots> {
        match &self.0 {
            Backend::Memory(memory) => memory.in_flight().slots(name),
            Backend::Redis(redis) => redis.store().in_flight().slots(name),
        }
    }

    /// Takes a slot without waiting for another request.
    ///
    /// # Errors
    /// The bounds that are reached.
    pub(crate) async fn take_slot(&self, request: SlotRequest<'_>) -> Result<Slot, Full> {
        match &self.0 {
            Backend::Memory(_) => request.hold_if(|bound| bound, None),
            Backend::Redis(redis) => redis.store().take_slot(request).await,
        }
    }
}

// === impl InFlight, RouteSlots ===

impl InFlight {
    /// Returns the slots with this name.
    fn slots(&self, name: &Arc<str>) -> Arc<RouteSlots> {
        if let Some(slots) = self.routes.read().get(name) {
            return Arc::clone(slots);
        }
        Arc::clone(self.routes.write().entry(Arc::clone(name)).or_default())
    }
}

impl RouteSlots {
    /// Counts a request that waits. Returns `None` if `max` requests wait.
    pub(crate) fn begin_wait(&self, max: usize) -> Option<WaitingRequest<'_>> {
        let more = |waiting| (waiting < max).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(WaitingRequest(&self.waiting))
    }

    /// Waits until a slot is released, from this call on.
    pub(crate) fn released(&self) -> Notified<'_> {
        self.released.notified()
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

// === impl SlotRequest, Slot ===

impl SlotRequest<'_> {
    /// Takes a slot of this process if its requests hold fewer than `part` of each bound.
    ///
    /// # Errors
    /// The bounds that are reached.
    pub(crate) fn hold_if(self, part: impl Fn(u32) -> u32, lease: Option<Box<dyn Lease>>) -> Result<Slot, Full> {
        let mut counts = self.slots.counts.lock();
        let of_client = self.client.and_then(|client| counts.by_client.get(client)).copied().unwrap_or(0);
        // Once, since the part can change at any time.
        let [max, of_each] = [self.concurrency.max, self.concurrency.per_client].map(|bound| bound.map(&part));
        let of_each = of_each.filter(|_| self.client.is_some());
        let is_full = |used: u32, part: Option<u32>| part.is_some_and(|part| used >= part);
        let full = Full { route: is_full(counts.all, max), client: is_full(of_client, of_each) };
        if full != Full::default() {
            return Err(full);
        }
        Ok(self.count(&mut counts, of_each.map_or(0, |part| part - of_client - 1), lease))
    }

    /// Takes a slot that the store has granted.
    pub(crate) fn hold(self, remaining: u32, lease: Box<dyn Lease>) -> Slot {
        self.count(&mut self.slots.counts.lock(), remaining, Some(lease))
    }

    fn count(self, counts: &mut Counts, remaining: u32, lease: Option<Box<dyn Lease>>) -> Slot {
        counts.all += 1;
        if let Some(client) = self.client {
            *counts.by_client.entry(client.clone()).or_default() += 1;
        }
        Slot { lease, slots: Arc::clone(self.slots), client: self.client.cloned(), remaining }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.lease = None;
        let mut counts = self.slots.counts.lock();
        counts.all = counts.all.saturating_sub(1);
        if let Some(client) = self.client.take()
            && let Entry::Occupied(mut held) = counts.by_client.entry(client)
        {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
        drop(counts);
        if self.slots.waiting.load(Ordering::SeqCst) > 0 {
            self.slots.released.notify_waiters();
        }
    }
}
