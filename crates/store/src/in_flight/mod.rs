//! The requests in flight of routes with `concurrency`: each holds a [`InFlightSlot`] until its response has ended.
//!
//! An embedded store counts the slots in this process. In Redis, each slot is a lease that this gateway renews, so that
//! the slots of a gateway that has died become free. While Redis does not reply, a gateway keeps the slots that it
//! holds, and holds at most its share of each bound.

pub(crate) mod slots;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::StoreError;
use tidegate_limit::random::random;
use tidegate_rules::charge::{Charge, ChargeKind, ClientId, Outcome};
use tidegate_rules::limits::concurrency::Concurrency;

/// The slots of all routes that requests of this process hold.
#[derive(Debug)]
pub struct InFlight {
    /// A random number of this process.
    gateway: u64,
    /// By the name of the slots. Bounded by the number of routes, and kept for later rules.
    routes: RwLock<HashMap<Arc<str>, Arc<RouteSlots>>>,
}

/// The slots of one route that requests of this process hold.
#[derive(Debug, Default)]
pub struct RouteSlots {
    counts: Mutex<Counts>,
    /// The number of slots that were released.
    releases: AtomicU64,
}

#[derive(Debug, Default)]
struct Counts {
    all: u32,
    /// Without clients that hold no slot.
    by_client: HashMap<ClientId, u32>,
}

/// A request for an in-flight slot.
#[derive(Clone, Copy, Debug)]
pub struct SlotRequest<'r> {
    /// The bounds of the route.
    pub concurrency: &'r Concurrency,
    /// The slots of the route in this gateway.
    pub slots: &'r Arc<RouteSlots>,
    /// The client, if the bound of each client applies.
    pub client: Option<&'r ClientId>,
    /// When the request began to wait, if it is the first that waits for a slot of the route.
    pub waits_since: Option<Instant>,
}

/// The decision of the limits and of the bounds about a request: it has all permits and a slot, or neither.
#[derive(Debug)]
pub struct TakenWithSlot {
    /// The decisions of the limits. If there is no slot, no permit was taken.
    pub limits: Result<Outcome, StoreError>,
    /// The in-flight slot, or the bounds that are reached; no bounds if a limit refuses the request.
    pub in_flight_slot: Result<InFlightSlot, Full>,
}

/// The right of a request to be in flight. Released on drop.
#[derive(Debug)]
pub struct InFlightSlot {
    /// Released first, so that a waiting request can take it.
    lease: Option<Box<dyn Lease>>,
    slots: Arc<RouteSlots>,
    client: Option<ClientId>,
    /// How many more slots the client could take when this one was taken.
    pub remaining: u32,
}

/// The lease of a slot in a store that several gateways share. Released on drop.
pub trait Lease: fmt::Debug + Send + Sync {}

/// The bounds that leave no slot for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Full {
    /// Whether the bound of the route is reached.
    pub route: bool,
    /// Whether the bound of the client is reached.
    pub client: bool,
}

// === impl InFlight, RouteSlots ===

impl Default for InFlight {
    fn default() -> Self {
        Self { gateway: u64::from_le_bytes(random()), routes: RwLock::default() }
    }
}

impl InFlight {
    /// Returns the number of this process among those that share a store.
    pub fn gateway(&self) -> u64 {
        self.gateway
    }

    /// Returns the slots of the route with this name. All callers with equal names share them.
    pub fn slots(&self, name: &Arc<str>) -> Arc<RouteSlots> {
        if let Some(slots) = self.routes.read().get(name) {
            return Arc::clone(slots);
        }
        Arc::clone(self.routes.write().entry(Arc::clone(name)).or_default())
    }
}

impl RouteSlots {
    /// Returns the number of slots that requests of this process have released.
    pub fn releases(&self) -> u64 {
        self.releases.load(Ordering::SeqCst)
    }

    /// Returns the number of slots that requests of a client hold in this process.
    pub fn of_client(&self, client: &ClientId) -> u32 {
        self.counts.lock().by_client.get(client).copied().unwrap_or(0)
    }
}

// === impl SlotRequest, InFlightSlot ===

impl SlotRequest<'_> {
    /// Takes a slot of this process if its requests hold fewer than `part` of each bound.
    ///
    /// # Errors
    /// The bounds that are reached.
    pub fn hold_if(self, part: impl Fn(u32) -> u32, lease: Option<Box<dyn Lease>>) -> Result<InFlightSlot, Full> {
        let mut counts = self.slots.counts.lock();
        let remaining = self.free(&counts, part)?;
        Ok(self.count(&mut counts, remaining, lease))
    }

    /// Takes a slot of this process, and all permits with `take`, or neither.
    pub fn hold_with(
        self,
        charges: &[Charge],
        take: impl Fn(&[Charge]) -> Result<Outcome, StoreError>,
    ) -> TakenWithSlot {
        let is_refused = |limits: &Result<Outcome, StoreError>| limits.as_ref().is_ok_and(|outcome| !outcome.granted());
        // Locked during the decision, so that no other request sees a slot that is given back.
        let mut counts = self.slots.counts.lock();
        let free = self.free(&counts, |bound| bound);
        let limits = match &free {
            Ok(_) => take(charges),
            Err(_) => take(
                &charges.iter().map(|charge| Charge { kind: ChargeKind::Check, ..charge.clone() }).collect::<Vec<_>>(),
            ),
        };
        let in_flight_slot = match free {
            _ if is_refused(&limits) => Err(Full::default()),
            free => free.map(|remaining| self.count(&mut counts, remaining, None)),
        };
        TakenWithSlot { limits, in_flight_slot }
    }

    /// Returns how many slots remain for the client with this one, if requests of this process hold fewer than `part` of
    /// each bound.
    fn free(&self, counts: &Counts, part: impl Fn(u32) -> u32) -> Result<u32, Full> {
        let of_client = self.client.and_then(|client| counts.by_client.get(client)).copied().unwrap_or(0);
        // Once, since the part can change at any time.
        let [max, of_each] = [self.concurrency.max, self.concurrency.per_client].map(|bound| bound.map(&part));
        let of_each = of_each.filter(|_| self.client.is_some());
        let is_full = |used: u32, part: Option<u32>| part.is_some_and(|part| used >= part);
        let full = Full { route: is_full(counts.all, max), client: is_full(of_client, of_each) };
        if full == Full::default() { Ok(of_each.map_or(0, |part| part - of_client - 1)) } else { Err(full) }
    }

    /// Takes a slot that the store has granted.
    pub fn hold(self, remaining: u32, lease: Box<dyn Lease>) -> InFlightSlot {
        self.count(&mut self.slots.counts.lock(), remaining, Some(lease))
    }

    fn count(self, counts: &mut Counts, remaining: u32, lease: Option<Box<dyn Lease>>) -> InFlightSlot {
        counts.all += 1;
        if let Some(client) = self.client {
            *counts.by_client.entry(client.clone()).or_default() += 1;
        }
        InFlightSlot { lease, slots: Arc::clone(self.slots), client: self.client.cloned(), remaining }
    }
}

impl InFlightSlot {
    /// Returns the client, if the bound of each client applies.
    pub fn client(&self) -> Option<&ClientId> {
        self.client.as_ref()
    }
}

impl Drop for InFlightSlot {
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
        self.slots.releases.fetch_add(1, Ordering::SeqCst);
    }
}
