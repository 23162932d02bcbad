//! A request that may wait: until it is first in its queues, for its permits, and for its time slot.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::queue::{QueueFull, QueueKind, Ticket, WaitQueues};
use super::{Admitted, Denial, LimitStatus, Receipt};
use crate::limit::{Charge, Wait};
use crate::metrics::{WaitMetrics, WaitRecord};
use crate::rules::{Charges, LimitCharge, Positions};
use crate::store::Store;

/// The waits of the requests of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteWaits<'m> {
    pub(crate) metrics: &'m WaitMetrics,
    /// The end of the request's timeout. A request whose wait would end later is rejected at once, because it could not
    /// be forwarded.
    pub(crate) deadline: Option<Instant>,
}

/// A request that may wait.
pub(super) struct Waiting<'w> {
    store: &'w Store,
    queues: &'w WaitQueues,
    charges: &'w Charges<'w>,
    /// The arrival time, if a limit lets the request wait.
    arrived_at: Option<Instant>,
    deadline: Option<Instant>,
    ticket: Option<Ticket<'w>>,
    /// Counts the time from the first wait on.
    record: WaitRecord<'w>,
}

/// A time slot in the future. It is given back on drop, unless it was reached.
struct TimeSlot<'s> {
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
        Self { store, queues, charges, arrived_at, deadline, ticket: None, record: WaitRecord::new(metrics) }
    }

    /// Ends the wait with the decision about the request.
    pub(super) fn end(&mut self, is_admitted: bool) {
        self.record.end(is_admitted);
    }

    /// Joins the queues in which other requests already wait.
    pub(super) async fn queue_behind_others(&mut self) -> Result<(), Denial> {
        let waited_for = |one: &LimitCharge<'_>| allows_waiting(one) && self.queues.is_waited_for(one.charge);
        let waited_for = self.positions(waited_for);
        match self.join(&waited_for, |_| QueueKind::Own) {
            Ok(()) => Ok(()),
            Err(QueueFull) => self.reject_from_queue(&waited_for).await,
        }
    }

    /// Waits until this request is first in its queues.
    pub(super) async fn wait_until_first(&mut self) -> Result<(), Denial> {
        let Some(ticket) = &self.ticket else { return Ok(()) };
        self.record.begin();
        let joined = self.positions(|one| ticket.waits_for(one.charge));
        let wait_policy = joined.iter().filter_map(|position| self.charges.at(*position).limit.wait_policy.as_ref());
        let shortest = wait_policy.map(|wait_policy| wait_policy.max_wait).min().unwrap_or(Duration::ZERO);
        tokio::select! {
            biased;
            () = ticket.wait_until_first() => Ok(()),
            () = sleep(self.cut(shortest.saturating_sub(self.waited()))) => self.reject_from_queue(&joined).await,
            () = self.queues.closed() => self.reject_from_queue(&joined).await,
        }
    }

    /// Waits for the refused permits. Returns an error if this request may not wait for them.
    pub(super) async fn wait_for_permits(&mut self, status: LimitStatus, wait: Wait) -> Result<(), Denial> {
        let live = self.positions(|one| !one.limit.shadow);
        let refused: Positions = live.into_iter().filter(|one| status.refused(&self.charges.at(*one))).collect();
        let all_may = refused.iter().all(|one| self.may_wait(&self.charges.at(*one), &status));
        let Wait::Millis(millis) = wait else { return Err(Denial::Limited { status, wait }) };
        // One queue for the overflow bucket: otherwise each client of a flood would wait in its own queue.
        let queue_kind = |one: &LimitCharge<'_>| match status.decision(one.index) {
            Some(decision) if decision.overflow => QueueKind::Overflow,
            _ => QueueKind::Own,
        };
        if !all_may || self.join(&refused, queue_kind).is_err() {
            return Err(Denial::Limited { status, wait });
        }
        self.record.begin();
        tokio::select! {
            biased;
            () = sleep(Duration::from_millis(millis)) => Ok(()),
            () = self.queues.closed() => Err(Denial::Limited { status, wait }),
        }
    }

    /// Delays a request until its time slot.
    pub(super) async fn wait_for_time_slot(&mut self, admitted: Admitted) -> Result<Admitted, Denial> {
        let delay = admitted.status.delay(self.charges);
        if delay == 0 {
            return Ok(admitted);
        }
        let receipt = Receipt::new(self.charges.clone(), admitted.status.clone());
        let mut slot = TimeSlot { store: self.store, receipt: Some(receipt) };
        if !self.ends_in_time(Duration::from_millis(delay)) {
            // Before the response, so that the next request finds the slot free.
            if let Some(receipt) = slot.receipt.take() {
                receipt.give_back(self.store).await;
            }
            return Err(Denial::Limited { status: admitted.status, wait: Wait::Millis(delay) });
        }
        self.record.begin();
        tokio::select! {
            biased;
            () = sleep(Duration::from_millis(delay)) => {
                slot.receipt = None;
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

    fn join(
        &mut self,
        positions: &[usize],
        queue_kind: impl Fn(&LimitCharge<'_>) -> QueueKind,
    ) -> Result<(), QueueFull> {
        for position in positions {
            let one = self.charges.at(*position);
            let queue = one.limit.wait_policy.as_ref().map_or(0, |wait_policy| wait_policy.queue);
            self.ticket.get_or_insert_with(|| self.queues.ticket()).join(one.charge, queue_kind(&one), queue)?;
        }
        Ok(())
    }

    /// Rejects a request that may not wait in these queues, without charging it. The wait is the time until the next
    /// permit returns. If the store fails, the request continues instead, and is decided without the store.
    async fn reject_from_queue(&self, queues: &[usize]) -> Result<(), Denial> {
        let ask = |charge: &Charge| Charge { permits: 0, ..charge.clone() };
        let asked: Vec<Charge> = self.charges.as_slice().iter().map(ask).collect();
        let Ok(mut outcome) = self.store.take(&asked).await else { return Ok(()) };
        for position in queues {
            let decision = &mut outcome.decisions[*position];
            (decision.granted, decision.wait) = (false, Wait::Millis(decision.reset));
        }
        let status = LimitStatus::new(self.charges, outcome);
        Err(Denial::Limited { wait: status.wait, status })
    }

    /// Returns the positions of the matching charges.
    fn positions(&self, which: impl Fn(&LimitCharge<'_>) -> bool) -> Positions {
        self.charges.iter().enumerate().filter(|(_, one)| which(one)).map(|(position, _)| position).collect()
    }
}

/// Returns `true` if requests may wait for this limit.
fn allows_waiting(one: &LimitCharge<'_>) -> bool {
    !one.limit.shadow && one.limit.wait_policy.is_some()
}

impl Drop for TimeSlot<'_> {
    fn drop(&mut self) {
        let (Some(receipt), Ok(runtime)) = (self.receipt.take(), Handle::try_current()) else { return };
        let store = self.store.clone();
        runtime.spawn(async move { receipt.give_back(&store).await });
    }
}
