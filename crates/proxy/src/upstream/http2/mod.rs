//! HTTP/2 to a target: few connections, with many concurrent requests on each.
//!
//! The crate `h2` implements frames, HPACK and flow control. This module selects the connection for each request, opens
//! connections, repeats requests, and enforces timeouts.
//!
//! Invariant: a client that does not read its response does not delay other requests. The window of a connection is as
//! large as the windows of all its streams together, so unread responses never exhaust it.

mod connection;
mod download;
mod exchange;
mod grpc_call;
mod grpc_end;
mod head;
mod keep_alive;
mod upload;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use parking_lot::Mutex;

use self::connection::{Http2Connection, StreamSlot};
pub(super) use self::download::Download;
pub use self::grpc_call::GrpcCall;
pub use self::grpc_end::CallEnd;
use super::AttemptError;
use super::body::RequestBody;
use super::dialer::Dialer;
use super::head_limits::HeadLimits;
use super::settings::{Protocol, UpstreamSettings};
use super::single_flight::SingleFlight;
use super::slots::UpstreamSlot;
use super::target::TargetState;
use super::target_error::{TargetError, within};
use crate::transport::Transport;
use tidegate_metrics::UpstreamMetrics;

/// The maximum number of concurrent requests on a connection, even if the upstream allows more.
const MAX_STREAMS: u32 = 100;

/// The flow control window of a stream: how far an upstream may send ahead of a client. Allows 11 to 16 MB/s for one
/// response at a round trip of 10 ms (docs/http2.md), and costs at most 256 KiB for a client that does not read.
const STREAM_WINDOW: u32 = 256 * 1024;

/// How many times a request is sent if the upstream reports that it did not process it.
const MAX_TRIES: usize = 3;

/// The HTTP/2 connections to one target.
#[derive(Clone, Debug)]
pub(super) struct Http2(Arc<Shared>);

/// The state that the connections and their requests share.
#[derive(Debug)]
struct Shared {
    /// The connections that take requests, oldest first.
    connections: Mutex<Vec<Http2Connection>>,
    /// Opens one connection at a time.
    opening: Arc<SingleFlight>,
    idle_timeout: Duration,
    head_limits: HeadLimits,
    metrics: UpstreamMetrics,
    target: Arc<TargetState>,
}

impl Http2 {
    pub(super) fn new(settings: &UpstreamSettings, metrics: UpstreamMetrics, target: Arc<TargetState>) -> Self {
        let (connections, opening, idle_timeout) = (Mutex::default(), Arc::default(), settings.timeouts.idle);
        let head_limits = HeadLimits::new(settings);
        Self(Arc::new(Shared { connections, opening, idle_timeout, head_limits, metrics, target }))
    }

    /// Sends a request. Returns the response as soon as its head has arrived. Repeats a request that the upstream did
    /// not process. Sends any other request at most once more, as documented for [`upstream`](crate::upstream).
    pub(super) async fn send(
        &self,
        slot: UpstreamSlot,
        dialer: &Arc<Dialer>,
        request: &mut Request<RequestBody>,
        limit: Duration,
        was_sent: bool,
    ) -> Result<Response<Download>, AttemptError> {
        let (mut last_error, mut is_repeated) = (None, false);
        for _ in 0..MAX_TRIES {
            let mut stream_slot = match self.stream_slot(dialer).await {
                Ok(stream_slot) => stream_slot,
                Err(error) => {
                    last_error = Some(error);
                    break;
                }
            };
            match exchange::exchange(&mut stream_slot, request, dialer, limit).await {
                Ok(head) => return Ok(head.into_response(stream_slot, slot, &self.0)),
                Err(AttemptError::NotSent(error)) => {
                    last_error = Some(error);
                    if !was_sent && !is_repeated {
                        request.body_mut().set_not_sent(); // the deadline may pass before the next connection is open
                    }
                }
                Err(AttemptError::Unanswered(error)) if was_sent || is_repeated => {
                    return Err(AttemptError::Reset(error));
                }
                Err(AttemptError::Unanswered(error)) => {
                    last_error = Some(error);
                    is_repeated = true;
                    self.0.metrics.repeated();
                }
                Err(error) => return Err(error),
            }
        }
        let error = last_error.unwrap_or_else(TargetError::send);
        Err(if is_repeated { AttemptError::Reset(error) } else { AttemptError::NotSent(error) })
    }

    /// Adds an open connection whose protocol is HTTP/2.
    pub(super) async fn add_connection(&self, stream: Transport) -> io::Result<()> {
        let connection = connection::start(stream, &self.0).await?;
        self.0.connections.lock().push(connection);
        Ok(())
    }

    /// Takes a stream slot of the oldest connection with a free one, else of a new connection. A new connection is
    /// opened even if the client disconnects: otherwise many short-lived clients would cancel one attempt after the
    /// other, while all other requests wait.
    async fn stream_slot(&self, dialer: &Arc<Dialer>) -> Result<StreamSlot, TargetError> {
        let open = || {
            let (this, dialer) = (self.clone(), Arc::clone(dialer));
            async move {
                let timeouts = dialer.timeouts();
                let deadline = timeouts.deadline();
                let (stream, _) = dialer.open(Protocol::Http2).await?;
                let added = within(deadline, timeouts.limit(), this.add_connection(stream)).await;
                let stream_slot =
                    added.and_then(|()| this.take_stream_slot().ok_or_else(|| io::ErrorKind::ConnectionAborted.into()));
                stream_slot.map_err(|error| TargetError::http2(&error))
            }
        };
        self.0.opening.open_detached(|| self.take_stream_slot(), open).await
    }

    /// Takes a stream slot of the oldest connection with a free one. Drops connections that take no more requests; they
    /// close after their last request.
    fn take_stream_slot(&self) -> Option<StreamSlot> {
        let mut connections = self.0.connections.lock();
        connections.retain_mut(Http2Connection::is_open);
        connections.iter().find_map(Http2Connection::try_take_slot)
    }
}

impl Shared {
    /// Drops an idle connection, unless it has just taken a request.
    fn remove_idle(&self, state: &Arc<connection::ConnectionState>) {
        self.connections.lock().retain(|connection| !connection.has_state(state) || connection.is_busy());
    }
}
