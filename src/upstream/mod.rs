//! Where requests go: the targets of each upstream, and the connections to them.
//!
//! A request is sent once. It is tried elsewhere only while it is certain that nothing of it was sent: no connection
//! could be opened, or a kept connection turned out to be closed before the request was taken up. Everything after
//! that moment belongs to whoever asked: the upstream may have acted on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tokio::time::Instant;

mod address;
mod body;
mod connection;
mod download;
mod echo;
mod endpoint;
mod exchange;
mod pool;
mod select;
pub mod settings;
mod transfer;
mod upload;

pub use body::{BoxError, RequestBody, ResponseBody};

use crate::metrics::{Metrics, UpstreamMetrics};
use endpoint::Endpoint;
use select::RoundRobin;
use settings::{Target, UpstreamSettings};

/// The upstreams of a rule file, each with its own connections. Every worker has its own.
#[derive(Debug)]
pub struct Upstreams(BTreeMap<Arc<str>, Upstream>);

/// One of them.
#[derive(Debug)]
pub struct Upstream {
    targets: Vec<Place>,
    turn: RoundRobin,
    response_timeout: Duration,
    metrics: UpstreamMetrics,
}

/// Why an upstream gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No target took a connection. The request was not sent.
    #[error("no connection")]
    Unreachable,
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
}

#[derive(Debug)]
enum Place {
    Http(Endpoint),
    Echo,
}

/// A request until it is sent: passed by reference, so that no layer's future has room for another copy.
pub type Parcel = Option<Request<RequestBody>>;

/// Why an attempt at one target failed, and whether there may be another.
#[derive(Debug)]
enum Attempt {
    /// Nothing was sent; the request is in its parcel again.
    NotSent,
    /// It is over.
    Failed(Failure),
}

// === impl Upstreams ===

impl Upstreams {
    /// Upstreams without a connection yet; they are opened when requests come.
    pub fn new<'a>(settings: impl IntoIterator<Item = &'a UpstreamSettings>, metrics: &Metrics) -> Self {
        let named = |settings: &UpstreamSettings| (settings.name.clone(), Upstream::new(settings, metrics));
        Self(settings.into_iter().map(named).collect())
    }

    /// The upstream of this name.
    pub fn get(&self, name: &str) -> Option<&Upstream> {
        self.0.get(name)
    }
}

// === impl Upstream ===

impl Upstream {
    fn new(settings: &UpstreamSettings, metrics: &Metrics) -> Self {
        let place = |target: &Target| match target {
            Target::Http(authority) => Place::Http(Endpoint::new(authority, settings.connect_timeout)),
            Target::Echo => Place::Echo,
        };
        Self {
            targets: settings.targets.iter().map(place).collect(),
            turn: RoundRobin::default(),
            response_timeout: settings.response_timeout,
            metrics: metrics.upstream(&settings.name),
        }
    }

    /// Sends a request whose head is ready for HTTP/1.1, and returns the answer as soon as its head is here.
    ///
    /// # Errors
    /// See [`Failure`]. Dropping the future cancels the request.
    pub async fn send(&self, parcel: &mut Parcel) -> Result<Response<ResponseBody>, Failure> {
        let begin = Instant::now();
        let result = self.send_to_one(parcel, begin).await;
        match &result {
            Ok(_) => self.metrics.answered(begin.elapsed()),
            Err(Failure::Unreachable) => self.metrics.unreachable(),
            Err(Failure::TimedOut) => self.metrics.timed_out(),
            Err(Failure::Broken) => self.metrics.broken(),
            Err(Failure::ClientStalled | Failure::ClientBroken) => {}
        }
        result
    }

    /// Tries the targets in turn, each once, until one has taken the request.
    async fn send_to_one(&self, parcel: &mut Parcel, mut now: Instant) -> Result<Response<ResponseBody>, Failure> {
        for index in self.turn.next(self.targets.len()) {
            let attempt = match &self.targets[index] {
                Place::Echo => parcel.take().map(echo::answer).ok_or(Attempt::NotSent),
                Place::Http(endpoint) => endpoint.send(parcel, now, self.response_timeout).await,
            };
            match attempt {
                Ok(response) => return Ok(response),
                Err(Attempt::NotSent) => now = Instant::now(), // a connection may have been waited for
                Err(Attempt::Failed(failure)) => return Err(failure),
            }
        }
        Err(Failure::Unreachable)
    }
}
