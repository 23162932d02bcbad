//! Who waits to be sent: in lines, so that a flood of one limit takes no decision from the others.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::load::{Load, Waiting, give_up_overdue};

/// Most requests that a line sends in its turn while others wait for theirs.
const TURN: usize = 64;

/// The lines of a lane.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Those whose limits are all ours, by the [`Route`] of these. They share calls.
    ours: HashMap<Route, VecDeque<Waiting>>,
    /// The lines of these, each of which has somebody, in the order of their turns.
    turns: VecDeque<Route>,
    /// The others, by their shared limiters. Each line has calls of its own.
    shared: HashMap<String, Line>,
    /// The task that sends them, if it sleeps.
    driver: Option<Waker>,
    /// It has room for another call about limits of ours.
    has_room: bool,
    closed: bool,
}

/// What stands for the route whose limits these are: requests of a route ask for the same limits, and of others for others.
/// Two that are taken for one share a line, and no more.
type Route = u64;

/// Requests about the same shared limiters.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    /// One for each call that is under way, and this.
    tickets: Arc<()>,
}

// === impl Queue ===

impl Queue {
    /// Lets a request wait; returns whom to wake.
    pub(super) fn enter(&mut self, waiting: Waiting) -> Option<Waker> {
        if self.closed {
            return None;
        }
        let shared = waiting.line();
        let wakes = self.has_room || shared.is_some();
        self.line_of(shared, &waiting).push_back(waiting);
        if wakes { self.driver.take() } else { None }
    }

    /// Lets requests wait before all others of their lines.
    pub(super) fn enter_first(&mut self, again: Vec<Waiting>) {
        again.into_iter().rev().for_each(|waiting| self.line_of(waiting.line(), &waiting).push_front(waiting));
    }

    fn line_of(&mut self, shared: Option<String>, waiting: &Waiting) -> &mut VecDeque<Waiting> {
        if let Some(name) = shared {
            return &mut self.shared.entry(name).or_default().waiting;
        }
        let route = route_of(waiting);
        self.ours.entry(route).or_insert_with(|| {
            self.turns.push_back(route);
            VecDeque::new()
        })
    }

    /// Ready when somebody can be sent, if there is room for another call about limits of ours or not, and each line of
    /// shared limiters may have so many calls under way; nothing if nobody will come any more.
    pub(super) fn poll(&mut self, has_room: bool, depth: usize, cx: &mut Context<'_>) -> Poll<Option<()>> {
        if self.closed {
            return Poll::Ready(None);
        }
        let of_ours = has_room && !self.turns.is_empty();
        if of_ours || self.shared.values().any(|line| line.has_room(depth) && !line.waiting.is_empty()) {
            return Poll::Ready(Some(()));
        }
        self.has_room = has_room;
        self.driver = Some(cx.waker().clone());
        Poll::Pending
    }

    /// What can be sent now, call by call. Calls take turns in Redis: nobody waits for longer than those that are under way.
    pub(super) fn loads(&mut self, has_room: bool, depth: usize) -> Vec<Load> {
        self.shared.retain(|_, line| !line.is_useless());
        let lines = self.shared.values_mut().filter(|line| line.has_room(depth));
        let mut loads: Vec<Load> = lines.map(Line::load).collect();
        if has_room {
            loads.push(self.load_of_ours());
        }
        loads.retain(|load| !load.is_empty());
        loads
    }

    /// As much of the lines as goes into one call, each in its turn.
    fn load_of_ours(&mut self) -> Load {
        let mut load = Load::default();
        while let Some(route) = self.turns.pop_front() {
            let Some(line) = self.ours.get_mut(&route) else { continue };
            let (before, at_most) = (line.len(), if self.turns.is_empty() { usize::MAX } else { TURN });
            let is_full = load.take(line, at_most);
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
        load
    }

    /// Since when the one waits that has waited longest.
    pub(super) fn since(&mut self) -> Option<Instant> {
        self.lines().filter_map(|line| line.front()).map(|first| first.since).min()
    }

    /// Tells those whose time is over.
    pub(super) fn give_up_overdue(&mut self, now: Instant, timeout: Duration) {
        self.lines().for_each(|line| give_up_overdue(line, now, timeout));
        self.ours.retain(|_, line| !line.is_empty());
        self.turns.retain(|route| self.ours.contains_key(route));
    }

    /// Everybody leaves.
    pub(super) fn take_all(&mut self) -> Vec<Waiting> {
        let all = self.lines().flat_map(std::mem::take).collect();
        self.ours.clear();
        self.turns.clear();
        // Nobody comes to send what there is of them while Redis is away.
        self.shared.retain(|_, line| !line.is_useless());
        all
    }

    /// Nobody may come any more; returns whom to wake.
    pub(super) fn close(&mut self) -> Option<Waker> {
        self.closed = true;
        self.driver.take()
    }

    fn lines(&mut self) -> impl Iterator<Item = &mut VecDeque<Waiting>> {
        self.ours.values_mut().chain(self.shared.values_mut().map(|line| &mut line.waiting))
    }
}

// === impl Line ===

impl Line {
    fn load(&mut self) -> Load {
        let mut load = Load::with_ticket(Arc::clone(&self.tickets));
        load.take(&mut self.waiting, usize::MAX);
        load
    }

    fn has_room(&self, depth: usize) -> bool {
        Arc::strong_count(&self.tickets) <= depth
    }

    fn is_useless(&self) -> bool {
        self.waiting.is_empty() && Arc::strong_count(&self.tickets) == 1
    }
}

/// The keys of a route's limits have one hash tag.
fn route_of(waiting: &Waiting) -> Route {
    let name = waiting.charges.first().map_or("", |charge| &charge.limiter.name);
    let mut hasher = DefaultHasher::new();
    name.split_once('}').map_or(name, |(tag, _)| tag).hash(&mut hasher);
    hasher.finish()
}
