//! Where requests come to be decided by a node: a queue, and a task that sends what waits in it.
//!
//! Two calls are under way at a time, and whoever comes meanwhile leaves together with the next. There is no timer: an idle
//! dispatcher sends a request as soon as all that is ready beside it has had its shared_call_lock, and a busy one gathers what comes
//! until Redis has answered. So calls grow as Redis slows or the worker is busy, up to the bounds of a [`Batch`]. Where Redis
//! is so far away that waiting for an answer would use up much of a decision's time, more calls are under way.
//!
//! A request has one deadline, over waiting in the queue, for the connection and for the answer. A call that may have run is
//! never sent retries.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio::select;
use tokio::sync::{self, MutexGuard, oneshot};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, timeout, timeout_at};

use super::super::node::{ConnectionManager, ConnectionStatus, Node, NodeConnection};
use super::super::script::batch::{Batch, DecisionTime, PendingDecision};
use super::super::script::reply::{Outcomes, Reply};
use super::clock_offset::ClockOffset;
use super::queue::{Queue, departures};
use crate::clock::Timestamp;
use crate::limit::{Charge, Outcome};
use crate::metrics::Metrics;
use crate::store::StoreError;

/// One call travels while the other is decided: neither Redis nor the worker has to wait for the other to wake up. More of
/// them would be smaller, and cost a busy Redis more.
const MIN_DEPTH: usize = 2;
/// Most calls under way.
const MAX_DEPTH: usize = 16;

/// For so long a call about shared limiters waits for those of other workers, and no longer: a Redis that is far away is
/// asked as often as it must be.
const MAX_LOCK_WAIT: Duration = Duration::from_millis(1);

/// Where requests come to be decided; its task ends with it.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    core: Arc<DispatcherCore>,
    task: JoinHandle<()>,
}

/// What all dispatchers of a gateway know.
#[derive(Debug)]
pub(crate) struct DispatcherContext {
    pub(crate) timeout: Duration,
    pub(crate) clock: ClockOffset,
    pub(crate) random: AtomicU64,
    pub(crate) metrics: Arc<Metrics>,
    /// Whoever has it asks about shared limiters. Others ask for the same buckets, and each of their calls is for one request,
    /// where ours is for all that wait: one at a time leaves them enough of Redis, and costs us little.
    shared_call_lock: sync::Mutex<()>,
}

/// What a dispatcher and its task share.
#[derive(Debug)]
struct DispatcherCore {
    context: Arc<DispatcherContext>,
    connection: ConnectionManager,
    queue: Mutex<Queue>,
    /// How often this worker has sent calls.
    departures: Arc<AtomicU64>,
}

/// The task. On drop, fails all who wait.
struct DispatcherTask {
    core: Arc<DispatcherCore>,
    calls: FuturesUnordered<Pin<Box<dyn Future<Output = EndedCall> + Send>>>,
}

/// A call that is over.
#[derive(Default)]
struct EndedCall {
    /// How long Redis took, if it has decided.
    took: Option<Duration>,
    /// Who is to ask retries at once.
    retries: Vec<PendingDecision>,
}

// === impl DispatcherContext ===

impl DispatcherContext {
    pub(crate) fn new(timeout: Duration, random: u64, metrics: Arc<Metrics>) -> Self {
        Self {
            timeout,
            clock: ClockOffset::default(),
            random: random.into(),
            metrics,
            shared_call_lock: sync::Mutex::default(),
        }
    }

    /// The shared_call_lock of a call about shared limiters; nothing if it is not waited for any longer.
    async fn lock_shared_calls(&self) -> Option<MutexGuard<'_, ()>> {
        timeout(MAX_LOCK_WAIT, self.shared_call_lock.lock()).await.ok()
    }
}

// === impl Dispatcher ===

impl Dispatcher {
    /// Connects at once. Must be called on a Tokio runtime, which it lives on. If the node has slots, a call is about one.
    pub(crate) fn start(
        node: Arc<Node>,
        context: Arc<DispatcherContext>,
        departures: Arc<AtomicU64>,
        has_slots: bool,
    ) -> Self {
        let connection = ConnectionManager::start(node, context.timeout);
        let queue = Mutex::new(Queue::new(MIN_DEPTH, has_slots));
        let core = Arc::new(DispatcherCore { context, connection, queue, departures });
        let task = DispatcherTask { core: Arc::clone(&core), calls: FuturesUnordered::new() };
        Self { core, task: tokio::spawn(task.run()) }
    }

    /// Has the runtime ended that it lived on?
    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// The connection, for whatever is asked beside decisions.
    pub(crate) fn connection(&self) -> &ConnectionManager {
        &self.core.connection
    }

    /// Has a request decided until then, at Redis's TIME unless a time is given.
    pub(crate) async fn take(
        &self,
        charges: &[Charge],
        now: Option<Timestamp>,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let (decided, decision) = oneshot::channel();
        let request = PendingDecision { charges: charges.to_vec(), now, deadline, decided };
        let sender = self.core.queue.lock().push(request);
        if let Some(sender) = sender {
            sender.wake();
        }
        match until(deadline, decision).await {
            Some(decided) => decided.unwrap_or(Err(StoreError::Broken)),
            None => Err(StoreError::Timeout),
        }
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl DispatcherTask ===

impl DispatcherTask {
    async fn run(mut self) {
        let mut status = self.core.connection.status();
        loop {
            let known = status.borrow_and_update().clone();
            select! {
                biased;
                _ = status.changed() => {}
                () = self.serve(&known) => {}
            }
        }
    }

    /// Sends whoever comes, for as long as this is the connection.
    async fn serve(&mut self, status: &ConnectionStatus) {
        loop {
            poll_fn(|cx| self.poll_ready(status, cx)).await;
            // Whoever is ready has their shared_call_lock first, and what they ask for leaves together: a call costs Redis much
            // the same however many it is for, and a worker that has nothing else to do goes on at once.
            yield_now().await;
            poll_fn(|cx| {
                self.poll_calls(cx);
                Poll::Ready(())
            })
            .await;
            self.send(status);
        }
    }

    /// Tells everybody whose call is over. Ready if somebody can be sent.
    fn poll_ready(&mut self, status: &ConnectionStatus, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_calls(cx);
        match status {
            ConnectionStatus::Connecting => Poll::Pending,
            _ => self.core.queue.lock().poll_ready(cx),
        }
    }

    fn poll_calls(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(ended)) = self.calls.poll_next_unpin(cx) {
            self.on_call_ended(ended);
        }
    }

    fn send(&self, status: &ConnectionStatus) {
        match status {
            ConnectionStatus::Connecting => {}
            ConnectionStatus::Down(_) => {
                let waiting = self.core.queue.lock().take_all();
                waiting.into_iter().for_each(|request| request.fail(&StoreError::Unreachable));
            }
            ConnectionStatus::Up(connection) => {
                let batches = self.core.queue.lock().batches();
                self.core.departures.fetch_add(departures(&batches), Ordering::Relaxed);
                let call = |batch| call(batch, connection.clone(), Arc::clone(&self.core));
                batches.into_iter().for_each(|batch| self.calls.push(Box::pin(call(batch))));
            }
        }
    }

    /// So many calls may be under way that nobody waits for long for the next.
    fn on_call_ended(&self, ended: EndedCall) {
        let mut queue = self.core.queue.lock();
        queue.push_front(ended.retries);
        if let Some(took) = ended.took {
            let times = 8 * took.as_micros() / self.core.context.timeout.as_micros().max(1);
            let depth = usize::try_from(times).unwrap_or(MAX_DEPTH).saturating_add(1);
            queue.set_depth(depth.clamp(MIN_DEPTH, MAX_DEPTH));
        }
    }
}

impl Drop for DispatcherTask {
    fn drop(&mut self) {
        let waiting = self.core.queue.lock().close();
        waiting.into_iter().for_each(|request| request.fail(&StoreError::Broken));
    }
}

// === a call ===

/// Sends a batch, and tells all whose requests are in it.
async fn call(mut batch: Batch, mut connection: NodeConnection, core: Arc<DispatcherCore>) -> EndedCall {
    let mut _lock = None;
    if batch.is_shared() {
        _lock = core.context.lock_shared_calls().await;
        core.queue.lock().fill(&mut batch);
    }
    let sent = Instant::now();
    let deadline = batch.deadline().unwrap_or(sent);
    if deadline < sent {
        batch.fail(&StoreError::Timeout); // unsent, and so not charged
        return EndedCall::default();
    }
    let outcomes = until(deadline, decide(&batch, &mut connection, &core.context)).await;
    let took = sent.elapsed();
    match outcomes.unwrap_or(Err(StoreError::Timeout)) {
        Ok(outcomes) => {
            core.connection.record_reply(&connection, took);
            EndedCall { took: Some(took), retries: batch.send_outcomes(&outcomes) }
        }
        Err(error) => {
            core.connection.record_error(&connection, &error, took);
            batch.fail(&error);
            EndedCall::default()
        }
    }
}

/// Has one request decided in a call of its own.
///
/// # Errors
/// See [`StoreError`].
pub(crate) async fn decide_one(
    charges: &[Charge],
    now: Option<Timestamp>,
    deadline: Instant,
    connection: &mut NodeConnection,
    context: &DispatcherContext,
) -> Result<Outcome, StoreError> {
    loop {
        let (decided, decision) = oneshot::channel();
        let batch = Batch::single(PendingDecision { charges: charges.to_vec(), now, deadline, decided });
        let outcomes = decide(&batch, connection, context).await?;
        if batch.send_outcomes(&outcomes).is_empty() {
            return decision.now_or_never().and_then(Result::ok).unwrap_or(Err(StoreError::UnexpectedReply));
        }
    }
}

/// Has a batch decided. It is asked for once more if it needs the boundaries of a calendar around Redis's time, since nothing
/// ran then.
async fn decide(
    batch: &Batch,
    connection: &mut NodeConnection,
    context: &DispatcherContext,
) -> Result<Outcomes, StoreError> {
    let now = batch.now();
    let mut near = now.unwrap_or_else(|| context.clock.redis_now());
    // Steps of an odd constant from a random start: no value comes twice, and no two gateways walk alike.
    let random = context.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    for _ in 0..2 {
        context.metrics.store_called();
        connection.metrics.called();
        let (secret, time) = (connection.secret()?, DecisionTime { now, near, random });
        let reply = connection.script.run(|call| batch.write(call, &secret, time)).await?;
        match batch.read(&reply)? {
            Reply::Decided(outcomes) => {
                connection.metrics.decided(batch.len());
                return Ok(outcomes);
            }
            Reply::BoundariesNeeded(shown) => {
                context.clock.record(shown);
                near = shown;
            }
        }
    }
    Err(StoreError::UnexpectedReply)
}

/// Waits until then at most. What has come by then counts, although whoever was to hand it on has not had a shared_call_lock yet.
async fn until<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    if let Ok(output) = timeout_at(deadline, &mut future).await {
        return Some(output);
    }
    yield_now().await;
    future.now_or_never()
}
