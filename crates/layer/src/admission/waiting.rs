//! A request that may wait: for earlier requests, for its permits, and for its time slot.
//!
//! It waits only in the queue of the narrowest limit that refuses it, and asks the store for permits only if no request
//! waits for a limit after that one. Otherwise it only reads its limits, so that it does not wait for a limit of all
//! clients while another limit refuses it.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::charge_on::Refund;
use super::order::narrowest_first;
use super::queue::{Claim, JoinError, Place, WaitQueues};
use super::{Admitted, Attempt, Denial, SlotAsk, decide, denying, is_decided_locally, is_known_refusal};
use tidegate_limit::Wait;
use tidegate_metrics::{WaitMetrics, WaitRecord};
use tidegate_rules::charge::{BucketId, Charge, Decision, QueueStart, Turn};
use tidegate_rules::rules::{Charges, LimitCharge, Positions};
use tidegate_store::{Store, StoreError};

/// The waits of the requests of a route.
#[derive(Clone, Copy, Debug)]
pub struct RouteWaits<'m> {
    pub metrics: &'m WaitMetrics,
    /// The end of the request's timeout. A request whose wait would end later is rejected at once, because it could not
    /// be forwarded.
    pub deadline: Option<Instant>,
}

/// A request that may wait.
pub(super) struct Waiting<'w, 'r> {
    pub(super) store: &'w Store,
    queues: &'w WaitQueues,
    pub(super) charges: &'w mut Charges<'r>,
    /// The positions of the live charges, the narrowest limit first.
    order: Positions,
    bounds: WaitBounds,
    place: Place<'w>,
    /// The ticket of the place in the store.
    ticket: Option<StoredTicket<'w>>,
    /// The limit that the request waits for, by its index in `order`.
    joined: Option<usize>,
    /// The limit that refused the request because others wait for it.
    behind: Option<usize>,
    /// Counts the time from the first wait on.
    record: WaitRecord<'w>,
}

/// The bounds of a request's wait.
#[derive(Clone, Copy)]
struct WaitBounds {
    /// The arrival time, if a limit lets the request wait.
    arrived_at: Option<Instant>,
    /// The end of the request's timeout.
    deadline: Option<Instant>,
}

/// The reason why a request waits in its queue.
enum Hold {
    /// Its permits return after this time.
    Permits(Duration),
    /// Other requests are before it.
    Others,
    /// Other requests have claimed the free permits. More permits return after this time, if any are in use.
    Claims(Option<Duration>),
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
        let RouteWaits { metrics, deadline } = waits;
        let bounds = WaitBounds { arrived_at: may_wait.then(Instant::now), deadline };
        let (order, place, record) = (narrowest_first(charges), queues.place(), WaitRecord::new(metrics));
        Self { store, queues, charges, order, bounds, place, ticket: None, joined: None, behind: None, record }
    }

    /// Ends the wait with the decision about the request.
    pub(super) fn end(&mut self, is_admitted: bool) {
        self.record.end(is_admitted);
    }

    /// Waits until this request is first in its queue.
    pub(super) async fn wait_until_first(&mut self) -> Result<(), Denial> {
        let Some(joined) = self.joined.filter(|_| !self.place.is_first()) else { return Ok(()) };
        self.record.begin();
        tokio::select! {
            biased;
            () = self.place.wait_until_first() => Ok(()),
            () = sleep(self.patience(joined)) => self.reject_from_queue(joined).await,
            () = self.queues.closed() => self.reject_from_queue(joined).await,
        }
    }

    /// Returns `true` if the request must not ask for permits now: it is refused by a known decision and may not wait, or
    /// others wait for one of its limits. The request then reads its other limits.
    pub(super) async fn is_refused_without_decision(&mut self) -> Result<bool, Denial> {
        let (bounds, is_first) = (self.bounds, self.joined.is_some());
        // A first request is ahead of those that the known decisions are about.
        let is_final = |entry: &LimitCharge<'_>| match is_first {
            true => entry.limit.wait_policy.is_none(),
            false => !bounds.allow(entry),
        };
        if is_known_refusal(self.store, self.charges, is_final) {
            return Ok(true);
        }
        let Some(behind) = self.queue_ahead() else { return Ok(false) };
        let entry = self.limit(behind);
        let queue = entry.limit.wait_policy.map_or(0, |wait_policy| wait_policy.queue.max(1));
        if self.queues.count(&entry.charge.bucket_id()) >= queue {
            self.reject_from_queue(behind).await?;
            return Ok(false);
        }
        let read = if self.order.len() > 1 { self.store.take(&self.charges.reads()).await.map(Some) } else { Ok(None) };
        match read {
            Ok(outcome) => self.charges.decide(outcome.unwrap_or_default()),
            Err(error)
                if is_decided_locally(&self.limit(behind), &error) && denying(self.charges, &error).is_none() =>
            {
                self.charges.forget_decisions();
            }
            Err(_) => return Ok(false),
        }
        let charge = self.limit(behind).charge;
        let known = self.queues.last_decision(&charge.bucket_id());
        let (remaining, wait) = known.filter(|(remaining, _)| *remaining < charge.permits).unwrap_or((0, 0));
        self.charges.refuse(self.position(behind), remaining, wait);
        self.behind = Some(behind);
        Ok(true)
    }

    /// Refuses time slots beyond the deadline.
    pub(super) fn limit_delays(&mut self) {
        if let Some(deadline) = self.bounds.deadline {
            let millis = deadline.saturating_duration_since(Instant::now()).as_millis();
            self.charges.limit_delays(u64::try_from(millis).unwrap_or(u64::MAX));
        }
    }

    /// Asks the store for permits. In Redis, the first request of a queue also asks for the ticket of its queue.
    pub(super) async fn take(&mut self, ask: Option<&SlotAsk<'_>>) -> Attempt {
        let ticketed = self.joined.filter(|joined| self.has_ticket(*joined)).map(|joined| self.with_ticket(joined));
        let attempt = decide(self.store, self.charges, ticketed, ask).await;
        if attempt.limits.is_err() {
            return attempt;
        }
        let joined = self.joined.map(|joined| self.limit(joined).index);
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
        let charge = &mut charges[self.position(joined)];
        charge.turn = Turn::First(Box::new(start));
        let charge = Some(Charge { permits: 0, ..charge.clone() });
        let ticket = StoredTicket { store: self.store, queues: self.queues, charge: None };
        self.ticket.get_or_insert(ticket).charge = charge;
        charges
    }

    /// Returns `true` if the first request that waits for the limit with this index in `order` has a ticket in the store.
    fn has_ticket(&self, index: usize) -> bool {
        self.store.is_redis() && self.limit(index).charge.turn == Turn::Last
    }

    /// Waits for the refused permits. Returns an error if this request may not wait for them.
    pub(super) async fn wait_for_permits(&mut self, wait: Wait, unchecked: Option<StoreError>) -> Result<(), Denial> {
        let hold = if matches!(wait, Wait::Millis(_)) { self.join() } else { None };
        let Some(hold) = hold else { return Err(Denial::Limited { wait: self.charges.wait(), unchecked }) };
        self.record.begin();
        let Some(joined) = self.joined else { return Ok(()) };
        let held = async {
            match hold {
                Hold::Permits(wait) => sleep(wait).await,
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
            () = sleep(self.patience(joined)) => self.reject_from_queue(joined).await,
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
        let charged = Charged::new(self.store, self.charges);
        self.record.begin();
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

    /// Returns how long the request may still wait for a limit.
    fn patience(&self, index: usize) -> Duration {
        let max_wait = self.limit(index).limit.wait_policy.map_or(Duration::ZERO, |wait_policy| wait_policy.max_wait);
        self.bounds.cut(max_wait.saturating_sub(self.bounds.waited()))
    }

    /// Returns the position of the charge with this index in `order`.
    fn position(&self, index: usize) -> usize {
        self.order[index].into()
    }

    /// Returns the limit with this index in `order`.
    fn limit(&self, index: usize) -> LimitCharge<'_> {
        self.charges.at(self.position(index))
    }

    /// Returns the first limit after the one that the request waits for that other requests wait for.
    fn queue_ahead(&self) -> Option<usize> {
        if self.queues.is_empty() {
            return None;
        }
        let first = self.joined.map_or(0, |joined| joined + 1);
        let is_waited_for = |index: &usize| {
            let entry = self.limit(*index);
            entry.limit.wait_policy.is_some() && self.queues.is_waited_for(&entry.charge.bucket_id())
        };
        (first..self.order.len()).find(is_waited_for)
    }

    /// Joins the queue of the narrowest limit that refused the request, if it may wait for all that did.
    fn join(&mut self) -> Option<Hold> {
        let (behind, before) = (self.behind.take(), self.joined);
        let refused = |index: &usize| self.limit(*index).is_refused();
        let mut index = (0..self.order.len()).find(refused)?;
        if !(index..self.order.len()).filter(refused).all(|index| self.bounds.allow(&self.limit(index))) {
            return None;
        }
        let mut claimed = None;
        loop {
            match self.join_queue(index) {
                Ok(bucket) => {
                    let decision = *self.limit(index).decision?;
                    self.joined = Some(index);
                    return match (claimed, decision.wait) {
                        (Some(claim), _) if self.place.is_first() && !self.queues.has_free(&claim) => {
                            Some(Hold::Claims((decision.reset > 0).then_some(Duration::from_millis(decision.reset))))
                        }
                        (None, Wait::Millis(wait)) if behind != Some(index) => {
                            self.queues.record(&bucket, &decision);
                            let asks_for_ticket = behind.is_none() && before != Some(index) && self.place.is_first();
                            if asks_for_ticket && self.has_ticket(index) {
                                return Some(Hold::Others); // first: asks again immediately
                            }
                            Some(Hold::Permits(Duration::from_millis(wait)))
                        }
                        _ => Some(Hold::Others),
                    };
                }
                Err(JoinError::Full) => return None,
                Err(JoinError::Claimed(claim)) => {
                    // A narrower limit refuses the request, too.
                    index = claim.index;
                    let reset = self.limit(index).decision?.reset;
                    self.charges.refuse(self.position(index), 0, reset);
                    if !self.bounds.allow(&self.limit(index)) {
                        return None;
                    }
                    claimed = Some(claim);
                }
            }
        }
    }

    /// Joins the queue of a limit, and claims the permits of all narrower limits. Returns the bucket.
    fn join_queue(&mut self, index: usize) -> Result<BucketId, JoinError> {
        let entry = self.limit(index);
        let claim = |index: usize| {
            let entry = self.limit(index);
            let granted = entry.decision.filter(|_| entry.charge.limiter.shards().is_empty())?;
            let (bucket, permits) = (bucket_of(&entry), entry.charge.permits);
            Some(Claim { index, bucket, permits, free: granted.remaining })
        };
        let claims = (0..index).filter_map(claim).collect();
        let bucket = bucket_of(&entry);
        let queue = entry.limit.wait_policy.map_or(0, |wait_policy| wait_policy.queue);
        self.place.join(bucket.clone(), queue, claims)?;
        Ok(bucket)
    }

    /// Leaves the queue after the decision about the request.
    fn leave(&mut self) {
        if let Some(entry) = self.joined.take().map(|joined| self.limit(joined))
            && let Some(decision) = entry.decision
        {
            self.queues.record(&bucket_of(&entry), decision);
        }
        self.place.leave();
    }

    /// Rejects a request that may not wait for this limit, without charging it. The wait is the time until the next
    /// permit returns, as last decided while the store is connected. If the store fails, the request continues instead, and
    /// is decided without the store.
    async fn reject_from_queue(&mut self, index: usize) -> Result<(), Denial> {
        let bucket = self.limit(index).charge.bucket_id();
        let (remaining, wait) = match self.queues.last_decision(&bucket).filter(|_| self.store.is_connected()) {
            Some(last) => {
                self.charges.forget_decisions();
                last
            }
            None => {
                let Ok(outcome) = self.store.take(&self.charges.reads()).await else { return Ok(()) };
                self.charges.decide(outcome);
                let decision = self.limit(index).decision.copied().unwrap_or(Decision::UNKNOWN);
                self.queues.record(&bucket, &decision);
                (decision.remaining, decision.reset)
            }
        };
        self.charges.refuse(self.position(index), remaining, wait);
        Err(Denial::Limited { wait: self.charges.wait(), unchecked: None })
    }
}

impl WaitBounds {
    /// Returns how long the request has waited.
    fn waited(&self) -> Duration {
        self.arrived_at.map_or(Duration::ZERO, |arrived_at| arrived_at.elapsed())
    }

    /// Returns `true` if the request may wait until the limit grants it.
    fn allow(&self, entry: &LimitCharge<'_>) -> bool {
        let wait = entry.decision.map(|decision| decision.wait);
        let (Some(wait_policy), Some(Wait::Millis(wait))) = (&entry.limit.wait_policy, wait) else {
            return false;
        };
        let wait = Duration::from_millis(wait);
        self.waited() + wait <= wait_policy.max_wait && self.ends_in_time(wait)
    }

    /// Returns `true` if a wait that begins now ends before the deadline.
    fn ends_in_time(&self, wait: Duration) -> bool {
        self.deadline.is_none_or(|deadline| Instant::now() + wait < deadline)
    }

    /// Returns the wait, or the time until the deadline if that is shorter.
    fn cut(&self, wait: Duration) -> Duration {
        self.deadline.map_or(wait, |deadline| wait.min(deadline.saturating_duration_since(Instant::now())))
    }
}

/// Returns the bucket that decided. One bucket for all clients beyond the store's capacity: otherwise each client of a
/// flood would wait in its own queue.
pub(super) fn bucket_of(entry: &LimitCharge<'_>) -> BucketId {
    match entry.decision {
        Some(decision) if decision.overflow => (entry.charge.limiter.name.clone(), None),
        _ => entry.charge.bucket_id(),
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
