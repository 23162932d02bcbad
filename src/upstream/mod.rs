//! Where requests go: the targets of each upstream, and the connections to them.
//!
//! A request is tried elsewhere while it is certain that nothing of it was sent: no connection could be opened, or a kept
//! connection turned out to be closed before the request was taken up. After that the upstream may have acted on it, and
//! it is sent once more at most: if its connection had served others and ended before any of the answer came, if doing it
//! twice does no harm (RFC 9110 section 9.2.2), and if its body is still whole. Over HTTP/2 an upstream may also say that it
//! did not look at a request, which then counts as not sent. Whether to repeat anything else is the client's decision.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request};
use tokio::time::Instant;

mod address;
mod body;
mod connection;
mod dialer;
mod download;
mod echo;
mod endpoint;
mod exchange;
mod headless_response;
mod http2;
mod informational;
mod pool;
mod response_body;
mod round_robin;
pub mod settings;
mod single_flight;
mod slots;
mod target;
mod target_error;
pub(crate) mod tls;
mod trace;
mod tunnel;
mod tunnel_progress;
mod upload;
mod upload_progress;

pub use body::{BoxError, RequestBody, TooLong};
pub(crate) use informational::{InformationalSender, InformationalSink};
pub use response_body::ResponseBody;
pub(crate) use target::TargetStates;
pub(crate) use trace::{LastAttempt, Trace};
pub(crate) use upload_progress::expects_continue;

use crate::metrics::{Metrics, UpstreamMetrics};
use dialer::Dialer;
use endpoint::Endpoint;
pub(crate) use headless_response::HeadlessResponse;
use round_robin::RoundRobin;
use settings::{Protocol, Target, UpstreamSettings};
pub(crate) use slots::Client;
use target::{InFlightAttempt, TargetState};
use target_error::TargetError;
use tls::UpstreamTlsConfigs;

/// The upstreams of a rule file, each with its own connections. Every worker has its own.
#[derive(Debug)]
pub struct Upstreams(BTreeMap<Arc<str>, Upstream>);

/// One of them.
#[derive(Debug)]
pub struct Upstream {
    targets: Vec<(Arc<TargetState>, Backend)>,
    /// The name of its first target, for requests that name none.
    host: HeaderValue,
    turn: RoundRobin,
    response_timeout: Duration,
    /// Whether its connections can be switched to another protocol: those of HTTP/2 cannot.
    switches: bool,
    metrics: UpstreamMetrics,
}

/// Why an upstream gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// No target took a connection. The request was not sent.
    #[error("no connection")]
    Unreachable,
    /// All connections are in use, and as many requests wait as may. The request was not sent.
    #[error("too many requests wait for a connection")]
    QueueFull,
    /// All connections were in use for as long as a request waits. It was not sent.
    #[error("no connection became free in time")]
    QueueTimedOut,
    /// It took the request, and did not begin to answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// The connection broke, or what came back was no answer.
    #[error("no valid answer")]
    Broken,
    /// The client stopped sending its body.
    #[error("the client stopped sending")]
    ClientStalled,
    /// What the client sent for a body was none.
    #[error("the client's body broke off")]
    ClientBroken,
    /// The client's body is longer than its route takes.
    #[error("the client's body is too long")]
    ClientTooLong,
    /// The target serves no protocol whose connections can be switched to another one. The request was not sent.
    #[error("the target serves HTTP/2 only")]
    CannotSwitch,
}

#[derive(Debug)]
enum Backend {
    Http(Endpoint),
    Echo,
}

/// Answers that only inform (1xx) before the one that counts.
const MAX_INFORMATIONAL: u8 = 16;

/// Why an attempt at one target failed, and whether there may be another.
#[derive(Debug)]
enum AttemptError {
    /// Nothing was sent; the request is whole.
    NotSent(TargetError),
    /// It was sent on a kept connection, which ended before any of the answer came. The request is whole, and may be
    /// sent once more.
    Unanswered(TargetError),
    /// The connection broke, or what came back is no response.
    Broken(TargetError),
    /// It is over.
    Failed(UpstreamError),
}

// === impl AttemptError ===

impl AttemptError {
    /// Returns the fault of the target, if it is the target's. `limit` is how long a response may take to begin.
    fn fault(&self, limit: Duration) -> Option<Cow<'_, TargetError>> {
        match self {
            Self::NotSent(fault) | Self::Unanswered(fault) | Self::Broken(fault) => Some(Cow::Borrowed(fault)),
            Self::Failed(failure) => TargetError::of_failure(*failure, limit).map(Cow::Owned),
        }
    }
}

// === impl Upstreams ===

impl Upstreams {
    /// Those of one of so many workers, without a connection yet; they are opened when requests come.
    pub fn new<'a>(
        settings: impl IntoIterator<Item = &'a UpstreamSettings>,
        workers: usize,
        metrics: &Metrics,
    ) -> Self {
        let settings: Vec<_> = settings.into_iter().collect();
        let targets = TargetStates::new(settings.iter().copied(), metrics);
        Self::sharing(settings, workers, metrics, &UpstreamTlsConfigs::default(), &targets)
    }

    /// Likewise; those of all workers share what was read of the files, and the states of the targets.
    pub(crate) fn sharing<'a>(
        settings: impl IntoIterator<Item = &'a UpstreamSettings>,
        workers: usize,
        metrics: &Metrics,
        identities: &UpstreamTlsConfigs,
        targets: &TargetStates,
    ) -> Self {
        let named = |settings: &UpstreamSettings| {
            let upstream = Upstream::new(&settings.share(workers.max(1)), metrics, identities, targets);
            (settings.name.clone(), upstream)
        };
        Self(settings.into_iter().map(named).collect())
    }

    /// The upstream of this name.
    pub fn get(&self, name: &str) -> Option<&Upstream> {
        self.0.get(name)
    }
}

// === impl Upstream ===

impl Upstream {
    fn new(
        settings: &UpstreamSettings,
        metrics: &Metrics,
        identities: &UpstreamTlsConfigs,
        targets: &TargetStates,
    ) -> Self {
        let metrics = metrics.upstream(&settings.name);
        let place = |(target, state): (&Target, &Arc<TargetState>)| {
            let remote = |dial| Backend::Http(Endpoint::new(dial, settings, metrics.clone(), state));
            let backend = match target {
                Target::Http(authority) => remote(Dialer::clear(authority, settings)),
                Target::Https(authority) => remote(Dialer::tls(authority, settings, identities.of(settings))),
                Target::Unix(path) => remote(Dialer::unix(path, settings)),
                Target::Echo => Backend::Echo,
            };
            (Arc::clone(state), backend)
        };
        let authority = settings.targets.iter().find_map(|target| match target {
            Target::Http(authority) | Target::Https(authority) => HeaderValue::from_str(authority.as_str()).ok(),
            Target::Unix(_) => Some(HeaderValue::from_static("localhost")),
            Target::Echo => None,
        });
        Self {
            host: authority.unwrap_or(HeaderValue::from_static("")),
            targets: settings.targets.iter().zip(targets.of(&settings.name)).map(place).collect(),
            turn: RoundRobin::default(),
            response_timeout: settings.response_timeout,
            switches: settings.protocol != Protocol::Http2,
            metrics,
        }
    }

    /// Whether it can be offered another protocol.
    pub(crate) fn switches(&self) -> bool {
        self.switches
    }

    /// Its `Host`, for requests that come without one. Empty if it has none (RFC 9112 section 3.2).
    pub fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Sends a client's request whose head is ready for HTTP/1.1, and returns the answer as soon as its head is here. The
    /// request is passed by reference, so that no layer's future has room for another copy; what has been sent is taken
    /// out of it, and the answer's fields are left in it.
    ///
    /// # Errors
    /// See [`UpstreamError`]. Dropping the future cancels the request.
    pub(crate) async fn send(
        &self,
        request: &mut Request<RequestBody>,
        client: Client,
        trace: Option<&Trace>,
    ) -> Result<HeadlessResponse, UpstreamError> {
        let begin = Instant::now();
        let result = self.send_to_one(request, client, trace, begin).await;
        match &result {
            Ok(_) => self.metrics.answered(begin.elapsed()),
            Err(UpstreamError::Unreachable | UpstreamError::CannotSwitch) => self.metrics.unreachable(),
            Err(UpstreamError::QueueFull) => self.metrics.queue_full(),
            Err(UpstreamError::QueueTimedOut) => self.metrics.queue_timed_out(),
            Err(UpstreamError::TimedOut) => self.metrics.timed_out(),
            Err(UpstreamError::Broken) => self.metrics.broken(),
            Err(UpstreamError::ClientStalled | UpstreamError::ClientBroken | UpstreamError::ClientTooLong) => {}
        }
        result
    }

    /// Counts a request that was given up, since its client's own time was over.
    pub(crate) fn was_late(&self) {
        self.metrics.timed_out();
    }

    /// Tries the targets in turn, each once, until one has taken the request. If none does, it waits for the first that has
    /// no room.
    async fn send_to_one(
        &self,
        request: &mut Request<RequestBody>,
        client: Client,
        trace: Option<&Trace>,
        mut now: Instant,
    ) -> Result<HeadlessResponse, UpstreamError> {
        let (mut was_sent, mut full) = (false, None);
        for index in self.turn.next(self.targets.len()) {
            let (target, backend) = &self.targets[index];
            let (attempting, result) = match backend {
                Backend::Echo => (target.attempt(trace), Ok(HeadlessResponse::of(echo::answer(request), request))),
                Backend::Http(endpoint) => match endpoint.try_take_seat(client) {
                    Some(seat) => {
                        let attempting = target.attempt(trace);
                        let limit = self.response_timeout;
                        (attempting, endpoint.send(seat, request, now, limit, was_sent).await)
                    }
                    None => {
                        full.get_or_insert((target, endpoint));
                        continue;
                    }
                },
            };
            match self.end(attempting, result, trace) {
                Ok(answer) => return Ok(answer),
                Err(AttemptError::NotSent(_)) => {}
                Err(AttemptError::Unanswered(_)) => was_sent = true,
                Err(AttemptError::Broken(_)) => return Err(UpstreamError::Broken),
                Err(AttemptError::Failed(failure)) => return Err(failure),
            }
            now = Instant::now(); // a connection may have been waited for
        }
        let Some((target, endpoint)) = full else {
            return Err(if was_sent { UpstreamError::Broken } else { UpstreamError::Unreachable });
        };
        let attempting = target.attempt(trace);
        let result = Box::pin(self.send_later(endpoint, request, client, was_sent)).await;
        self.end(attempting, result, trace).map_err(|attempt| match attempt {
            AttemptError::Failed(UpstreamError::QueueFull | UpstreamError::QueueTimedOut)
            | AttemptError::NotSent(_)
                if was_sent =>
            {
                UpstreamError::Broken
            }
            AttemptError::Failed(failure) => failure,
            AttemptError::Unanswered(_) | AttemptError::Broken(_) => UpstreamError::Broken,
            AttemptError::NotSent(_) => UpstreamError::Unreachable,
        })
    }

    /// Records how an attempt ended.
    fn end(
        &self,
        attempting: InFlightAttempt<'_>,
        result: Result<HeadlessResponse, AttemptError>,
        trace: Option<&Trace>,
    ) -> Result<HeadlessResponse, AttemptError> {
        match &result {
            Ok(_) => attempting.succeeded(),
            Err(attempt) => attempting.failed(attempt.fault(self.response_timeout).as_deref(), trace),
        }
        result
    }

    /// Sends as soon as there is a connection for the client.
    async fn send_later(
        &self,
        endpoint: &Endpoint,
        request: &mut Request<RequestBody>,
        client: Client,
        was_sent: bool,
    ) -> Result<HeadlessResponse, AttemptError> {
        let seat = endpoint.take_seat(client).await.map_err(AttemptError::Failed)?;
        endpoint.send(seat, request, Instant::now(), self.response_timeout, was_sent).await
    }
}
