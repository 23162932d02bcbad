//! A request that may wait: for earlier requests, for its permits, and for its time slot.
//!
//! It waits only in the queue of the narrowest limit that refuses it, and asks the store for permits only if no request
//! waits for a limit after that one. Otherwise it only reads its limits, so that it does not wait for a limit of all
//! clients while another limit refuses it.

use std::borrow::Cow;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::order::narrowest_first;
use super::queue::{Claim, JoinError, Place, WaitQueues};
use super::{
    Admitted, Decided, Denial, LimitStatus, Receipt, SlotAsk, decide_as, denying, is_decided_locally, known_refusal,
};
use tidegate_limit::{BucketId, Charge, Decision, QueueStart, Turn, Wait};
use tidegate_metrics::{WaitMetrics, WaitRecord};
use tidegate_rules::rules::{Charges, LimitCharge, Positions};
use tidegate_store::Store;

/// The waits of the requests of a route.
#[derive(Clone, Copy, Debug)]
pub struct RouteWaits<'m> {
    pub metrics: &'m WaitMetrics,
    /// The end of the request's timeout. A request whose wait would end later is rejected at once, because it could not
    /// be forwarded.
    pub deadline: Option<Instant>,
}

/// A request that may wait.
pub(super) struct Waiting<'w> {
    store: &'w Store,
    queues: &'w WaitQueues,
    charges: &'w Charges<'w>,
    /// The positions of the live charges, the narrowest limit first.
    order: Positions,
    /// The arrival time, if a limit lets the request wait.
    arrived_at: Option<Instant>,
    deadline: Option<Instant>,
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
    receipt: Option<Receipt>,
}

impl<'w> Waiting<'w> {
    pub(super) fn new(
        store: &'w Store,
        queues: &'w WaitQueues,
        charges: &'w Charges<'w>,
        waits: RouteWaits<'w>,
    ) -> Self {
        let may_wait = charges.iter().any(|one| one.limit.wait_policy.is_some());
        let arrived_at = may_wait.then(Instant::now);
        let RouteWaits { metrics, deadline } = waits;
        let (order, place, record) = (narrowest_first(charges), queues.place(), WaitRecord::new(metrics));
        Self {
            store,
            queues,
            charges,
            order,
            arrived_at,
            deadline,
            place,
            ticket: None,
            joined: None,
            behind: None,
            record,
        }
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

    /// Returns the refusal of a request that must not ask for permits now: it is refused by a known decision and may not
    /// wait, or others wait for one of its limits. The request then reads its other limits.
    pub(super) async fn refusal_without_decision(
        &mut self,
        charges: &Charges<'_>,
    ) -> Result<Option<LimitStatus>, Denial> {
        // A first request is ahead of those that the known decisions are about.
        let is_final = |one: &LimitCharge<'_>, status: &LimitStatus| match self.joined {
            Some(_) => one.limit.wait_policy.is_none(),
            None => !self.may_wait(one, status),
        };
        if let Some(status) = known_refusal(self.store, charges, is_final) {
            return Ok(Some(status));
        }
        let Some(behind) = self.queue_ahead() else { return Ok(None) };
        let one = self.limit(behind);
        let queue = one.limit.wait_policy.map_or(0, |wait_policy| wait_policy.queue.max(1));
        if self.queues.count(&one.charge.bucket_id()) >= queue {
            self.reject_from_queue(behind).await?;
            return Ok(None);
        }
        let read = if self.order.len() > 1 { self.store.take(&self.charges.reads()).await.map(Some) } else { Ok(None) };
        let mut status = match read {
            Ok(outcome) => outcome.map_or_else(LimitStatus::default, |outcome| LimitStatus::new(self.charges, outcome)),
            Err(error) if is_decided_locally(&one, &error) && denying(self.charges, &error).is_none() => {
                LimitStatus::default()
            }
            Err(_) => return Ok(None),
        };
        let known = self.queues.last_decision(&one.charge.bucket_id());
        let (remaining, wait) = known.filter(|(remaining, _)| *remaining < one.charge.permits).unwrap_or((0, 0));
        status.refuse(one.index, remaining, wait);
        self.behind = Some(behind);
        Ok(Some(status))
    }

    /// Returns the charges that refuse time slots beyond the deadline, if the deadline is the earlier bound.
    pub(super) fn timely_charges(&self) -> Option<Box<Charges<'w>>> {
        let left = self.deadline?.saturating_duration_since(Instant::now()).as_millis();
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        let is_late = |one: &LimitCharge<'_>| !one.limit.shadow && one.charge.patience() > left;
        if !self.charges.iter().any(|one| is_late(&one)) {
            return None;
        }
        let mut charges = Box::new(self.charges.clone());
        charges.set_turns(|one| if is_late(one) { Turn::Within { millis: left } } else { one.charge.turn.clone() });
        Some(charges)
    }

    /// Asks the store for permits. In Redis, the first request of a queue also asks for the ticket of its queue.
    pub(super) async fn take(&mut self, charges: &Charges<'_>, ask: Option<&SlotAsk<'_>>) -> Decided {
        let mut asked = Cow::Borrowed(charges.as_slice());
        if let Some(position) = self.joined.map(|joined| self.order[joined])
            && self.has_ticket(position)
        {
            let millis = u64::try_from(self.place.age().as_millis()).unwrap_or(u64::MAX);
            let start = QueueStart { queue: self.queues.id(), millis, ages: self.place.ages() };
            let charge = &mut asked.to_mut()[position];
            charge.turn = Turn::First(Box::new(start));
            let charge = Some(Charge { permits: 0, ..charge.clone() });
            self.ticket.get_or_insert(StoredTicket { store: self.store, queues: self.queues, charge: None }).charge =
                charge;
        }
        let decided = decide_as(self.store, charges, &asked, ask).await;
        let Ok(status) = &decided.limits else { return decided };
        let joined = self.joined.map(|joined| self.limit(joined).index);
        let is_held = {
            let mut refusing = status.refusing(self.charges).map(|one| one.index);
            refusing.next() == joined && refusing.next().is_none()
        };
        if let Some(ticket) = self.ticket.as_mut().filter(|_| !is_held) {
            ticket.charge = None; // the decision has removed this request from it
        }
        decided
    }

    /// Returns `true` if the first request that waits for this charge has a ticket in the store.
    fn has_ticket(&self, position: usize) -> bool {
        self.store.is_redis() && self.charges.at(position).charge.turn == Turn::Last
    }

    /// Waits for the refused permits. Returns an error if this request may not wait for them.
    pub(super) async fn wait_for_permits(&mut self, mut status: LimitStatus, wait: Wait) -> Result<(), Denial> {
        let hold = if matches!(wait, Wait::Millis(_)) { self.join(&mut status) } else { None };
        let Some(hold) = hold else { return Err(Denial::Limited { wait: status.wait, status }) };
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
            () = self.queues.closed() => Err(Denial::Limited { wait: status.wait, status }),
        }
    }

    /// Delays a request until its time slot, which begins before the deadline.
    pub(super) async fn wait_for_time_slot(&mut self, admitted: Admitted) -> Result<Admitted, Denial> {
        self.leave(&admitted.status);
        let delay = admitted.status.delay(self.charges);
        if delay == 0 {
            return Ok(admitted);
        }
        let charged = Charged::new(self.store, Receipt::new(self.charges.clone(), admitted.status.clone()));
        self.record.begin();
        tokio::select! {
            biased;
            () = sleep(Duration::from_millis(delay)) => {
                charged.keep();
                Ok(admitted)
            }
            () = self.queues.closed() => {
                Err(Denial::Limited { status: admitted.status, wait: Wait::Millis(delay) })
            }
        }
    }

    /// Returns how long the request has waited.
    fn waited(&self) -> Duration {
        self.arrived_at.map_or(Duration::ZERO, |arrived_at| arrived_at.elapsed())
    }

    fn may_wait(&self, one: &LimitCharge<'_>, status: &LimitStatus) -> bool {
        let wait = status.decision(one.index).map(|decision| decision.wait);
        let (Some(wait_policy), Some(Wait::Millis(wait))) = (&one.limit.wait_policy, wait) else {
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

    /// Returns how long the request may still wait for a limit.
    fn patience(&self, index: usize) -> Duration {
        let max_wait = self.limit(index).limit.wait_policy.map_or(Duration::ZERO, |wait_policy| wait_policy.max_wait);
        self.cut(max_wait.saturating_sub(self.waited()))
    }

    /// Returns the limit with this index in `order`.
    fn limit(&self, index: usize) -> LimitCharge<'w> {
        self.charges.at(self.order[index])
    }

    /// Returns the first limit after the one that the request waits for that other requests wait for.
    fn queue_ahead(&self) -> Option<usize> {
        if self.queues.is_empty() {
            return None;
        }
        let first = self.joined.map_or(0, |joined| joined + 1);
        let is_waited_for = |index: &usize| {
            let one = self.limit(*index);
            one.limit.wait_policy.is_some() && self.queues.is_waited_for(&one.charge.bucket_id())
        };
        (first..self.order.len()).find(is_waited_for)
    }

    /// Joins the queue of the narrowest limit that refused the request, if it may wait for all that did.
    fn join(&mut self, status: &mut LimitStatus) -> Option<Hold> {
        let (behind, before) = (self.behind.take(), self.joined);
        let refused = |index: &usize| status.refused(&self.limit(*index));
        let mut index = (0..self.order.len()).find(refused)?;
        if !(index..self.order.len()).filter(refused).all(|index| self.may_wait(&self.limit(index), status)) {
            return None;
        }
        let mut claimed = None;
        loop {
            match self.join_queue(index, status) {
                Ok(bucket) => {
                    let decision = *status.decision(self.limit(index).index)?;
                    self.joined = Some(index);
                    return match (claimed, decision.wait) {
                        (Some(claim), _) if self.place.is_first() && !self.queues.has_free(&claim) => {
                            Some(Hold::Claims((decision.reset > 0).then_some(Duration::from_millis(decision.reset))))
                        }
                        (None, Wait::Millis(wait)) if behind != Some(index) => {
                            self.queues.record(&bucket, &decision);
                            let asks_for_ticket = behind.is_none() && before != Some(index) && self.place.is_first();
                            if asks_for_ticket && self.has_ticket(self.order[index]) {
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
                    let one = self.limit(index);
                    status.refuse(one.index, 0, status.decision(one.index)?.reset);
                    if !self.may_wait(&one, status) {
                        return None;
                    }
                    claimed = Some(claim);
                }
            }
        }
    }

    /// Joins the queue of a limit, and claims the permits of all narrower limits. Returns the bucket.
    fn join_queue(&mut self, index: usize, status: &LimitStatus) -> Result<BucketId, JoinError> {
        let one = self.limit(index);
        let claim = |index: usize| {
            let one = self.limit(index);
            let granted = status.decision(one.index).filter(|_| one.charge.limiter.shards().is_empty())?;
            let (bucket, permits) = (bucket_of(&one, status), one.charge.permits);
            Some(Claim { index, bucket, permits, free: granted.remaining })
        };
        let claims = (0..index).filter_map(claim).collect();
        let bucket = bucket_of(&one, status);
        let queue = one.limit.wait_policy.map_or(0, |wait_policy| wait_policy.queue);
        self.place.join(bucket.clone(), queue, claims)?;
        Ok(bucket)
    }

    /// Leaves the queue after the decision about the request.
    fn leave(&mut self, status: &LimitStatus) {
        if let Some(one) = self.joined.take().map(|joined| self.limit(joined))
            && let Some(decision) = status.decision(one.index)
        {
            self.queues.record(&bucket_of(&one, status), decision);
        }
        self.place.leave();
    }

    /// Rejects a request that may not wait for this limit, without charging it. The wait is the time until the next
    /// permit returns, as last decided while the store is connected. If the store fails, the request continues instead, and
    /// is decided without the store.
    async fn reject_from_queue(&self, index: usize) -> Result<(), Denial> {
        let one = self.limit(index);
        let bucket = one.charge.bucket_id();
        let status = match self.queues.last_decision(&bucket).filter(|_| self.store.is_connected()) {
            Some((remaining, wait)) => {
                let mut status = LimitStatus::default();
                status.refuse(one.index, remaining, wait);
                status
            }
            None => {
                let Ok(outcome) = self.store.take(&self.charges.reads()).await else { return Ok(()) };
                let mut status = LimitStatus::new(self.charges, outcome);
                let decision = status.decision(one.index).copied().unwrap_or(Decision::new(0, Wait::Now, 0));
                self.queues.record(&bucket, &decision);
                status.refuse(one.index, decision.remaining, decision.reset);
                status
            }
        };
        Err(Denial::Limited { wait: status.wait, status })
    }
}

/// Returns the bucket that decided. One bucket for all clients beyond the store's capacity: otherwise each client of a
/// flood would wait in its own queue.
pub(super) fn bucket_of(one: &LimitCharge<'_>, status: &LimitStatus) -> BucketId {
    match status.decision(one.index) {
        Some(decision) if decision.overflow => (one.charge.limiter.name.clone(), None),
        _ => one.charge.bucket_id(),
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
    pub(super) fn new(store: &'s Store, receipt: Receipt) -> Self {
        Self { store, receipt: Some(receipt) }
    }

    /// Keeps the charges of an admitted request.
    pub(super) fn keep(mut self) {
        self.receipt = None;
    }

    /// Gives the charges back.
    pub(super) async fn give_back(mut self) {
        if let Some(receipt) = self.receipt.take() {
            receipt.give_back(self.store).await;
        }
    }
}

impl Drop for Charged<'_> {
    fn drop(&mut self) {
        let (Some(receipt), Ok(runtime)) = (self.receipt.take(), Handle::try_current()) else { return };
        let store = self.store.clone();
        runtime.spawn(async move { receipt.give_back(&store).await });
    }
}
