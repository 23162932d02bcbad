//! How a request is sent: the attempts at the targets of an upstream, until one takes the request.

use std::sync::Arc;

use http::{HeaderMap, Request};
use tokio::time::Instant;

use super::body::RequestBody;
use super::endpoint::Endpoint;
use super::entry::Entry;
use super::headless_response::HeadlessResponse;
use super::selection::can_eject;
use super::slots::Client;
use super::target::InFlightAttempt;
use super::trace::Trace;
use super::{AttemptError, Backend, Upstream, UpstreamError, echo};

impl Upstream {
    /// Sends a request whose head is ready for HTTP/1.1. Returns the response as soon as its head has arrived.
    ///
    /// Takes the request by reference, so that the futures of the layers above do not hold another copy. Moves the body
    /// out of the request, and leaves the response's fields in the request's header map. Dropping the future cancels
    /// the request.
    ///
    /// # Errors
    /// See [`UpstreamError`].
    pub(crate) async fn send(
        &self,
        request: &mut Request<RequestBody>,
        client: &Client,
        trace: Option<&Trace>,
    ) -> Result<HeadlessResponse, UpstreamError> {
        let begin = Instant::now();
        let result = self.try_targets(request, client, trace, &begin).await;
        match &result {
            Ok(_) => self.metrics.responded(begin.elapsed()),
            Err(UpstreamError::Unreachable | UpstreamError::NoUsableTarget | UpstreamError::UpgradeUnsupported) => {
                self.metrics.unreachable()
            }
            Err(UpstreamError::QueueFull) => self.metrics.queue_full(),
            Err(UpstreamError::QueueTimedOut) => self.metrics.queue_timed_out(),
            Err(UpstreamError::TimedOut) => self.metrics.timed_out(),
            Err(UpstreamError::Broken) => self.metrics.broken(),
            Err(UpstreamError::ClientStalled | UpstreamError::ClientBroken | UpstreamError::ClientTooLong) => {}
        }
        result
    }

    /// Counts a request that was canceled because the client's own deadline passed.
    pub(crate) fn record_timeout(&self) {
        self.metrics.timed_out();
    }

    /// Tries each usable target once, until one takes the request. Waits for the first target without a free
    /// connection if all others have failed.
    async fn try_targets(
        &self,
        request: &mut Request<RequestBody>,
        client: &Client,
        trace: Option<&Trace>,
        begin: &Instant,
    ) -> Result<HeadlessResponse, UpstreamError> {
        let mut now = *begin;
        let entries = self.entries.load_full();
        let mut selection = self.balancer.select(&entries, request, *client);
        let (mut was_tried, mut was_sent, mut busy) = (false, false, None);
        while let Some(target) = selection.next(now).filter(|target| !target.is_repeated) {
            let (attempt, result) = match target.backend() {
                Backend::Echo => {
                    (target.start_attempt(trace), Ok(HeadlessResponse::from_response(echo::respond(request), request)))
                }
                Backend::Http(endpoint) => match endpoint.try_acquire_slot(*client) {
                    Some(slot) => {
                        let attempt = target.start_attempt(trace);
                        drop(target); // the future of a request stays small
                        let limit = &self.timeouts.response;
                        (attempt, endpoint.send(slot, request, &now, limit, was_sent).await)
                    }
                    None => {
                        busy.get_or_insert(target.entry());
                        continue;
                    }
                },
            };
            was_tried = true;
            match self.finish_attempt(attempt, result, (&entries, request.headers()), trace) {
                Ok(response) => return Ok(response),
                Err(AttemptError::NotSent(_)) => {}
                Err(AttemptError::Unanswered(_)) => was_sent = true,
                Err(AttemptError::Broken(_)) => return Err(UpstreamError::Broken),
                Err(AttemptError::Failed(error)) => return Err(error),
            }
            now = Instant::now(); // opening a connection may have taken time
        }
        let Some(target) = busy else {
            return Err(match (was_sent, was_tried) {
                (true, _) => UpstreamError::Broken,
                (false, true) => UpstreamError::Unreachable,
                (false, false) => UpstreamError::NoUsableTarget,
            });
        };
        let Backend::Http(endpoint) = &target.backend else { return Err(UpstreamError::Unreachable) };
        let attempt = target.state.start_attempt(trace, false);
        let result = Box::pin(self.send_when_slot_is_free(endpoint, request, *client, was_sent)).await;
        self.finish_attempt(attempt, result, (&entries, request.headers()), trace).map_err(|error| match error {
            AttemptError::Failed(UpstreamError::QueueFull | UpstreamError::QueueTimedOut)
            | AttemptError::NotSent(_)
                if was_sent =>
            {
                UpstreamError::Broken
            }
            AttemptError::Failed(error) => error,
            AttemptError::Unanswered(_) | AttemptError::Broken(_) => UpstreamError::Broken,
            AttemptError::NotSent(_) => UpstreamError::Unreachable,
        })
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
            if can_eject(entries, due.target, eject.most, Instant::now()) {
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
        endpoint.send(slot, request, &Instant::now(), &self.timeouts.response, was_sent).await
    }
}
