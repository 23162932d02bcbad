//! How a request is sent: the attempts at the targets of an upstream, until one takes the request.

mod failed;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request};
use tokio::time::{Instant, sleep};

use self::failed::FailedAttempt;
use super::body::RequestBody;
use super::endpoint::Endpoint;
use super::entry::Entry;
use super::headless_response::HeadlessResponse;
use super::retry::{Failure, NotRetried, Retries, cause_of, prepare_for_retries};
use super::selection::{Balancer, Selected, Selection};
use super::slots::{Client, UpstreamSlot};
use super::target::InFlightAttempt;
use super::trace::Trace;
use super::{AttemptError, Backend, SendError, Upstream, UpstreamError, echo};
use tidegate_limit::clock::poll_time;
use tidegate_rules::request::facts::grpc_timeout::{CallDeadline, reduce_grpc_timeout};

/// The longest pause before a request is sent to the same target again. If the target's `Retry-After` is longer, the
/// client gets its response.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The state for the attempts after the first.
struct NextAttempts<'e> {
    entries: &'e [Arc<Entry>],
    selection: Selection<'e>,
    /// A target without a free connection.
    busy: Option<&'e Entry>,
    /// The fields of the request, if a status can cause a retry.
    fields: Option<Box<HeaderMap>>,
}

impl Upstream {
    /// Sends a request whose head is ready for HTTP/1.1. Returns the response as soon as its head has arrived. Tries
    /// targets until one takes the request. Waits for the first target without a free connection if all others have
    /// failed.
    ///
    /// Takes the request by reference, so that the futures of the layers above do not hold another copy. Moves the body
    /// out of the request, and leaves the response's fields in the request's header map. Dropping the future cancels
    /// the request.
    ///
    /// # Errors
    /// See [`UpstreamError`].
    pub async fn send(
        &self,
        request: &mut Request<RequestBody>,
        client: &Client,
        trace: Option<&Trace>,
    ) -> Result<HeadlessResponse, SendError> {
        let begin = poll_time();
        self.retry_budget.record_request(begin);
        let fields = prepare_for_retries(self.retry.as_ref(), request);
        let entries = self.entries.load_full();
        let mut selection = self.balancer.select(&entries, request, *client);
        let mut busy = None;
        let Some((target, slot)) = next_target(&self.balancer, &mut selection, &mut busy, *client, begin) else {
            self.metrics.unreachable();
            if let Some(trace) = trace {
                trace.record_no_target(&self.name);
            }
            return Err(UpstreamError::NoUsableTarget.into());
        };
        let (attempt, backend) = (target.start_attempt(trace), target.backend());
        drop(target); // the future of a request stays small
        let result = match backend {
            Backend::Echo => Ok(HeadlessResponse::from_response(echo::respond(request), request)),
            Backend::Http(endpoint) => match slot {
                Some(slot) => endpoint.send(slot, request, &begin, &self.timeouts.response, false).await,
                None => Box::pin(self.send_when_slot_is_free(endpoint, request, *client, false)).await,
            },
        };
        let result = match self.finish_attempt(attempt, result, (&entries, request.headers()), trace) {
            Ok(response) if fields.is_none() => Ok(response),
            result => {
                let next = NextAttempts { entries: &entries, selection, busy, fields };
                Box::pin(self.try_again(result, request, *client, trace, next)).await
            }
        };
        self.count(begin, result.as_ref().err());
        result
    }

    /// Counts a request that began at this time.
    fn count(&self, begin: Instant, error: Option<&SendError>) {
        match error.map(|error| error.error) {
            None => self.metrics.responded(poll_time().saturating_duration_since(begin)),
            Some(UpstreamError::Unreachable | UpstreamError::NoUsableTarget | UpstreamError::UpgradeUnsupported) => {
                self.metrics.unreachable();
            }
            Some(UpstreamError::QueueFull { .. }) => self.metrics.queue_full(),
            Some(UpstreamError::QueueTimedOut { .. }) => self.metrics.queue_timed_out(),
            Some(UpstreamError::TimedOut) => self.metrics.timed_out(),
            Some(UpstreamError::Broken) => self.metrics.broken(),
            Some(UpstreamError::ClientStalled | UpstreamError::ClientBroken | UpstreamError::ClientTooLong) => {}
        }
    }

    /// Counts a request that was canceled because the client's own deadline passed.
    pub fn record_timeout(&self) {
        self.metrics.timed_out();
    }

    /// Tries the next targets after the `result` of the first, as long as `retry` allows it.
    async fn try_again(
        &self,
        mut result: Result<HeadlessResponse, AttemptError>,
        request: &mut Request<RequestBody>,
        client: Client,
        trace: Option<&Trace>,
        next: NextAttempts<'_>,
    ) -> Result<HeadlessResponse, SendError> {
        let NextAttempts { entries, mut selection, mut busy, fields } = next;
        let mut retries = Retries::new(self.retry.as_ref(), &self.retry_budget, fields);
        // The error of the last attempt that a target may have received.
        let mut sent = None;
        loop {
            let failed = match result {
                Ok(response) => match retries.of_response(response.line.status, request) {
                    None => return Ok(response),
                    Some(on) => FailedAttempt::with_response(on, response, &mut sent),
                },
                Err(error) => FailedAttempt::new(error, &mut sent, request)?,
            };
            let now = Instant::now(); // the attempt has taken time
            let Some((target, slot)) = next_target(&self.balancer, &mut selection, &mut busy, client, now) else {
                return failed.give_up(NotRetried::NoTarget);
            };
            let pause = failed.pause(&target, request);
            if let Err(reason) = self.take_retry(&mut retries, &failed, &target, pause, now) {
                return failed.give_up(reason);
            }
            retries.restore(request);
            drop(failed); // frees the connection
            let slot = slot.filter(|_| pause.is_none()); // other requests use the connection during the pause
            if let Some(pause) = pause {
                sleep(pause).await;
            }
            reduce_call_timeout(request);
            let attempt = target.start_attempt(trace);
            result = self.send_again(target.backend(), slot, request, client, sent.is_some()).await;
            result = self.finish_attempt(attempt, result, (entries, request.headers()), trace);
        }
    }

    /// Sends a request that `was_sent` before, or not, on this connection slot, or as soon as one is free.
    async fn send_again(
        &self,
        backend: &Backend,
        slot: Option<UpstreamSlot>,
        request: &mut Request<RequestBody>,
        client: Client,
        was_sent: bool,
    ) -> Result<HeadlessResponse, AttemptError> {
        match (backend, slot) {
            (Backend::Echo, _) => Ok(HeadlessResponse::from_response(echo::respond(request), request)),
            (Backend::Http(endpoint), Some(slot)) => {
                endpoint.send(slot, request, &Instant::now(), &self.timeouts.response, was_sent).await
            }
            (Backend::Http(endpoint), None) => self.send_when_slot_is_free(endpoint, request, client, was_sent).await,
        }
    }

    /// Takes a retry, and counts it. Fails if the pause is longer than a request may wait.
    fn take_retry(
        &self,
        retries: &mut Retries<'_>,
        failed: &FailedAttempt,
        target: &Selected<'_>,
        pause: Option<Duration>,
        now: Instant,
    ) -> Result<(), NotRetried> {
        if pause.is_some_and(|pause| pause > MAX_PAUSE) {
            return Err(NotRetried::NoTarget);
        }
        let failure = Failure { on: failed.on, adds_load: target.is_repeated || failed.is_refused };
        let taken = retries.take(failure, now);
        match taken {
            Ok(()) => self.metrics.retried(cause_of(failed.on)),
            Err(NotRetried::Budget) => self.metrics.retry_budget_exhausted(),
            Err(_) => {}
        }
        taken
    }

    /// Records the result of an attempt, and ejects the target if necessary. `fields` belong to the response.
    fn finish_attempt<'a>(
        &'a self,
        attempt: InFlightAttempt<'a>,
        result: Result<HeadlessResponse, AttemptError>,
        (entries, fields): (&[Arc<Entry>], &HeaderMap),
        trace: Option<&Trace>,
    ) -> Result<HeadlessResponse, AttemptError> {
        let due = match &result {
            Ok(response) => attempt.responded(response.line.status, fields, self.eject.as_ref()),
            Err(error) => {
                attempt.failed(error.target_error(self.timeouts.response).as_deref(), trace, self.eject.as_ref())
            }
        };
        if let (Some(due), Some(eject)) = (due, &self.eject) {
            let _decision = self.factory.states().lock_ejections();
            if self.balancer.can_eject(entries, due.target, eject.max_percent, Instant::now()) {
                due.eject();
            }
        }
        result
    }

    /// Waits for a connection slot of the endpoint, then sends the request.
    async fn send_when_slot_is_free(
        &self,
        endpoint: &Endpoint,
        request: &mut Request<RequestBody>,
        client: Client,
        was_sent: bool,
    ) -> Result<HeadlessResponse, AttemptError> {
        let slot = endpoint.acquire_slot(client).await.map_err(AttemptError::Failed)?;
        reduce_call_timeout(request);
        endpoint.send(slot, request, &Instant::now(), &self.timeouts.response, was_sent).await
    }
}

/// Takes the time that was spent on failed attempts, or in a queue, off the timeout of a gRPC call.
fn reduce_call_timeout(request: &mut Request<RequestBody>) {
    if let Some(CallDeadline(deadline)) = request.extensions().get().copied() {
        reduce_grpc_timeout(request.headers_mut(), deadline, Instant::now());
    }
}

/// Returns the next target to try, with a free connection slot if it has one. Without one, the request has to wait for a
/// slot of the target.
fn next_target<'e>(
    balancer: &Balancer,
    selection: &mut Selection<'e>,
    busy: &mut Option<&'e Entry>,
    client: Client,
    now: Instant,
) -> Option<(Selected<'e>, Option<UpstreamSlot>)> {
    loop {
        let Some(target) = selection.next(balancer, now).filter(|target| !target.is_repeated || busy.is_none()) else {
            return busy.take().map(|target| (Selected::first(target), None));
        };
        let Backend::Http(endpoint) = target.backend() else { return Some((target, None)) };
        match endpoint.try_acquire_slot(client) {
            None if !target.is_repeated => _ = busy.get_or_insert(target.entry()),
            slot => return Some((target, slot)),
        }
    }
}
