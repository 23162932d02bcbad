//! Takes a slot for a request of a route with `concurrency`, or waits for one.
//!
//! Requests of one gateway wait first come, first served: a request that finds the route or its client at the bound joins
//! one queue, and only the first of each queue tries again. It does so when a request of this gateway has ended; with a
//! store in Redis also at intervals, since requests of other gateways end as well.

use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use super::WaitQueues;
use super::queue::{JoinError, Place};
use crate::concurrency::Concurrency;
use crate::limit::{BucketId, ClientId};
use crate::metrics::{GaugeGuard, InFlightMetrics};
use crate::store::{Full, Slot, SlotRequest, Store};

/// The time between two attempts to take a slot that other gateways may have released.
const RETRY_EVERY: Duration = Duration::from_millis(25);

/// A request that is in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct RequestInFlight {
    slot: Slot,
    _counted: GaugeGuard,
}

/// A request that needs a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRequest<'r> {
    pub(crate) store: &'r Store,
    pub(crate) queues: &'r WaitQueues,
    pub(crate) concurrency: &'r Concurrency,
    /// The client, if each client has a bound.
    pub(crate) client: Option<&'r ClientId>,
    pub(crate) metrics: &'r InFlightMetrics,
    /// When the request times out.
    pub(crate) deadline: Option<Instant>,
}

impl RequestInFlight {
    /// Returns how many more slots the client could take when the request was admitted.
    pub(crate) fn remaining(&self) -> u32 {
        self.slot.remaining
    }
}

impl NewRequest<'_> {
    /// Takes a slot, or waits for one as long as the rules allow.
    ///
    /// # Errors
    /// The bounds that are reached. The request holds nothing.
    pub(crate) async fn take_slot(self) -> Result<RequestInFlight, Full> {
        let slots = self.store.slots(&self.concurrency.name);
        let request = SlotRequest { concurrency: self.concurrency, slots: &slots, client: self.client };
        let waited_for = self.waited_for();
        let taken = match waited_for == Full::default() {
            true => self.store.take_slot(request).await,
            false => Err(waited_for),
        };
        let taken = match taken {
            Err(full) if self.concurrency.queue > 0 => self.wait(request, full).await,
            taken => taken,
        };
        let slot = taken.inspect_err(|full| self.metrics.rejected(full.client))?;
        Ok(RequestInFlight { slot, _counted: self.metrics.begin() })
    }

    /// Waits for a slot, behind the requests that already wait for the same bounds.
    async fn wait(self, request: SlotRequest<'_>, full: Full) -> Result<Slot, Full> {
        let Some(_waiting) = request.slots.begin_wait(self.concurrency.queue) else { return Err(full) };
        let _counted = self.metrics.begin_wait();
        let deadline = Instant::now() + self.concurrency.max_wait;
        let deadline = self.deadline.map_or(deadline, |earlier| deadline.min(earlier));
        let full = Mutex::new(full);
        tokio::select! {
            biased;
            slot = self.wait_in_queues(request, &full) => slot,
            () = sleep_until(deadline) => Err(*full.lock()),
            () = self.queues.closed() => Err(*full.lock()),
        }
    }

    async fn wait_in_queues(self, request: SlotRequest<'_>, full: &Mutex<Full>) -> Result<Slot, Full> {
        let mut place = self.queues.place();
        loop {
            let reached = *full.lock();
            self.join(&mut place, reached).map_err(|_| reached)?;
            place.wait_until_first().await;
            let mut released = pin!(request.slots.released());
            released.as_mut().enable(); // before the attempt, so that no release is missed
            match self.store.take_slot(request).await {
                Ok(slot) => return Ok(slot),
                Err(reached) => {
                    *full.lock() = reached;
                    self.join(&mut place, reached).map_err(|_| reached)?;
                }
            }
            tokio::select! {
                () = released => {}
                () = sleep(RETRY_EVERY), if self.store.is_redis() => {}
            }
        }
    }

    /// Joins the queue of the client if its bound is reached, otherwise the queue of the route: a request that waits for its
    /// client must not delay other clients. As many requests of one client may wait as may be in flight, so that one
    /// client cannot fill the queue of the route.
    fn join(&self, place: &mut Place<'_>, full: Full) -> Result<(), JoinError> {
        if !full.client {
            return place.join(self.bucket(None), self.concurrency.queue, Vec::new());
        }
        let of_client = self.concurrency.per_client.and_then(|most| usize::try_from(most).ok());
        let limit = self.concurrency.queue.min(of_client.unwrap_or(usize::MAX));
        place.join(self.bucket(self.client), limit, Vec::new())
    }

    /// Returns the bounds for which other requests already wait.
    fn waited_for(&self) -> Full {
        let is_waited_for = |client| self.queues.is_waited_for(&self.bucket(client));
        let client = self.client.is_some() && self.concurrency.queue > 0 && is_waited_for(self.client);
        Full { route: self.concurrency.max.is_some() && self.concurrency.queue > 0 && is_waited_for(None), client }
    }

    fn bucket(&self, client: Option<&ClientId>) -> BucketId {
        (self.concurrency.name.to_string(), client.cloned())
    }
}
