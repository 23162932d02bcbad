//! Admits requests of a route with `concurrency`: with all permits of their limits and a slot, or with neither.
//!
//! A request that its limits admit and that finds its client or the route at the bound waits in one queue, and holds
//! neither permits nor a slot: in the queue of its client if the client is at its bound, otherwise in the queue of the
//! route. It claims its permits and the slot of its client there, so that a client has no more requests in the queue of
//! the route than it could have admitted. The first request of a queue tries again when a request of this gateway has
//! ended; with a store in Redis also at intervals, since requests of other gateways end as well.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::queue::Place;
use super::waiting::{Charged, RouteWaits};
use super::{Admitted, Denial, WaitQueues, admit, admit_with_slot};
use tidegate_limit::Mode;
use tidegate_metrics::{GaugeGuard, InFlightMetrics};
use tidegate_rules::charge::{BucketId, ClientId};
use tidegate_rules::evaluation::wait::{Claim, JoinError, bucket_of};
use tidegate_rules::limits::concurrency::Concurrency;
use tidegate_rules::rules::{Charges, LimitCharge};
use tidegate_store::{Full, InFlightSlot, RouteSlots, SlotRequest, Store};

/// The time between two attempts to take a slot that other gateways may have released.
const POLL_EVERY: Duration = Duration::from_millis(10);
/// The waiting clients of a route that may ask at once. If more wait, each asks less often.
const ASKS_PER_POLL: usize = 16;

/// A request that is in flight until this is dropped.
#[derive(Debug)]
pub struct RequestInFlight {
    /// `None` only during drop.
    slot: Option<InFlightSlot>,
    name: Arc<str>,
    queues: Arc<WaitQueues>,
    _counted: GaugeGuard,
}

/// A request to a route with `concurrency`.
#[derive(Debug)]
pub struct NewRequest<'r, 'l> {
    pub store: &'r Store,
    pub queues: &'r Arc<WaitQueues>,
    pub charges: &'r mut Charges<'l>,
    pub waits: Option<RouteWaits<'r>>,
    pub concurrency: &'r Concurrency,
    /// The client, if each client has a bound.
    pub client: Option<&'r ClientId>,
    pub metrics: &'r InFlightMetrics,
    /// When the request times out.
    pub deadline: Option<Instant>,
}

/// A request for a slot, with a decision of the limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotAsk<'r> {
    pub(super) request: SlotRequest<'r>,
    /// The bounds for which other requests already wait. If there are any, the request takes nothing.
    pub(super) waited_for: Full,
    /// Whether the request is in a queue for a slot. Then it does not wait for permits as well.
    pub(super) is_queued: bool,
}

/// A queue for slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotQueue {
    Client,
    Route,
}

/// The wait of a request for a slot.
struct SlotWait<'r, 'l> {
    new: NewRequest<'r, 'l>,
    slots: &'r Arc<RouteSlots>,
    place: Place<'r>,
    /// When the wait began, and its end.
    since: Option<(Instant, Instant)>,
    counted: Option<GaugeGuard>,
    joined: Option<SlotQueue>,
    /// The number of released slots before the last attempt.
    releases: u64,
}

impl RequestInFlight {
    /// Returns how many more slots the client could take when the request was admitted.
    pub fn remaining(&self) -> u32 {
        self.slot.as_ref().map_or(0, |slot| slot.remaining)
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        let client = slot.client().cloned();
        drop(slot);
        if !self.queues.is_empty() {
            let name = self.name.to_string();
            self.queues.wake(&(name.clone(), None));
            if client.is_some() {
                self.queues.wake(&(name, client));
            }
        }
    }
}

impl<'r, 'l> NewRequest<'r, 'l> {
    /// Admits the request with a slot, or waits as long as the rules allow.
    ///
    /// # Errors
    /// See [`Denial`]. The request holds nothing.
    pub async fn admit(self) -> Result<(Admitted, RequestInFlight), Denial> {
        let slots = self.store.slots(&self.concurrency.name);
        let limits = || self.charges.iter().map(|entry| entry.limit);
        let has_time_slot = limits().any(|limit| !limit.shadow && limit.limiter.quota.algorithm().has_time_slots());
        let (metrics, name) = (self.metrics, Arc::clone(&self.concurrency.name));
        let queues = Arc::clone(self.queues);
        let admitted = match has_time_slot {
            // A request that waits for its time slot holds no slot.
            true => self.admit_in_turn(&slots).await,
            false => self.admit_at_once(&slots).await,
        };
        if let Err(Denial::Busy { full }) = &admitted {
            metrics.rejected(full.client);
        }
        let (admitted, slot) = admitted?;
        Ok((admitted, RequestInFlight { slot: Some(slot), name, queues, _counted: metrics.begin() }))
    }

    /// Takes the permits and the slot in one decision.
    async fn admit_at_once(self, slots: &Arc<RouteSlots>) -> Result<(Admitted, InFlightSlot), Denial> {
        let (store, queues, waits) = (self.store, self.queues, self.waits);
        let mut wait = SlotWait::new(self, slots);
        loop {
            let ask = wait.ask();
            match admit_with_slot(store, queues, wait.new.charges, waits, &ask).await {
                Err(Denial::Busy { full }) => wait.wait(full).await?,
                // The permits were taken by others. The request waits for them like new requests, in no queue for slots.
                Err(Denial::Limited { .. }) if ask.is_queued && waits.is_some() => wait.leave(),
                Err(denial) => return Err(denial),
                Ok(Admitted { slot: None, .. }) => return Err(Denial::Busy { full: Full::default() }),
                Ok(Admitted { slot: Some(slot), permit, unchecked }) => {
                    return Ok((Admitted { slot: None, permit, unchecked }, slot));
                }
            }
        }
    }

    /// Takes the permits, waits for the time slot, then takes the slot. Without a slot, the permits are given back.
    async fn admit_in_turn(self, slots: &Arc<RouteSlots>) -> Result<(Admitted, InFlightSlot), Denial> {
        let admitted = admit(self.store, self.queues, self.charges, self.waits.map(Box::new)).await?;
        let permits = Charged::new(self.store, self.charges);
        let only_slot = NewRequest { charges: &mut Charges::default(), waits: None, ..self };
        match only_slot.admit_at_once(slots).await {
            Ok((_, slot)) => {
                permits.keep();
                Ok((admitted, slot))
            }
            Err(denial) => {
                permits.give_back().await;
                Err(denial)
            }
        }
    }
}

impl<'r, 'l> SlotWait<'r, 'l> {
    fn new(new: NewRequest<'r, 'l>, slots: &'r Arc<RouteSlots>) -> Self {
        let place = new.queues.place();
        Self { new, slots, place, since: None, counted: None, joined: None, releases: 0 }
    }

    /// Returns the next attempt. Requests that do not wait yet do not overtake those that wait.
    fn ask(&mut self) -> SlotAsk<'r> {
        self.releases = self.slots.releases();
        let NewRequest { concurrency, client, .. } = self.new;
        let is_in_route = self.joined == Some(SlotQueue::Route);
        let waits_since = self.since.filter(|_| is_in_route).map(|(since, _)| since);
        let waited_for = Full {
            route: !is_in_route && concurrency.max.is_some() && self.is_waited_for(None),
            client: self.joined.is_none() && client.is_some() && self.is_waited_for(client),
        };
        let request = SlotRequest { concurrency, slots: self.slots, client, waits_since };
        SlotAsk { request, waited_for, is_queued: self.joined.is_some() }
    }

    fn leave(&mut self) {
        self.place.leave();
        (self.joined, self.counted) = (None, None);
    }

    fn is_waited_for(&self, client: Option<&ClientId>) -> bool {
        self.new.concurrency.queue > 0 && self.new.queues.is_waited_for(&self.bucket(client))
    }

    /// Waits until the next attempt.
    ///
    /// # Errors
    /// The request may not wait, or has waited as long as it may.
    async fn wait(&mut self, full: Full) -> Result<(), Denial> {
        let now = Instant::now();
        let Concurrency { queue, max_wait, .. } = *self.new.concurrency;
        let (_, until) = *self.since.get_or_insert_with(|| {
            let until = now + max_wait;
            (now, self.new.deadline.map_or(until, |deadline| until.min(deadline)))
        });
        if queue == 0 || now >= until {
            return Err(Denial::Busy { full });
        }
        self.join(full)?;
        let metrics = self.new.metrics;
        self.counted.get_or_insert_with(|| metrics.begin_wait());
        tokio::select! {
            biased;
            () = self.wait_for_turn() => Ok(()),
            () = sleep_until(until) => Err(Denial::Busy { full }),
            () = self.new.queues.closed() => Err(Denial::Busy { full }),
        }
    }

    /// Waits until this request is the first of its queue, and a slot may be free.
    async fn wait_for_turn(&self) {
        if !self.place.is_first() {
            return self.place.wait_until_first().await;
        }
        if self.slots.releases() != self.releases {
            return; // since the last attempt
        }
        tokio::select! {
            () = self.place.changed() => {}
            () = sleep_until(self.next_poll()), if self.new.store.is_redis() => {}
        }
    }

    /// Returns the time of the next attempt. All requests have the same times, so that they share calls to Redis.
    fn next_poll(&self) -> Instant {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        let waiting = self.new.queues.len();
        let times = if self.joined == Some(SlotQueue::Route) { 1 } else { 1 + waiting / ASKS_PER_POLL };
        let every = POLL_EVERY * u32::try_from(times).unwrap_or(u32::MAX);
        let passed = START.elapsed().as_millis() / POLL_EVERY.as_millis();
        let first = *START + POLL_EVERY * u32::try_from(passed).unwrap_or_default();
        first + every
    }

    /// Joins the queue of the client if the client is at its bound, otherwise the queue of the route. As many requests
    /// of a client may wait as may be in flight.
    fn join(&mut self, full: Full) -> Result<(), Denial> {
        let NewRequest { concurrency: Concurrency { queue, per_client, .. }, client, .. } = self.new;
        let joined = match full.client {
            true => Err(None),
            false => self.place.join(self.bucket(None), *queue, self.claims()).map_err(Some),
        };
        self.joined = Some(if joined.is_ok() { SlotQueue::Route } else { SlotQueue::Client });
        let of_client = per_client.and_then(|bound| usize::try_from(bound).ok());
        let of_client = of_client.map_or(*queue, |bound| bound.min(*queue));
        match joined {
            Ok(()) => Ok(()),
            Err(Some(JoinError::Full)) => Err(Denial::Busy { full }),
            // Other requests of the client wait for the route with all its permits.
            Err(Some(JoinError::Claimed(claim))) if claim.index < self.new.charges.len() => {
                Err(limited(self.new.charges, claim.index))
            }
            // They wait with all slots that the client could take.
            Err(_) => {
                let joined = self.place.join(self.bucket(client), of_client, Vec::new());
                joined.map_err(|_| Denial::Busy { full: Full { client: true, ..full } })
            }
        }
    }

    /// Returns the claims of a request in the queue of the route: of its permits of limits of its client, and of a slot
    /// of its client. Each has the position of its charge.
    fn claims(&self) -> Vec<Claim> {
        let NewRequest { concurrency, client, ref charges, .. } = self.new;
        let of_client = |entry: &LimitCharge<'_>| !entry.limit.shadow && entry.limit.mode() == Mode::PerClient;
        let permits = charges.iter().enumerate().filter(|(_, entry)| of_client(entry)).filter_map(|(index, entry)| {
            let (bucket, permits) = (bucket_of(&entry), entry.charge.permits);
            Some(Claim { index, bucket, permits, free: entry.decision?.remaining })
        });
        let slot = client.zip(concurrency.per_client).map(|(client, bound)| Claim {
            index: charges.len(),
            bucket: self.bucket(Some(client)),
            permits: 1,
            free: bound.saturating_sub(self.slots.of_client(client)),
        });
        permits.chain(slot).collect()
    }

    fn bucket(&self, client: Option<&ClientId>) -> BucketId {
        (self.new.concurrency.name.to_string(), client.cloned())
    }
}

/// Rejects a request whose client has claimed all permits of the limit at this position.
fn limited(charges: &mut Charges<'_>, position: usize) -> Denial {
    let reset = charges.at(position).decision.map_or(0, |decision| decision.reset);
    charges.refuse(position, 0, reset);
    Denial::Limited { wait: charges.wait(), unchecked: None }
}
