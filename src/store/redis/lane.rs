//! A lane to Redis: two calls at a time, and whoever comes meanwhile leaves together with the next.
//!
//! There is no timer: an idle lane sends a request as soon as all that is ready beside it has had its turn, and a busy one
//! gathers what comes until Redis has answered. So calls grow as Redis slows or the worker is busy, up to the bounds of a
//! [`Batch`](super::batch::Batch). Where Redis is so far away that waiting for an answer would use up much of a decision's
//! time, more calls are under way.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};

use deadpool_redis::Pool;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::driver::Driver;
use super::link::{Link, SharedSecret};
use super::load::{Load, Waiting};
use super::outage::Outage;
use super::present::Present;
use super::queue::Queue;
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
        let driver = self.queue.lock().enter(waiting);
        driver.into_iter().for_each(Waker::wake);
    }

    /// Those who are to ask again come first.
    pub(super) fn ask_again(&self, again: Vec<Waiting>) {
        self.queue.lock().enter_first(again);
    }

    /// Ready when somebody can be sent, if there is room for another call about limits of ours or not, and each line of
    /// shared limiters may have so many calls under way; nothing if nobody will come any more.
    pub(super) fn poll_waiting(&self, has_room: bool, depth: usize, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.queue.lock().poll(has_room, depth, cx)
    }

    /// What can be sent now, call by call.
    pub(super) fn loads(&self, has_room: bool, depth: usize) -> impl Iterator<Item = Load> {
        self.queue.lock().loads(has_room, depth).into_iter()
    }

    /// Since when the one waits that has waited longest to be sent.
    pub(super) fn since(&self) -> Option<Instant> {
        self.queue.lock().since()
    }

    /// Tells those whose time is over without being sent.
    pub(super) fn give_up_overdue(&self, now: Instant) {
        self.queue.lock().give_up_overdue(now, self.shared.settings.timeout);
    }

    /// Tells all who wait.
    pub(super) fn fail_all(&self, error: &StoreError) {
        let waiting = self.queue.lock().take_all();
        waiting.into_iter().for_each(|one| one.fail(error));
    }

    /// Nobody comes any more, and nobody waits any longer.
    pub(super) fn close(&self) {
        let driver = self.queue.lock().close();
        self.fail_all(&StoreError::Broken);
        driver.into_iter().for_each(Waker::wake);
    }
}
