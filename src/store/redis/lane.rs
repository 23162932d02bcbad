//! A lane to Redis: one call at a time, and whoever comes meanwhile leaves together with the next.
//!
//! There is no timer: an idle lane sends a request at once, and a busy one gathers what comes until Redis has answered. So
//! calls grow as Redis slows, up to the bounds of a [`Batch`]. Where Redis is so far away that waiting for one answer
//! would use up much of a decision's time, several calls are under way.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_redis::Pool;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::batch::{Answer, Answers, Batch, Moment};
use super::failure;
use super::link::{Link, Live, SharedSecret};
use super::present::Present;
use super::refusals::Refusals;
use super::trouble::Troubles;
use crate::clock::Timestamp;
use crate::limit::{Algorithm, Charge, Outcome};
use crate::metrics::Metrics;
use crate::store::StoreError;
use crate::store::settings::RedisSettings;

/// What all lanes of a gateway know.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: RedisSettings,
    pub(super) secret: Arc<SharedSecret>,
    pub(super) random: AtomicU64,
    pub(super) present: Present,
    pub(super) refusals: Refusals,
    pub(super) troubles: Troubles,
    pub(super) metrics: Arc<Metrics>,
}

/// A connection, and who waits for it.
#[derive(Debug)]
pub(super) struct Lane {
    shared: Arc<Shared>,
    link: Link,
    queue: Mutex<Queue>,
    /// How many calls may be under way.
    depth: AtomicUsize,
}

/// Most calls under way.
const DEEPEST: usize = 16;

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// The tasks that send what waits, each with a call under way.
    drivers: usize,
}

/// A request that is not sent yet.
#[derive(Debug)]
struct Waiting {
    charges: Vec<Charge>,
    now: Option<Timestamp>,
    since: Instant,
    decided: oneshot::Sender<Result<Outcome, StoreError>>,
}

/// The requests of a call.
#[derive(Default)]
struct Load {
    batch: Batch,
    members: VecDeque<Waiting>,
}

/// A task that sends; however it ends, nobody waits for it in vain.
struct Driver {
    lane: Arc<Lane>,
    done: bool,
}

impl Lane {
    /// A lane that connects at once. Must be called on a Tokio runtime, which it lives on.
    pub(super) fn start(pool: Pool, shared: Arc<Shared>) -> Arc<Self> {
        let link = Link::start(pool, &shared.settings, Arc::clone(&shared.secret));
        Arc::new(Self { shared, link, queue: Mutex::default(), depth: AtomicUsize::new(1) })
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    /// Has a request decided, at Redis's TIME unless a moment is given.
    pub(super) async fn take(
        self: &Arc<Self>,
        charges: &[Charge],
        now: Option<Timestamp>,
    ) -> Result<Outcome, StoreError> {
        let (decided, decision) = oneshot::channel();
        let waiting = Waiting { charges: charges.to_vec(), now, since: Instant::now(), decided };
        if shares_its_call(charges) {
            self.enqueue(waiting);
        } else {
            self.send(Load::of(waiting)).await;
        }
        decision.await.unwrap_or(Err(StoreError::Broken))
    }

    fn enqueue(self: &Arc<Self>, waiting: Waiting) {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(waiting);
        if queue.drivers < self.depth.load(Ordering::Relaxed) {
            queue.drivers += 1;
            tokio::spawn(Driver { lane: Arc::clone(self), done: false }.run());
        }
    }

    /// As much of what waits as goes into one call; nothing, and one driver less, if nobody waits.
    fn next_load(&self) -> Option<Load> {
        let mut queue = self.queue.lock();
        let mut load = Load::default();
        while queue.waiting.front().is_some_and(|next| load.has_room_for(next)) {
            // Who has left is not charged.
            if let Some(next) = queue.waiting.pop_front().filter(|next| !next.decided.is_closed()) {
                load.push(next);
            }
        }
        if load.members.is_empty() {
            queue.drivers -= 1;
            return None;
        }
        Some(load)
    }

    /// Sends a call and tells everybody what became of it, each within their own deadline. A connection on which nobody
    /// was answered in time is never used again.
    async fn send(&self, Load { batch, mut members }: Load) {
        let Some(moment) = members.front().map(|first| first.now) else { return };
        let (mut used, mut overdue) = (None, 0);
        let answered = {
            let mut asked = pin!(async { self.call(used.insert(self.link.live().await?), &batch, moment).await });
            loop {
                let Some(first) = members.front() else { break Err(StoreError::Timeout) };
                match timeout_at(first.since + self.shared.settings.timeout, asked.as_mut()).await {
                    Ok(answered) => break answered,
                    Err(_) => overdue += self.give_up_overdue(&mut members),
                }
            }
        };
        match answered {
            Ok(answers) => {
                for (member, outcome) in members.into_iter().zip(batch.outcomes(&answers).skip(overdue)) {
                    // Who left meanwhile has been charged, as if it had left a moment later.
                    _ = member.decided.send(Ok(outcome));
                }
            }
            Err(error) => {
                self.link.report(used.as_ref(), &error);
                for member in members {
                    _ = member.decided.send(Err(error.clone()));
                }
            }
        }
    }

    /// Tells those whose time is over; returns how many they were.
    fn give_up_overdue(&self, members: &mut VecDeque<Waiting>) -> usize {
        let (before, now) = (members.len(), Instant::now());
        while let Some(first) = members.pop_front_if(|first| first.since + self.shared.settings.timeout <= now) {
            _ = first.decided.send(Err(StoreError::Timeout));
        }
        before - members.len()
    }

    /// Redis has answered after this time: so many calls may be under way that nobody waits for long for the next.
    fn note_distance(&self, took: Duration) {
        let times = 8 * took.as_micros() / self.shared.settings.timeout.as_micros().max(1);
        self.depth.store(usize::try_from(1 + times).unwrap_or(DEEPEST).min(DEEPEST), Ordering::Relaxed);
    }

    async fn call(&self, live: &mut Live, batch: &Batch, now: Option<Timestamp>) -> Result<Answers, StoreError> {
        let shared = &self.shared;
        let mut near = now.unwrap_or_else(|| shared.present.guess());
        let mut asked_anew = false;
        loop {
            // Steps of an odd constant from a random start: no value comes twice, and no two gateways walk alike.
            let random = shared.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let (age, sent) = (shared.refusals.age(), Instant::now());
            shared.metrics.store_called();
            let answer = batch.run(live, Moment { now, near, random }).await;
            self.note_distance(sent.elapsed());
            match batch.answer(answer.map_err(|error| failure(&error))?)? {
                // Nothing ran, so asking once more resends nothing.
                Answer::BoundariesNeeded(shown) if !asked_anew => {
                    shared.present.learn(shown);
                    (near, asked_anew) = (shown, true);
                }
                Answer::BoundariesNeeded(_) => return Err(StoreError::Shape),
                // Refused because of permits that have returned, of which a call removes only so many; it removed some.
                Answer::Decided(answers) if answers.ask_again() => {}
                Answer::Decided(answers) => {
                    if now.is_none() {
                        batch.refused(&answers).for_each(|one| shared.refusals.remember(one, answers.now(), sent, age));
                    }
                    return Ok(answers);
                }
            }
        }
    }
}

/// Limiters of others have a call of their own: what is wrong with one of them is nobody else's error.
fn shares_its_call(charges: &[Charge]) -> bool {
    !charges.iter().any(|charge| matches!(charge.limiter.quota.algorithm(), Algorithm::Foreign(_)))
}

impl Load {
    fn of(waiting: Waiting) -> Self {
        let mut load = Self::default();
        load.push(waiting);
        load
    }

    fn push(&mut self, waiting: Waiting) {
        self.batch.push(&waiting.charges);
        self.members.push_back(waiting);
    }

    fn has_room_for(&self, next: &Waiting) -> bool {
        let same_moment = self.members.front().is_none_or(|first| first.now == next.now);
        same_moment && self.batch.has_room_for(&next.charges)
    }
}

impl Driver {
    async fn run(mut self) {
        while let Some(load) = self.lane.next_load() {
            self.lane.send(load).await;
            // Who is about to ask does so first, and goes along.
            tokio::task::yield_now().await;
        }
        self.done = true;
    }
}

impl Drop for Driver {
    /// A driver that ends with its runtime: who waits for it ends with it.
    fn drop(&mut self) {
        if !self.done {
            let mut queue = self.lane.queue.lock();
            queue.drivers -= 1;
            queue.waiting.clear();
        }
    }
}
