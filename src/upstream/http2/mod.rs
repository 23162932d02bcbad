//! HTTP/2 to a target: few connections, with many requests at a time on each.
//!
//! Frames, HPACK and flow control are the crate `h2`'s. What is ours: on which connection a request goes and when another
//! is opened, which requests are sent again, and how long is waited.
//!
//! Invariant: a request whose client does not read its answer holds up no other. The window of a connection is as large
//! as those of all its streams together, so what nobody reads never uses up what others need.

mod again;
mod download;
mod exchange;
mod head;
mod keep_alive;
mod link;
mod upload;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{Request, Response};
use parking_lot::Mutex;

pub(super) use self::download::Download;
use self::link::{Link, Place};
use super::address::{Address, Timeouts};
use super::body::RequestBody;
use super::seats::Seat;
use super::settings::UpstreamSettings;
use super::{Attempt, Failure};
use crate::metrics::UpstreamMetrics;

/// The most requests at a time on one connection, where the upstream allows more.
const MAX_STREAMS: u32 = 100;

/// How far ahead of a client an upstream may send: 25 MB/s for one answer from 10 ms away, and 256 KiB for a client that
/// does not read.
const STREAM_WINDOW: u32 = 256 * 1024;

/// How often a request is sent that the upstream says it did not look at.
const TRIES: usize = 3;

/// The connections to one target.
#[derive(Clone, Debug)]
pub(super) struct Http2(Arc<Shared>);

/// What they and the requests on them share.
#[derive(Debug)]
struct Shared {
    /// Those that may take requests, oldest first.
    links: Mutex<Vec<Link>>,
    /// One is opened at a time.
    opening: tokio::sync::Mutex<()>,
    /// How often one could not be opened.
    failures: AtomicU64,
    body_timeout: Duration,
    metrics: UpstreamMetrics,
}

impl Http2 {
    pub(super) fn new(settings: &UpstreamSettings, metrics: UpstreamMetrics) -> Self {
        let (links, opening, failures) = (Mutex::default(), tokio::sync::Mutex::default(), AtomicU64::new(0));
        Self(Arc::new(Shared { links, opening, failures, body_timeout: settings.body_timeout, metrics }))
    }

    /// Sends, and returns the answer as soon as its head is here. What an upstream refuses to look at is sent again; what
    /// may have been looked at is sent again once at most, by the law of this module's parent.
    pub(super) async fn send(
        &self,
        seat: Seat,
        (address, timeouts): (&Address, Timeouts),
        request: &mut Request<RequestBody>,
        limit: Duration,
        mut was_sent: bool,
    ) -> Result<Response<Download>, Attempt> {
        for _ in 0..TRIES {
            let mut place = match self.place(address, timeouts).await {
                Ok(place) => place,
                Err(error) => {
                    tracing::debug!(?address, %error, "no connection of HTTP/2 to an upstream");
                    break;
                }
            };
            match exchange::exchange(&mut place, request, limit).await {
                Ok(begun) => return Ok(begun.on(place, seat, &self.0)),
                Err(Attempt::NotSent) => {}
                Err(Attempt::Unanswered) if was_sent => return Err(Attempt::Failed(Failure::Broken)),
                Err(Attempt::Unanswered) => {
                    was_sent = true;
                    self.0.metrics.repeated();
                }
                Err(over) => return Err(over),
            }
        }
        Err(if was_sent { Attempt::Unanswered } else { Attempt::NotSent })
    }

    /// A place on the oldest connection that has one, else on a new connection.
    async fn place(&self, address: &Address, timeouts: Timeouts) -> io::Result<Place> {
        let failures = self.0.failures.load(Relaxed);
        if let Some(place) = self.take() {
            return Ok(place);
        }
        let _turn = self.0.opening.lock().await;
        // Another request has opened one meanwhile, or could not.
        if let Some(place) = self.take() {
            return Ok(place);
        }
        if self.0.failures.load(Relaxed) != failures {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let opened = link::open(address, timeouts, &self.0).await;
        let link = opened.inspect_err(|_| _ = self.0.failures.fetch_add(1, Relaxed))?;
        let place = link.try_take().ok_or(io::ErrorKind::ConnectionAborted)?;
        self.0.links.lock().push(link);
        Ok(place)
    }

    /// A place on the oldest connection that has one. Those that take no more requests are let go; they end with their last.
    fn take(&self) -> Option<Place> {
        let mut links = self.0.links.lock();
        links.retain_mut(Link::is_open);
        links.iter().find_map(Link::try_take)
    }
}

impl Shared {
    /// Lets go of a connection that has been idle, unless it has just been taken; whether it has.
    fn retire(&self, state: &Arc<link::State>) {
        self.links.lock().retain(|link| !link.is(state) || link.is_busy());
    }
}
