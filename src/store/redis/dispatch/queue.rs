//! Who waits to be sent: in lines, so that a flood of one limit takes no decision from the others.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hashbrown::{DefaultHashBuilder, HashMap};
use tokio::time::Instant;

use super::super::script::batch::{Batch, MAX_WORK, Request, Ticket};
use super::super::script::keys::hash_tag;
use super::super::slots::slot_of;
use crate::limit::{Algorithm, Charge};
use crate::store::StoreError;

/// Most requests that a line sends in its turn while others wait for theirs.
const TURN: usize = 64;

/// What a call costs a node beside its buckets, in buckets. Calls to several slots that leave together count it, so that few
/// small ones leave a busy node, and who comes meanwhile makes the next ones larger.
const CALL: usize = 4;

/// So many requests count as one more departure: where calls are for that many, they wait for the node, and others may have time.
const CROWD: usize = 128;

/// The lines of those who wait for a node.
#[derive(Debug)]
pub(super) struct Queue {
    /// Those whose limits are all ours, by the [`LineKey`] of these. They share calls.
    ours: HashMap<LineKey, VecDeque<Request>>,
    /// The lines of these, each of which has somebody, in the order of their turns.
    turns: VecDeque<LineKey>,
    /// One for each call that is under way for them, and this.
    tickets: Arc<()>,
    /// The others, by their shared limiters. Each line has calls of its own.
    shared: HashMap<String, Line>,
    /// How many calls may be under way for all of ours.
    depth: usize,
    /// Is a call about the buckets of one slot?
    has_slots: bool,
    is_closed: bool,
    /// Sends them, and waits for somebody who can be sent.
    sender: Option<Waker>,
}

/// In a cluster the slot of a request; else a hash of its route. Two routes with the same hash share a line.
type LineKey = u64;

/// Requests about the same shared limiters.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Request>,
    /// One for each call that is under way, and this.
    tickets: Arc<()>,
}

// === impl Queue ===

impl Queue {
    /// An empty one.
    pub(super) fn new(depth: usize, has_slots: bool) -> Self {
        let (ours, turns, tickets, shared) = Default::default();
        Self { ours, turns, tickets, shared, depth, has_slots, is_closed: false, sender: None }
    }

    /// From now on so many calls may be under way.
    pub(super) fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
    }

    /// Lets a request wait; returns who is to be woken if one can be sent.
    pub(super) fn enter(&mut self, request: Request) -> Option<Waker> {
        if self.is_closed {
            return None;
        }
        let now = Instant::now();
        let (line, tickets, depth) = self.line_of(&request);
        // While Redis is away nobody takes them out.
        while let Some(overdue) = line.pop_front_if(|first| first.deadline <= now) {
            overdue.fail(&StoreError::Timeout);
        }
        line.push_back(request);
        if under_way(tickets) < depth { self.sender.take() } else { None }
    }

    /// Lets requests wait before all others of their lines.
    pub(super) fn enter_first(&mut self, again: Vec<Request>) {
        again.into_iter().rev().for_each(|request| self.line_of(&request).0.push_front(request));
    }

    /// The line of a request, the tickets of that line's calls, and how many of these may be under way.
    fn line_of(&mut self, request: &Request) -> (&mut VecDeque<Request>, &Arc<()>, usize) {
        if let Some(names) = shared_limiters(&request.charges) {
            let depth = self.depth_of_shared();
            let line = self.shared.entry(names).or_default();
            return (&mut line.waiting, &line.tickets, depth);
        }
        let route = if self.has_slots {
            slot_of_charges(&request.charges)
        } else {
            route_of(&request.charges, self.ours.hasher())
        };
        let line = self.ours.entry(route).or_insert_with(|| {
            self.turns.push_back(route);
            VecDeque::new()
        });
        (line, &self.tickets, self.depth)
    }

    /// How many calls may be under way for each line of shared limiters: half as many, since all requests of such a line
    /// ask for the same buckets, so that one large call costs little more than a small one, and leaves more of Redis to
    /// those who share them.
    const fn depth_of_shared(&self) -> usize {
        self.depth.div_ceil(2)
    }

    /// Can anybody be sent? If not, wakes this task as soon as somebody can be who comes.
    pub(super) fn poll_ready(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.is_ready() {
            return Poll::Ready(());
        }
        match &mut self.sender {
            Some(sender) => sender.clone_from(cx.waker()),
            None => self.sender = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn is_ready(&self) -> bool {
        let ours = !self.turns.is_empty() && under_way(&self.tickets) < self.depth;
        let depth = self.depth_of_shared();
        ours || self.shared.values().any(|line| !line.waiting.is_empty() && under_way(&line.tickets) < depth)
    }

    /// What can be sent now, call by call. Calls take turns in Redis: nobody waits for longer than those that are under way.
    pub(super) fn batches(&mut self) -> Vec<Batch> {
        self.forget_useless();
        let (now, depth) = (Instant::now(), self.depth_of_shared());
        let lines = self.shared.values_mut().filter(|line| under_way(&line.tickets) < depth);
        let mut batches: Vec<Batch> = lines.map(|line| line.batch(now)).collect();
        if under_way(&self.tickets) < self.depth {
            match self.has_slots {
                true => self.flight(now, &mut batches),
                false => batches.push(self.batch_of_ours(now)),
            }
        }
        batches.retain(|batch| !batch.is_empty());
        batches
    }

    /// A call for each slot, as many as are the work of one together.
    fn flight(&mut self, now: Instant, batches: &mut Vec<Batch>) {
        let (ticket, mut work) = (Ticket::of(&self.tickets), 0);
        for _ in 0..self.turns.len() {
            let Some(slot) = self.turns.pop_front() else { return };
            let Some(line) = self.ours.get_mut(&slot) else { continue };
            let mut batch = Batch::new(ticket.clone());
            batch.take(line, usize::MAX, now);
            if line.is_empty() {
                self.ours.remove(&slot);
            } else {
                self.turns.push_back(slot);
            }
            work += CALL + batch.work();
            batches.push(batch);
            if work >= MAX_WORK {
                return;
            }
        }
    }

    /// As much of the lines as goes into one call, each in its turn.
    fn batch_of_ours(&mut self, now: Instant) -> Batch {
        let mut batch = Batch::new(Ticket::of(&self.tickets));
        while let Some(route) = self.turns.pop_front() {
            let Some(line) = self.ours.get_mut(&route) else { continue };
            let (before, at_most) = (line.len(), if self.turns.is_empty() { usize::MAX } else { TURN });
            let is_full = batch.take(line, at_most, now);
            if line.is_empty() {
                self.ours.remove(&route);
            } else if line.len() < before {
                self.turns.push_back(route);
            } else {
                self.turns.push_front(route);
            }
            if is_full {
                break;
            }
        }
        batch
    }

    /// Whoever has come since to the line of a call about shared limiters leaves with it.
    pub(super) fn fill(&mut self, batch: &mut Batch) {
        let line = shared_limiters(batch.first()).and_then(|names| self.shared.get_mut(&names));
        if let Some(line) = line {
            batch.take(&mut line.waiting, usize::MAX, Instant::now());
        }
    }

    /// Everybody leaves.
    pub(super) fn take_all(&mut self) -> Vec<Request> {
        let shared = self.shared.values_mut().map(|line| &mut line.waiting);
        let all = self.ours.values_mut().chain(shared).flat_map(std::mem::take).collect();
        self.ours.clear();
        self.turns.clear();
        self.forget_useless();
        all
    }

    /// Everybody leaves, and nobody may come any more.
    pub(super) fn close(&mut self) -> Vec<Request> {
        self.is_closed = true;
        self.take_all()
    }

    fn forget_useless(&mut self) {
        self.shared.retain(|_, line| !line.waiting.is_empty() || under_way(&line.tickets) > 0);
    }
}

// === impl Line ===

impl Line {
    fn batch(&mut self, now: Instant) -> Batch {
        let mut batch = Batch::shared(Ticket::of(&self.tickets));
        batch.take(&mut self.waiting, usize::MAX, now);
        batch
    }
}

/// As how many departures it counts that these calls leave.
pub(super) fn departures(calls: &[Batch]) -> u64 {
    let requests: usize = calls.iter().map(Batch::len).sum();
    u64::try_from(requests / CROWD).unwrap_or_default() + 1
}

/// How many calls have one of these tickets.
fn under_way(tickets: &Arc<()>) -> usize {
    Arc::strong_count(tickets) - 1
}

/// The shared limiters among those that are asked; nothing if all are ours. What is wrong with a shared limiter is nobody
/// else's error, and a flood of one takes no call from the others.
fn shared_limiters(charges: &[Charge]) -> Option<String> {
    let shared = |charge: &&Charge| matches!(charge.limiter.quota.algorithm(), Algorithm::Redisson(_));
    let names: Vec<&str> = charges.iter().filter(shared).map(|charge| charge.limiter.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join("\n"))
}

fn slot_of_charges(charges: &[Charge]) -> LineKey {
    charges.first().map_or(0, |first| slot_of(&first.limiter, first.client.as_ref()).into())
}

fn route_of(charges: &[Charge], hasher: &DefaultHashBuilder) -> LineKey {
    hasher.hash_one(charges.first().map_or("", |charge| hash_tag(&charge.limiter.name)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;
    use crate::limit::redisson::Sharing;
    use crate::limit::{Limiter, Mode, Outcome, Quota};

    type Decision = oneshot::Receiver<Result<Outcome, StoreError>>;

    /// A request about an OVERALL limit with this name, and where it is told what was decided.
    fn request(name: &str, algorithm: Algorithm) -> (Request, Decision) {
        let quota = Quota::new(1, 1_000, algorithm).expect("a quota");
        let limiter = Arc::new(Limiter::new(name.to_owned(), Mode::Overall, quota));
        let (decided, decision) = oneshot::channel();
        let charges = vec![Charge { limiter, client: None, permits: 1, shadow: false }];
        (Request { charges, now: None, deadline: Instant::now() + Duration::from_secs(1), decided }, decision)
    }

    fn sizes(calls: &[Batch]) -> Vec<usize> {
        calls.iter().map(Batch::len).collect()
    }

    #[tokio::test]
    async fn calls_to_several_slots_leave_together_as_far_as_they_are_the_work_of_one() {
        let mut queue = Queue::new(2, true);
        let of_slot = |slot: u32| request(&format!("{{{slot}}}"), Algorithm::TokenBucket);
        let (requests, _waiting): (Vec<_>, Vec<_>) = (0..64).map(of_slot).unzip();
        requests.into_iter().for_each(|request| _ = queue.enter(request));
        let (calls, more) = (queue.batches(), queue.batches());
        assert_eq!([sizes(&calls), sizes(&more)], [const { [1; MAX_WORK.div_ceil(CALL + 1)] }; 2]);
        assert!(queue.batches().is_empty(), "two flights are under way");
    }

    #[tokio::test]
    async fn many_requests_that_leave_together_count_as_several_departures() {
        let mut queue = Queue::new(1, true);
        let of_one_limit = |_| request("{one}", Algorithm::TokenBucket);
        for (requests, counted) in [(CROWD - 1, 1), (CROWD, 2), (3 * CROWD + 1, 4)] {
            let (requests, _waiting): (Vec<_>, Vec<_>) = (0..requests).map(of_one_limit).unzip();
            requests.into_iter().for_each(|request| _ = queue.enter(request));
            assert_eq!(departures(&queue.batches()), counted);
        }
    }

    #[tokio::test]
    async fn who_comes_while_a_shared_call_waits_for_its_turn_leaves_with_it() {
        let (mut queue, mut waiting) = (Queue::new(2, false), Vec::new());
        let mut enter = |queue: &mut Queue, name| {
            let (request, decision) = request(name, Algorithm::Redisson(Sharing::Configure));
            queue.enter(request);
            waiting.push(decision);
        };
        enter(&mut queue, "mine");
        let mut calls = queue.batches();
        enter(&mut queue, "mine");
        enter(&mut queue, "others");
        queue.fill(&mut calls[0]);
        assert_eq!(sizes(&calls), [2]);
        let others = queue.batches();
        assert_eq!(sizes(&others), [1]);
        assert_eq!(others[0].first()[0].limiter.name, "others");
    }
}
