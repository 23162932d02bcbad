//! Decides requests on a node: a queue, and a task that sends the queued requests. At most two calls are in flight at a
//! time. Requests that arrive in the meantime are sent together in the next call. There is no timer: an idle dispatcher
//! sends a request after all other tasks that are ready have run, and a busy dispatcher collects requests until Redis
//! has replied. So calls grow if Redis or the worker is slow, up to the bounds of a [`Batch`]. On a slow network path
//! to Redis, more calls are in flight, so that requests do not wait too long for the next call.
//!
//! A request has one deadline for waiting in the queue, for the connection and for the reply. The task fails it then. A
//! call that may have run is never sent again. If its reply still comes, the permits that it granted to failed requests
//! are given back, since these requests were decided without it.

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
use super::super::script::batch::{Batch, DecisionTime, PendingDecision, Unsent, WaitingRequests};
use super::super::script::reply::{Outcomes, Reply};
use super::super::script::slots::LeaseRequest;
use super::super::{split_reservations, undo};
use super::clock_offset::ClockOffset;
use super::queue::{Queue, call_count};
use crate::StoreError;
use tidegate_limit::clock::timer::Timer;
use tidegate_limit::clock::{Clock, Timestamp};
use tidegate_metrics::Metrics;
use tidegate_rules::charge::{Charge, Granted, Outcome};

/// The minimum number of calls in flight. One call is on its way while Redis decides the other, so that neither Redis
/// nor the worker is idle. More calls would be smaller, which costs a busy Redis more.
const MIN_DEPTH: usize = 2;
/// The maximum number of calls in flight.
const MAX_DEPTH: usize = 16;

/// The longest time that a call about shared limiters waits for the calls of other workers. Bounded, so that a slow
/// network path to Redis does not serialize the calls.
const MAX_LOCK_WAIT: Duration = Duration::from_millis(1);

/// How long after its last deadline the reply to a call is waited for, to give back what it has granted.
const MAX_LATENESS: Duration = Duration::from_secs(1);

/// Decides requests on a node. Dropping it ends its task.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    core: Arc<DispatcherCore>,
    task: JoinHandle<()>,
}

/// The state that all dispatchers of a gateway share.
#[derive(Debug)]
pub(crate) struct DispatcherContext {
    pub timeout: Duration,
    pub clock_offset: ClockOffset,
    /// Replaces Redis's clock in tests and benchmarks.
    pub manual_clock: Option<Arc<dyn Clock>>,
    pub random: AtomicU64,
    pub metrics: Arc<Metrics>,
    /// Held during a call about shared limiters, so that a gateway sends one such call at a time. Other programs
    /// compete for these buckets with a call for each request, while one call of the gateway decides all waiting
    /// requests.
    shared_call_lock: sync::Mutex<()>,
}

/// The state that a dispatcher and its task share.
#[derive(Debug)]
struct DispatcherCore {
    context: Arc<DispatcherContext>,
    connection: ConnectionManager,
    queue: Mutex<Queue>,
    /// Whether all requests come from the thread of the task.
    is_of_worker: bool,
    /// Counts the calls of this worker, as [`call_count`] does.
    call_count: Arc<AtomicU64>,
}

/// The task. When dropped, it fails all waiting requests.
struct DispatcherTask {
    core: Arc<DispatcherCore>,
    calls: FuturesUnordered<Pin<Box<dyn Future<Output = EndedCall> + Send>>>,
    /// The timer for the deadlines of waiting requests.
    timer: Timer,
}

#[derive(Default)]
struct EndedCall {
    /// How long Redis took, if it replied.
    took: Option<Duration>,
    /// Requests to send again immediately.
    retries: Vec<PendingDecision>,
}

// === impl DispatcherContext ===

impl DispatcherContext {
    pub(crate) fn new(
        timeout: Duration,
        manual_clock: Option<Arc<dyn Clock>>,
        random: u64,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            timeout,
            clock_offset: ClockOffset::default(),
            manual_clock,
            random: random.into(),
            metrics,
            shared_call_lock: sync::Mutex::default(),
        }
    }

    /// Returns the time to decide at; `None` for Redis's own time.
    pub(crate) fn manual_now(&self) -> Option<Timestamp> {
        self.manual_clock.as_ref().map(|clock| clock.now())
    }

    /// Returns the time to decide at, or an estimate of Redis's own time.
    pub(crate) fn estimated_now(&self) -> Timestamp {
        self.manual_now().unwrap_or_else(|| self.clock_offset.redis_now())
    }

    /// Locks calls about shared limiters. Returns `None` if the lock takes too long.
    async fn lock_shared_calls(&self) -> Option<MutexGuard<'_, ()>> {
        timeout(MAX_LOCK_WAIT, self.shared_call_lock.lock()).await.ok()
    }
}

// === impl Dispatcher ===

impl Dispatcher {
    /// Starts to connect. Must be called on a Tokio runtime; the task ends with that runtime. If the node has hash
    /// slots, each call concerns one of them. `is_of_worker`: all requests come from the thread of this runtime.
    pub(crate) fn start(
        node: Arc<Node>,
        context: Arc<DispatcherContext>,
        call_count: Arc<AtomicU64>,
        has_slots: bool,
        is_of_worker: bool,
    ) -> Self {
        let connection = ConnectionManager::start(node, context.timeout, context.metrics.open_breakers());
        let queue = Mutex::new(Queue::new(MIN_DEPTH, has_slots));
        let core = Arc::new(DispatcherCore { context, connection, queue, is_of_worker, call_count });
        let task = DispatcherTask { core: Arc::clone(&core), calls: FuturesUnordered::new(), timer: Timer::new() };
        Self { core, task: tokio::spawn(task.run()) }
    }

    /// Returns `true` if the runtime of the task has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Returns the connection, for calls other than decisions.
    pub(crate) fn connection(&self) -> &ConnectionManager {
        &self.core.connection
    }

    /// Decides a request before the deadline.
    pub(crate) async fn take(
        &self,
        charges: &[Charge],
        lease: Option<&LeaseRequest>,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let (decided, decision) = oneshot::channel();
        let sender = self.core.queue.lock().push(PendingDecision::new(charges, lease, deadline, decided));
        if let Some(sender) = sender {
            sender.wake();
        }
        // The task fails the request at its deadline, so that a worker needs no timer for each request: 2 % of the CPU
        // time. On another thread, the request must not depend on a task that a blocked thread delays.
        let decided = if self.core.is_of_worker { Some(decision.await) } else { until(deadline, decision).await };
        decided.map_or(Err(StoreError::Timeout), |decided| decided.unwrap_or(Err(StoreError::Broken)))
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
            let current = status.borrow_and_update().clone();
            select! {
                biased;
                _ = status.changed() => {}
                () = self.serve(&current) => {}
            }
        }
    }

    /// Sends requests while the connection has this status.
    async fn serve(&mut self, status: &ConnectionStatus) {
        loop {
            poll_fn(|cx| self.poll_ready(status, cx)).await;
            // Let other ready tasks add their requests first: the cost of a call hardly depends on the number of its
            // requests. An idle worker continues immediately.
            yield_now().await;
            poll_fn(|cx| {
                self.poll_calls(cx);
                Poll::Ready(())
            })
            .await;
            self.send(status);
        }
    }

    /// Completes ended calls. Returns `Ready` if a request can be sent.
    fn poll_ready(&mut self, status: &ConnectionStatus, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_calls(cx);
        let mut queue = self.core.queue.lock();
        let polled = match status {
            ConnectionStatus::Connecting => {
                queue.set_sender(cx);
                Poll::Pending
            }
            _ => queue.poll_ready(cx),
        };
        // A call fails its own requests at their deadlines.
        while polled.is_pending()
            && let Some(deadline) = queue.next_deadline()
            && self.timer.poll(deadline, cx).is_ready()
        {
            queue.expire(Instant::now());
        }
        polled
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
                self.core.call_count.fetch_add(call_count(&batches), Ordering::Relaxed);
                let call = |batch| call(batch, connection.clone(), Arc::clone(&self.core));
                batches.into_iter().for_each(|batch| self.calls.push(Box::pin(call(batch))));
            }
        }
    }

    /// Adapts the number of calls in flight to the duration of a call, so that no request waits long for the next
    /// call.
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

/// Sends a batch and completes its requests.
async fn call(mut batch: Batch, connection: NodeConnection, core: Arc<DispatcherCore>) -> EndedCall {
    let mut lock = None;
    if batch.is_redisson() {
        lock = core.context.lock_shared_calls().await;
        core.queue.lock().fill(&mut batch);
    }
    let (sent, token) = (Instant::now(), batch.take_token());
    let mut requests = batch.take_requests();
    requests.expire(sent);
    if requests.deadline().is_none() {
        return EndedCall::default(); // unsent, and so not charged
    }
    let mut used = connection.clone();
    let mut decided = pin!(decide(&batch, &mut used, &core.context));
    let outcomes = until_expired(&mut requests, decided.as_mut()).await;
    let took = sent.elapsed();
    match outcomes {
        Some(Ok(outcomes)) => {
            batch.succeeded();
            core.connection.record_reply(&connection, took);
            let Unsent { retries, late } = requests.send_outcomes(&batch, &outcomes);
            give_back(late, connection, &core.context);
            EndedCall { took: Some(took), retries }
        }
        Some(Err(error)) => {
            core.connection.record_error(&connection, &error, took);
            requests.fail(&error);
            EndedCall::default()
        }
        None => {
            // Other calls do not wait for this one.
            drop((token, lock));
            batch.give_up_releases();
            if let Some(outcomes) = late_reply(decided, &connection, sent, &core).await {
                give_back(requests.send_outcomes(&batch, &outcomes).late, connection, &core.context);
            }
            EndedCall::default()
        }
    }
}

/// Waits for the reply to a call whose requests have failed. Their deadlines may have been earlier than the store's, which
/// decides whether the connection works.
async fn late_reply(
    mut decided: Pin<&mut impl Future<Output = Result<Outcomes, StoreError>>>,
    connection: &NodeConnection,
    sent: Instant,
    core: &DispatcherCore,
) -> Option<Outcomes> {
    if sent.elapsed() < core.context.timeout
        && let Ok(reply) = timeout_at(sent + core.context.timeout, decided.as_mut()).await
    {
        match &reply {
            Ok(_) => core.connection.record_reply(connection, sent.elapsed()),
            Err(error) => core.connection.record_error(connection, error, sent.elapsed()),
        }
        return reply.ok();
    }
    core.connection.record_error(connection, &StoreError::Timeout, sent.elapsed());
    timeout(MAX_LATENESS, decided).await.ok()?.ok()
}

/// Gives back permits that Redis granted to requests that had failed, and cancels their reservations. Sent once: permits that are
/// given back twice would be granted twice.
fn give_back(late: Vec<Granted>, mut connection: NodeConnection, context: &Arc<DispatcherContext>) {
    if late.is_empty() {
        return;
    }
    let context = Arc::clone(context);
    let give_back = async move {
        let (reservations, granted) = split_reservations(&late);
        for settled in &reservations {
            let deadline = Instant::now() + MAX_LATENESS;
            _ = decide_one(std::slice::from_ref(settled), None, deadline, &mut connection, &context).await;
        }
        if !granted.is_empty() {
            _ = undo(&mut connection, &granted, context.manual_now()).await;
        }
    };
    tokio::spawn(async move { timeout(MAX_LATENESS, give_back).await });
}

/// Decides one request in its own call.
///
/// # Errors
/// See [`StoreError`].
pub(crate) async fn decide_one(
    charges: &[Charge],
    lease: Option<&LeaseRequest>,
    deadline: Instant,
    connection: &mut NodeConnection,
    context: &DispatcherContext,
) -> Result<Outcome, StoreError> {
    loop {
        let (decided, decision) = oneshot::channel();
        let mut batch = Batch::single(PendingDecision::new(charges, lease, deadline, decided));
        let request = batch.take_requests();
        let outcomes = decide(&batch, connection, context).await?;
        batch.succeeded();
        if request.send_outcomes(&batch, &outcomes).retries.is_empty() {
            return decision.now_or_never().and_then(Result::ok).unwrap_or(Err(StoreError::UnexpectedReply));
        }
    }
}

/// Sends a batch. Sends it once more if Redis needs other calendar boundaries, since nothing has run then.
async fn decide(
    batch: &Batch,
    connection: &mut NodeConnection,
    context: &DispatcherContext,
) -> Result<Outcomes, StoreError> {
    let now = context.manual_now();
    let mut near = now.unwrap_or_else(|| context.clock_offset.redis_now());
    // Steps of an odd constant from a random start: no value repeats, and gateways have different sequences.
    let random = context.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    for _ in 0..2 {
        context.metrics.store_called(batch.len());
        connection.metrics.called();
        let (secret, time) = (connection.secret()?, DecisionTime { now, near, random });
        let reply = connection.script.run(|call| batch.write(call, &secret, time)).await?;
        match batch.read(&reply)? {
            Reply::Decided(outcomes) => {
                connection.metrics.decided(batch.len());
                return Ok(outcomes);
            }
            Reply::BoundariesNeeded(store_time) => {
                context.clock_offset.record(store_time);
                near = store_time;
            }
        }
    }
    Err(StoreError::UnexpectedReply)
}

/// Waits until all requests have failed, each at its deadline.
async fn until_expired<F: Future>(requests: &mut WaitingRequests, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    while let Some(deadline) = requests.deadline() {
        if let Some(output) = until(deadline, future.as_mut()).await {
            return Some(output);
        }
        requests.expire(Instant::now());
    }
    None
}

/// Waits until the deadline. Output that is ready at the deadline counts, even if the task that passes it on has not
/// run yet.
async fn until<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    if let Ok(output) = timeout_at(deadline, &mut future).await {
        return Some(output);
    }
    yield_now().await;
    future.now_or_never()
}
