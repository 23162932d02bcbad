//! The task behind a lane: it alone writes to the lane's connection and reads from it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::Instant;

use super::lane::Core;
use super::pipeline::Pipeline;
use crate::store::StoreError;
use crate::timer::Timer;

/// However it ends, nobody waits for it in vain.
pub(super) struct Driver {
    core: Arc<Core>,
    /// The last one is for new calls, unless it is condemned, too.
    pipelines: Vec<Pipeline>,
    connecting: Option<Connecting>,
    /// How many calls may be under way, at least [`SHALLOWEST`].
    depth: usize,
    timer: Timer,
}

type Connecting = Pin<Box<dyn Future<Output = Option<Pipeline>> + Send>>;

/// What a driver waits for.
enum Event {
    /// Somebody waits, and can be sent.
    Arrived,
    /// The connection of this number has a reply, or is at its end.
    Replied(usize, Result<(), StoreError>),
    /// Somebody waits, and there is no connection.
    Unreachable,
    /// Somebody's time may be over.
    Overdue,
    /// Nobody will come any more.
    Closed,
}

/// One call travels while the other is decided: neither Redis nor the worker has to wait for the other to wake up. More of
/// them would be smaller, and cost a busy Redis more.
const SHALLOWEST: usize = 2;
/// Most calls under way.
const DEEPEST: usize = 16;

impl Driver {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, pipelines: Vec::new(), connecting: None, depth: SHALLOWEST, timer: Timer::new() }
    }

    pub(super) async fn run(mut self) {
        loop {
            match poll_fn(|cx| self.poll_event(cx)).await {
                Event::Arrived => {
                    // Whoever is ready has their turn first, and what they ask for leaves together: a call costs Redis
                    // much the same however many it is for, and a worker that has nothing else to do goes on at once.
                    yield_now().await;
                    self.send();
                }
                Event::Replied(number, Ok(())) => self.settle(number),
                Event::Replied(number, Err(error)) => self.lose(number, &error),
                Event::Unreachable => self.core.fail_all(&StoreError::Unreachable),
                Event::Overdue => self.give_up_overdue(),
                Event::Closed => return,
            }
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        // Also while nobody waits, so that its end is noticed.
        let connected = self.poll_connected(cx);
        for (number, pipeline) in self.pipelines.iter_mut().enumerate() {
            if let Poll::Ready(replied) = pipeline.poll(cx) {
                return Poll::Ready(Event::Replied(number, replied));
            }
        }
        // Before anybody is sent: whose time is over is not charged.
        if self.poll_overdue(cx).is_ready() {
            return Poll::Ready(Event::Overdue);
        }
        let has_room = self.has_room();
        match (self.core.poll_waiting(has_room, self.depth, cx), connected) {
            (Poll::Ready(None), _) | (_, Poll::Ready(None)) => Poll::Ready(Event::Closed),
            (Poll::Ready(Some(())), Poll::Ready(Some(()))) => Poll::Ready(Event::Arrived),
            (Poll::Ready(Some(())), Poll::Pending) if self.core.link.is_down() => Poll::Ready(Event::Unreachable),
            _ => Poll::Pending,
        }
    }

    /// The connection for new calls.
    fn current(&mut self) -> Option<&mut Pipeline> {
        let link = &self.core.link;
        self.pipelines.last_mut().filter(|pipeline| !link.is_broken(&pipeline.live))
    }

    /// May another call about limits of ours be under way?
    fn has_room(&mut self) -> bool {
        let depth = self.depth;
        self.current().is_none_or(|pipeline| pipeline.calls_of_ours() < depth)
    }

    /// Ready when there is a connection for new calls; nothing if there will be none any more.
    fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>> {
        if self.current().is_some() {
            return Poll::Ready(Some(()));
        }
        let core = Arc::clone(&self.core);
        let connecting = self.connecting.get_or_insert_with(|| Box::pin(async move { core.link.pipeline().await }));
        let connected = ready!(connecting.as_mut().poll(cx));
        self.connecting = None;
        Poll::Ready(connected.map(|pipeline| self.pipelines.push(pipeline)))
    }

    /// Ready when somebody has waited for too long: for a reply, or to be sent.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waited = self.pipelines.iter().filter_map(Pipeline::since).chain(self.core.since());
        let Some(oldest) = waited.min() else { return Poll::Pending };
        self.timer.poll(oldest + self.core.shared.settings.timeout, cx)
    }

    fn send(&mut self) {
        let (core, has_room, depth) = (Arc::clone(&self.core), self.has_room(), self.depth);
        // While others had their turn, somebody's time may have passed, and the connection may have broken: then all wait
        // for the next.
        core.give_up_overdue(Instant::now());
        let Some(pipeline) = self.current() else { return };
        core.loads(has_room, depth).for_each(|load| pipeline.send(load, &core.shared));
    }

    fn settle(&mut self, number: usize) {
        let pipeline = &mut self.pipelines[number];
        match pipeline.settle(&self.core.shared) {
            Ok(Some((took, again))) => {
                self.note_distance(took);
                self.core.ask_again(again);
            }
            Ok(None) => {}
            // What comes next may not be what it seems.
            Err(StoreError::Shape) => return self.lose(number, &StoreError::Shape),
            Err(error) => self.core.link.report(Some(&pipeline.live), &error),
        }
        self.forget_useless();
    }

    /// Redis has answered after this time: so many calls may be under way that nobody waits for long for the next.
    fn note_distance(&mut self, took: Duration) {
        let times = 8 * took.as_micros() / self.core.shared.settings.timeout.as_micros().max(1);
        self.depth = usize::try_from(times).unwrap_or(DEEPEST).saturating_add(1).clamp(SHALLOWEST, DEEPEST);
    }

    fn lose(&mut self, number: usize, error: &StoreError) {
        let pipeline = self.pipelines.remove(number);
        self.core.link.report(Some(&pipeline.live), error);
        pipeline.fail(error);
    }

    /// Tells those whose time is over. A connection on which nobody of a call was answered in time is not used again.
    fn give_up_overdue(&mut self) {
        let (now, timeout) = (Instant::now(), self.core.shared.settings.timeout);
        for pipeline in &mut self.pipelines {
            if pipeline.give_up_overdue(now, timeout) {
                self.core.link.report(Some(&pipeline.live), &StoreError::Timeout);
            }
        }
        self.core.give_up_overdue(now);
        self.forget_useless();
    }

    /// Forgets the connections that are broken, as soon as nobody waits for what is under way on them.
    fn forget_useless(&mut self) {
        let link = &self.core.link;
        self.pipelines.retain(|pipeline| !link.is_broken(&pipeline.live) || pipeline.is_waited_for());
    }
}

impl Drop for Driver {
    /// It may end with its runtime.
    fn drop(&mut self) {
        self.core.close();
    }
}
