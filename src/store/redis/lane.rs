//! A lane to Redis: two calls at a time, and whoever comes meanwhile leaves together with the next.
//!
//! There is no timer: an idle lane sends a request as soon as all that is ready beside it has had its turn, and a busy one
//! gathers what comes until Redis has answered. So calls grow as Redis slows or the worker is busy, up to the bounds of a
//! [`Batch`](super::batch::Batch). Where Redis is so far away that waiting for an answer would use up much of a decision's
//! time, more calls are under way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};

use deadpool_redis::Pool;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::driver::Driver;
use super::link::{Link, SharedSecret};
use super::load::{Load, Waiting, give_up_overdue};
use super::outage::Outage;
use super::present::Present;
use super::refusals::Refusals;
use super::trouble::Troubles;
use crate::clock::Timestamp;
use crate::limit::{Charge, Outcome};
use crate::metrics::Metrics;
use crate::store::StoreError;
use crate::store::settings::RedisSettings;

/// What all lanes of a gateway know.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: RedisSettings,
    pub(super) secret: Arc<SharedSecret>,
    pub(super) outage: Arc<Outage>,
    pub(super) random: AtomicU64,
    pub(super) present: Present,
    pub(super) refusals: Refusals,
    pub(super) troubles: Troubles,
    pub(super) metrics: Arc<Metrics>,
}

/// Where requests come to be decided; its task ends with it.
#[derive(Debug)]
pub(super) struct Lane(Arc<Core>);

/// What a lane and its task share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) shared: Arc<Shared>,
    pub(super) link: Link,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Those who have calls of their own.
    apart: VecDeque<Waiting>,
    /// The task, if it sleeps.
    driver: Option<Waker>,
    /// It has room for another call of those who share one.
    has_room: bool,
    closed: bool,
}

// === impl Lane ===

impl Lane {
    /// A lane that connects at once. Must be called on a Tokio runtime, which it lives on.
    pub(super) fn start(pool: Pool, shared: Arc<Shared>) -> Self {
        let link = Link::start(pool, &shared.settings, Arc::clone(&shared.secret), Arc::clone(&shared.outage));
        let core = Arc::new(Core { shared, link, queue: Mutex::default() });
        tokio::spawn(Driver::new(Arc::clone(&core)).run());
        Self(core)
    }

    pub(super) fn link(&self) -> &Link {
        &self.0.link
    }

    /// Has a request decided, at Redis's TIME unless a moment is given.
    pub(super) async fn take(&self, charges: &[Charge], now: Option<Timestamp>) -> Result<Outcome, StoreError> {
        let (decided, decision) = oneshot::channel();
        self.0.enqueue(Waiting { charges: charges.to_vec(), now, since: Instant::now(), decided });
        decision.await.unwrap_or(Err(StoreError::Broken))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.0.close();
    }
}

// === impl Core ===

impl Core {
    fn enqueue(&self, waiting: Waiting) {
        let mut queue = self.queue.lock();
        let shares = waiting.shares_its_call();
        if queue.closed {
            return;
        }
        let line = if shares { &mut queue.waiting } else { &mut queue.apart };
        line.push_back(waiting);
        let driver = if queue.has_room || !shares { queue.driver.take() } else { None };
        drop(queue);
        driver.into_iter().for_each(Waker::wake);
    }

    /// Ready when somebody can be sent, if there is room for another call or not; nothing if nobody will come any more.
    pub(super) fn poll_waiting(&self, has_room: bool, cx: &mut Context<'_>) -> Poll<Option<()>> {
        let mut queue = self.queue.lock();
        if queue.closed {
            return Poll::Ready(None);
        }
        if !queue.apart.is_empty() || (has_room && !queue.waiting.is_empty()) {
            return Poll::Ready(Some(()));
        }
        queue.has_room = has_room;
        queue.driver = Some(cx.waker().clone());
        Poll::Pending
    }

    /// As much of what waits as goes into one call, if there is room for it; nothing if nobody waits.
    pub(super) fn next_load(&self, has_room: bool) -> Option<Load> {
        let mut queue = self.queue.lock();
        let mut load = Load::default();
        while has_room && queue.waiting.front().is_some_and(|next| load.has_room_for(next)) {
            if let Some(next) = queue.waiting.pop_front().filter(Waiting::is_waited_for) {
                load.push(next);
            }
        }
        (!load.is_empty()).then_some(load)
    }

    /// Those who have calls of their own, however many are under way.
    pub(super) fn loads_apart(&self) -> impl Iterator<Item = Load> {
        let apart = std::mem::take(&mut self.queue.lock().apart);
        apart.into_iter().filter(Waiting::is_waited_for).map(Load::of)
    }

    /// Since when the one waits that has waited longest to be sent.
    pub(super) fn since(&self) -> Option<Instant> {
        let queue = self.queue.lock();
        [queue.waiting.front(), queue.apart.front()].into_iter().flatten().map(|first| first.since).min()
    }

    /// Tells those whose time is over without being sent.
    pub(super) fn give_up_overdue(&self, now: Instant) {
        let mut queue = self.queue.lock();
        give_up_overdue(&mut queue.waiting, now, self.shared.settings.timeout);
        give_up_overdue(&mut queue.apart, now, self.shared.settings.timeout);
    }

    /// Tells all who wait.
    pub(super) fn fail_all(&self, error: &StoreError) {
        let mut queue = self.queue.lock();
        let (waiting, apart) = (std::mem::take(&mut queue.waiting), std::mem::take(&mut queue.apart));
        drop(queue);
        waiting.into_iter().chain(apart).for_each(|one| one.fail(error));
    }

    /// Nobody comes any more, and nobody waits any longer.
    pub(super) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        let driver = queue.driver.take();
        drop(queue);
        self.fail_all(&StoreError::Broken);
        driver.into_iter().for_each(Waker::wake);
    }
}
