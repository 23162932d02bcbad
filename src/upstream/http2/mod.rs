//! HTTP/2 to a target: few connections, with many requests at a time on each.
//!
//! Frames, HPACK and flow control are the crate `h2`'s. What is ours: on which connection a request goes and when another
//! is opened, which requests are sent again, and how long is waited.
//!
//! Invariant: a request whose client does not read its answer holds up no other. The window of a connection is as large
//! as those of all its streams together, so what nobody reads never uses up what others need.

mod connection;
mod download;
mod exchange;
mod head;
mod keep_alive;
mod replay;
mod scanning_socket;
mod upload;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use parking_lot::Mutex;

use self::connection::{Http2Connection, StreamSlot};
pub(super) use self::download::Download;
use super::AttemptError;
use super::body::RequestBody;
use super::dialer::Dialer;
use super::settings::{Protocol, UpstreamSettings};
use super::single_flight::SingleFlight;
use super::slots::UpstreamSlot;
use super::target::TargetState;
use super::target_error::{TargetError, within};
use crate::metrics::UpstreamMetrics;
use crate::transport::Transport;

/// The most requests at a time on one connection, where the upstream allows more.
const MAX_STREAMS: u32 = 100;

/// How far ahead of a client an upstream may send: 11 to 16 MB/s for one answer from 10 ms away (docs/http2.md), and 256 KiB for a client
/// that does not read.
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
    links: Mutex<Vec<Http2Connection>>,
    /// One is opened at a time.
    opening: Arc<SingleFlight>,
    body_timeout: Duration,
    metrics: UpstreamMetrics,
    target: Arc<TargetState>,
}

impl Http2 {
    pub(super) fn new(settings: &UpstreamSettings, metrics: UpstreamMetrics, target: Arc<TargetState>) -> Self {
        let (links, opening, body_timeout) = (Mutex::default(), Arc::default(), settings.body_timeout);
        Self(Arc::new(Shared { links, opening, body_timeout, metrics, target }))
    }

    /// Sends, and returns the answer as soon as its head is here. What an upstream refuses to look at is sent again; what
    /// may have been looked at is sent again once at most, by the law of this module's parent.
    pub(super) async fn send(
        &self,
        seat: UpstreamSlot,
        dial: &Arc<Dialer>,
        request: &mut Request<RequestBody>,
        limit: Duration,
        mut was_sent: bool,
    ) -> Result<Response<Download>, AttemptError> {
        let mut last = None;
        for _ in 0..TRIES {
            let mut place = match self.place(dial).await {
                Ok(place) => place,
                Err(fault) => {
                    last = Some(fault);
                    break;
                }
            };
            match exchange::exchange(&mut place, request, dial.scheme(), limit).await {
                Ok(begun) => return Ok(begun.on(place, seat, &self.0)),
                Err(AttemptError::NotSent(fault)) => last = Some(fault),
                Err(AttemptError::Unanswered(fault)) if was_sent => return Err(AttemptError::Broken(fault)),
                Err(AttemptError::Unanswered(fault)) => {
                    last = Some(fault);
                    was_sent = true;
                    self.0.metrics.repeated();
                }
                Err(over) => return Err(over),
            }
        }
        let fault = last.unwrap_or_else(TargetError::send);
        Err(if was_sent { AttemptError::Unanswered(fault) } else { AttemptError::NotSent(fault) })
    }

    /// Takes a connection that was opened already, on which HTTP/2 is spoken.
    pub(super) async fn add(&self, stream: Transport) -> io::Result<()> {
        let connection = connection::start(stream, &self.0).await?;
        self.0.links.lock().push(connection);
        Ok(())
    }

    /// A place on the oldest connection that has one, else on a new connection. That is opened also if the client leaves: clients
    /// that come and go in numbers would have each attempt given up, with all others waiting for the next.
    async fn place(&self, dial: &Arc<Dialer>) -> Result<StreamSlot, TargetError> {
        let open = || {
            let (this, dial) = (self.clone(), Arc::clone(dial));
            async move {
                let timeouts = dial.timeouts();
                let deadline = timeouts.deadline();
                let (stream, _) = dial.open(Protocol::Http2).await?;
                let added = within(deadline, timeouts.limit(), this.add(stream)).await;
                let place = added.and_then(|()| this.take().ok_or_else(|| io::ErrorKind::ConnectionAborted.into()));
                place.map_err(|error| TargetError::http2(&error))
            }
        };
        self.0.opening.open_detached(|| self.take(), open).await
    }

    /// A place on the oldest connection that has one. Those that take no more requests are let go; they end with their last.
    fn take(&self) -> Option<StreamSlot> {
        let mut links = self.0.links.lock();
        links.retain_mut(Http2Connection::is_open);
        links.iter().find_map(Http2Connection::try_take)
    }
}

impl Shared {
    /// Lets go of a connection that has been idle, unless it has just been taken; whether it has.
    fn retire(&self, state: &Arc<connection::ConnectionState>) {
        self.links.lock().retain(|connection| !connection.is(state) || connection.is_busy());
    }
}
