//! Requests that wait for permits (`max_wait`), in virtual time: the steps of [`wait`](tidegate_rules::evaluation::wait), as
//! in the gateway, with events in place of tasks.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use crate::engine::decider::Decider;
use crate::report::decided::{Decided, Origin};
use tidegate_rules::evaluation::wait::{Hold, Place, WaitBounds, WaitQueues, WaitStep, WaitingRequest};
use tidegate_rules::rules::Charges;

/// The waiting requests, by their tickets, and their queues.
#[derive(Debug, Default)]
pub(crate) struct Waiting<'r> {
    queues: WaitQueues<u64>,
    requests: HashMap<u64, Sleeper<'r>>,
    /// When requests continue: the time, the order among equal times, and the ticket.
    events: BinaryHeap<Reverse<(u64, u64, u64)>>,
    next_event: u64,
    next_ticket: u64,
}

/// A request that waits.
#[derive(Debug)]
struct Sleeper<'r> {
    ticket: u64,
    origin: Origin,
    charges: Charges<'r>,
    request: WaitingRequest,
    place: Place<u64>,
    /// The request sleeps until this time, and then waits until it is the first in its queue.
    asleep_until: u64,
    /// Whether the request wakes if claims on its bucket are given up.
    waits_for_claims: bool,
}

impl<'r> Waiting<'r> {
    /// Decides a new request, or lets it wait. [`advance`](Self::advance) must have handled all earlier events.
    pub(crate) fn arrive(
        &mut self,
        origin: Origin,
        charges: Charges<'r>,
        decider: &Decider,
        decided: &mut Vec<Decided<'r>>,
    ) {
        self.next_ticket += 1;
        let bounds = WaitBounds { arrived_at: Duration::from_millis(decider.now()), deadline: None };
        let sleeper = Sleeper {
            ticket: self.next_ticket,
            origin,
            request: WaitingRequest::new(&charges, bounds),
            charges,
            place: Place::new(self.next_ticket),
            asleep_until: decider.now(),
            waits_for_claims: false,
        };
        self.decide(sleeper, decider, decided);
    }

    /// Continues the requests whose events are due at this time or before.
    pub(crate) fn advance(&mut self, to: u64, decider: &Decider, decided: &mut Vec<Decided<'r>>) {
        while let Some(Reverse((at, _, _))) = self.events.peek()
            && *at <= to
        {
            let Some(Reverse((at, _, ticket))) = self.events.pop() else { return };
            let Some(mut sleeper) = self.requests.remove(&ticket) else { continue };
            decider.set_time(at);
            let (now, ends_at) = (decider.now(), sleeper.ends_at());
            if sleeper.waits_for_claims && now < ends_at {
                self.decide(sleeper, decider, decided);
            } else if sleeper.asleep_until > now && now < ends_at {
                self.requests.insert(ticket, sleeper);
            } else if self.queues.is_first(&sleeper.place) && !sleeper.waits_for_claims {
                self.decide(sleeper, decider, decided);
            } else if now >= ends_at {
                if let Some(joined) = sleeper.request.joined() {
                    self.reject(&mut sleeper, joined, decider);
                }
                self.finish(sleeper, now, decided, false);
            } else {
                self.schedule(ends_at, ticket);
                self.requests.insert(ticket, sleeper);
            }
        }
    }

    /// Makes the charges of a request, or lets it wait. While others wait for one of its limits, only reads them.
    fn decide(&mut self, mut sleeper: Sleeper<'r>, decider: &Decider, decided: &mut Vec<Decided<'r>>) {
        let at = decider.now();
        let now = Duration::from_millis(at);
        loop {
            let Sleeper { request, charges, .. } = &mut sleeper;
            match request.next(charges, &self.queues) {
                WaitStep::Reject(index) => {
                    self.reject(&mut sleeper, index, decider);
                    return self.finish(sleeper, at, decided, false);
                }
                WaitStep::Read(index) => {
                    match request.has_other_limits() {
                        true => decider.read(charges),
                        false => charges.forget_decisions(),
                    }
                    request.refuse_behind(index, charges, &self.queues, now);
                }
                WaitStep::Take if decider.admit(charges) => return self.finish(sleeper, at, decided, true),
                WaitStep::Take => {}
            }
            let Some(hold) = self.join(&mut sleeper, at) else { return self.finish(sleeper, at, decided, false) };
            sleeper.asleep_until = match hold {
                Hold::Permits { wait, .. } | Hold::Claims(Some(wait)) => at.saturating_add(millis(wait)),
                Hold::Claims(None) => u64::MAX,
                Hold::Others => at,
            };
            sleeper.waits_for_claims = matches!(hold, Hold::Claims(_));
            let is_asleep = sleeper.asleep_until > at;
            if is_asleep || !self.queues.is_first(&sleeper.place) {
                let until = if is_asleep { sleeper.asleep_until } else { u64::MAX };
                self.schedule(until.min(sleeper.ends_at()), sleeper.ticket);
                self.requests.insert(sleeper.ticket, sleeper);
                return;
            }
        }
    }

    /// Joins the queue of the narrowest limit that refused the request; `None` if it may not wait.
    fn join(&mut self, sleeper: &mut Sleeper<'r>, at: u64) -> Option<Hold> {
        let Sleeper { request, charges, place, .. } = sleeper;
        let mut woken = Vec::new();
        let wake = |ticket: &u64| woken.push(*ticket);
        let hold = request.join(charges, &mut self.queues, place, Duration::from_millis(at), wake);
        woken.into_iter().for_each(|ticket| self.schedule(at, ticket));
        hold
    }

    /// Adds the refusal of a request that may not wait for a limit.
    fn reject(&mut self, Sleeper { request, charges, .. }: &mut Sleeper<'r>, index: usize, decider: &Decider) {
        let now = Duration::from_millis(decider.now());
        if !request.reject_as_decided(index, charges, &self.queues, now) {
            decider.read(charges);
            request.reject_as_read(index, charges, &mut self.queues, now);
        }
    }

    fn finish(&mut self, mut sleeper: Sleeper<'r>, at: u64, decided: &mut Vec<Decided<'r>>, admitted: bool) {
        let Sleeper { request, charges, place, .. } = &mut sleeper;
        if admitted {
            request.record(charges, &mut self.queues, Duration::from_millis(at));
        }
        let mut woken = Vec::new();
        self.queues.leave(place, |ticket| woken.push(*ticket));
        woken.into_iter().for_each(|ticket| self.schedule(at, ticket));
        let Sleeper { origin, charges, .. } = sleeper;
        decided.push(Decided { origin, charges, admitted, at });
    }

    fn schedule(&mut self, at: u64, ticket: u64) {
        self.next_event += 1;
        self.events.push(Reverse((at, self.next_event, ticket)));
    }
}

impl Sleeper<'_> {
    /// Returns the time until which the request may wait in its queue.
    fn ends_at(&self) -> u64 {
        millis(self.request.ends_at(&self.charges))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
