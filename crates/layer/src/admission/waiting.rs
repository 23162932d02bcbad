//! A request that may wait: for earlier requests, for its permits, and for its time slot.
//!
//! [`WaitingRequest`] decides what the request does next. Here its task does that: it asks the store, and sleeps.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::charge_on::Refund;
use super::once::OnceAsk;
use super::queue::{Place, WaitQueues, wake};
use super::{Admitted, Attempt, Denial, SlotAsk, decide, denying, is_decided_locally, is_known_refusal};
use tidegate_limit::Wait;
use tidegate_metrics::{WaitMetrics, WaitRecord};
use tidegate_rules::charge::{Charge, QueueStart, Turn};
use tidegate_rules::evaluation::wait::{Hold, WaitBounds, WaitStep, WaitingRequest};
use tidegate_rules::rules::{Charges, LimitCharge};
use tidegate_store::{Store, StoreError};

/// The waits of the requests of a route.
#[derive(Clone, Copy, Debug)]
pub struct RouteWaits<'m> {
    pub metrics: &'m WaitMetrics,
    /// The end of the request's timeout. A request whose wait would end later is rejected at once, because it could not
    /// be forwarded.
    pub deadline: Option<Instant>,
    /// The id of the request, if it is decided once for an id.
    pub once: Option<&'m OnceAsk>,
}

/// A request that may wait.
pub(super) struct Waiting<'w, 'r> {
    pub(super) store: &'w Store,
    queues: &'w WaitQueues,
    pub(super) charges: &'w mut Charges<'r>,
    request: WaitingRequest,
    place: Place<'w>,
    /// The ticket of the place in the store.
    ticket: Option<StoredTicket<'w>>,
    /// Counts the time from the first wait on.
    record: WaitRecord<'w>,
    once: Option<&'w OnceAsk>,
}

/// A ticket that the store may have for the first requests of a queue. It is withdrawn on drop, unless a decision has removed
/// it.
struct StoredTicket<'s> {
    store: &'s Store,
    queues: &'s WaitQueues,
    charge: Option<Charge>,
}

/// The charges of a request that still waits for its time slot or for a slot of `concurrency`. They are given back on drop,
/// unless the request is admitted.
pub(super) struct Charged<'s> {
    store: &'s Store,
    refund: Option<Refund>,
}

impl<'w, 'r> Waiting<'w, 'r> {
    pub(super) fn new(
        store: &'w Store,
        queues: &'w WaitQueues,
        charges: &'w mut Charges<'r>,
        waits: RouteWaits<'w>,
    ) -> Self {
        let may_wait = charges.iter().any(|entry| entry.limit.wait_policy.is_some());
        let arrived_at = if may_wait { queues.now() } else { Duration::ZERO };
        let RouteWaits { metrics, deadline, once } = waits;
        let bounds = WaitBounds { arrived_at, deadline: deadline.map(|deadline| queues.time_of(deadline)) };
        let (request, place, record) = (WaitingRequest::new(charges, bounds), queues.place(), WaitRecord::new(metrics));
        Self { store, queues, charges, request, place, ticket: None, record, once }
    }

    /// Ends the wait with the decision about the request.
    pub(super) fn end(&mut self, is_admitted: bool) {
        self.record.end(is_admitted);
    }

    /// Waits until this request is first in its queue.
    pub(super) async fn wait_until_first(&mut self) -> Result<(), Denial> {
        let Some(joined) = self.request.joined().filter(|_| !self.place.is_first()) else { return Ok(()) };
        self.record.begin();
        tokio::select! {
            biased;
            () = self.place.wait_until_first() => Ok(()),
            () = sleep(self.remaining_wait()) => self.reject_from_queue(joined).await,
            () = self.queues.closed() => self.reject_from_queue(joined).await,
        }
    }

    /// Returns `true` if the request must not ask for permits now: it is refused by a known decision and may not wait, or
    /// others wait for one of its limits. The request then reads its other limits.
    pub(super) async fn is_refused_without_decision(&mut self) -> Result<bool, Denial> {
        let (bounds, is_first, queues) = (self.request.bounds, self.request.joined().is_some(), self.queues);
        // A first request is ahead of those that the known decisions are about.
        let is_final = |entry: &LimitCharge<'_>| match is_first {
            true => entry.limit.wait_policy.is_none(),
            false => !bounds.allow(entry, queues.now()),
        };
        if is_known_refusal(self.store, self.charges, is_final) {
            return Ok(true);
        }
        let behind = match self.next_step() {
            WaitStep::Take => return Ok(false),
            WaitStep::Reject(index) => {
                self.reject_from_queue(index).await?;
                return Ok(false);
            }
            WaitStep::Read(index) => index,
        };
        let read = match self.request.has_other_limits() {
            true => self.store.take(&self.charges.reads()).await.map(Some),
            false => Ok(None),
        };
        match read {
            Ok(outcome) => self.charges.decide(outcome.unwrap_or_default()),
            Err(error)
                if is_decided_locally(&self.limit(behind), &error) && denying(self.charges, &error).is_none() =>
            {
                self.charges.forget_decisions();
            }
            Err(_) => return Ok(false),
        }
        let now = self.queues.now();
        self.queues.with(|queues| self.request.refuse_behind(behind, self.charges, queues, now));
        Ok(true)
    }

    /// Refuses time slots beyond the deadline.
    pub(super) fn limit_delays(&mut self) {
        if let Some(deadline) = self.request.bounds.deadline {
            let millis = deadline.saturating_sub(self.queues.now()).as_millis();
            self.charges.limit_delays(u64::try_from(millis).unwrap_or(u64::MAX));
        }
    }

    /// Asks the store for permits. In Redis, the first request of a queue also asks for the ticket of its queue.
    pub(super) async fn take(&mut self, ask: Option<&SlotAsk<'_>>) -> Attempt {
        let ticketed =
            self.request.joined().filter(|joined| self.has_ticket(*joined)).map(|joined| self.with_ticket(joined));
        let attempt = match self.once {
            Some(once) => once.take(self.store, self.charges, ticketed).await,
            None => decide(self.store, self.charges, ticketed, ask).await,
        };
        if attempt.limits.is_err() || self.once.is_some_and(|once| once.earlier().is_some()) {
            return attempt;
        }
        let joined = self.request.joined().map(|joined| self.limit(joined).index);
        let is_held = {
            let mut refusing = self.charges.refusing().map(|entry| entry.index);
            refusing.next() == joined && refusing.next().is_none()
        };
        if let Some(ticket) = self.ticket.as_mut().filter(|_| !is_held) {
            ticket.charge = None; // the decision has removed this request from it
        }
        attempt
    }

    /// Returns the charges of the first request of a queue, with the ticket of the queue.
    fn with_ticket(&mut self, joined: usize) -> Vec<Charge> {
        let millis = u64::try_from(self.place.age().as_millis()).unwrap_or(u64::MAX);
        let start = QueueStart { queue: self.queues.id(), millis, ages: self.place.ages() };
        let mut charges = self.charges.as_slice().to_vec();
        let charge = &mut charges[self.request.position(joined)];
        charge.turn = Turn::First(Box::new(start));
        let charge = Some(Charge { permits: 0, ..charge.clone() });
        let ticket = StoredTicket { store: self.store, queues: self.queues, charge: None };
        self.ticket.get_or_insert(ticket).charge = charge;
        charges
    }

    /// Returns `true` if the first request that waits for this limit has a ticket in the store.
    fn has_ticket(&self, index: usize) -> bool {
        self.store.is_redis() && self.limit(index).charge.turn == Turn::Last
    }

    /// Waits for the refused permits. Returns an error if this request may not wait for them.
    pub(super) async fn wait_for_permits(&mut self, wait: Wait, unchecked: Option<StoreError>) -> Result<(), Denial> {
        let hold = if matches!(wait, Wait::Millis(_)) { self.join() } else { None };
        let Some(hold) = hold else { return Err(Denial::Limited { wait: self.charges.wait(), unchecked }) };
        self.record.begin();
        let Some(joined) = self.request.joined() else { return Ok(()) };
        let held = async {
            match hold {
                // In Redis, the first request of a queue asks again at once, for the ticket of its queue.
                Hold::Permits { is_new_first: true, .. } if self.has_ticket(joined) => {}
                Hold::Permits { wait, .. } => sleep(wait).await,
                Hold::Others => {}
                Hold::Claims(wait) => tokio::select! {
                    () = self.place.changed() => {}
                    () = sleep(wait.unwrap_or(Duration::MAX)) => {}
                },
            }
        };
        tokio::select! {
            biased;
            () = held => Ok(()),
            () = sleep(self.remaining_wait()) => self.reject_from_queue(joined).await,
            () = self.queues.closed() => Err(Denial::Limited { wait: self.charges.wait(), unchecked }),
        }
    }

    /// Delays a request until its time slot, which begins before the deadline.
    pub(super) async fn wait_for_time_slot(&mut self, admitted: Admitted) -> Result<Admitted, Denial> {
        self.leave();
        let delay = self.charges.delay();
        if delay == 0 {
            return Ok(admitted);
        }
        self.record.begin();
        if self.once.is_some() {
            // The receipt says that the slot is taken, so the slot is kept even if the client leaves or the gateway drains.
            sleep(Duration::from_millis(delay)).await;
            return Ok(admitted);
        }
        let charged = Charged::new(self.store, self.charges);
        tokio::select! {
            biased;
            () = sleep(Duration::from_millis(delay)) => {
                charged.keep();
                Ok(admitted)
            }
            () = self.queues.closed() => {
                Err(Denial::Limited { wait: Wait::Millis(delay), unchecked: admitted.unchecked })
            }
        }
    }

    /// Returns how long the request may still wait in its queue.
    fn remaining_wait(&self) -> Duration {
        self.request.ends_at(self.charges).saturating_sub(self.queues.now())
    }

    /// Returns the limit with this index in the order of the request.
    fn limit(&self, index: usize) -> LimitCharge<'_> {
        self.request.limit(index, self.charges)
    }

    /// Returns what the request does next. Needs no lock while no request waits.
    fn next_step(&self) -> WaitStep {
        match self.queues.is_empty() {
            true => WaitStep::Take,
            false => self.queues.with(|queues| self.request.next(self.charges, queues)),
        }
    }

    /// Joins the queue of the narrowest limit that refused the request, if it may wait for all that did.
    fn join(&mut self) -> Option<Hold> {
        let Self { charges, request, place, queues, .. } = self;
        let now = queues.now();
        place.change(|queues, place| request.join(charges, queues, place, now, wake))?
    }

    /// Leaves the queue after the decision that admitted the request.
    fn leave(&mut self) {
        if self.request.joined().is_some() {
            let now = self.queues.now();
            self.queues.with(|queues| self.request.record(self.charges, queues, now));
        }
        self.place.leave();
    }

    /// Rejects a request that may not wait for this limit, without charging it. The wait is the time until the next
    /// permit returns, as last decided while the store is connected. If the store fails, the request continues instead, and
    /// is decided without the store.
    async fn reject_from_queue(&mut self, index: usize) -> Result<(), Denial> {
        let (request, queues) = (&self.request, self.queues);
        let now = queues.now();
        let is_decided = self.store.is_connected()
            && queues.with(|queues| request.reject_as_decided(index, self.charges, queues, now));
        if !is_decided {
            let Ok(outcome) = self.store.take(&self.charges.reads()).await else { return Ok(()) };
            self.charges.decide(outcome);
            let now = queues.now();
            queues.with(|queues| request.reject_as_read(index, self.charges, queues, now));
        }
        Err(Denial::Limited { wait: self.charges.wait(), unchecked: None })
    }
}

impl Drop for StoredTicket<'_> {
    fn drop(&mut self) {
        let (Some(charge), Ok(runtime)) = (self.charge.take(), Handle::try_current()) else { return };
        // The next request of the queue replaces the ticket.
        if self.queues.is_waited_for(&charge.bucket_id()) {
            return;
        }
        let store = self.store.clone();
        runtime.spawn(async move { _ = store.take(&[charge]).await });
    }
}

impl<'s> Charged<'s> {
    pub(super) fn new(store: &'s Store, charges: &Charges<'_>) -> Self {
        Self { store, refund: Some(Refund::new(charges, |_| true)) }
    }

    /// Keeps the charges of an admitted request.
    pub(super) fn keep(mut self) {
        self.refund = None;
    }

    /// Gives the charges back.
    pub(super) async fn give_back(mut self) {
        if let Some(refund) = self.refund.take() {
            refund.send(self.store).await;
        }
    }
}

impl Drop for Charged<'_> {
    fn drop(&mut self) {
        let (Some(refund), Ok(runtime)) = (self.refund.take(), Handle::try_current()) else { return };
        let store = self.store.clone();
        runtime.spawn(async move { refund.send(&store).await });
    }
}
