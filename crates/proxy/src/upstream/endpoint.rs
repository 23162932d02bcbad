//! A target that is reached over the network: its connections, its protocol, and how a request is sent to it.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, header};
use http_body::Body;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::body::RequestBody;
use super::connection::Connection;
use super::dialer::Dialer;
use super::exchange::exchange;
use super::headless_response::HeadlessResponse;
use super::http2::Http2;
use super::pool::Pool;
use super::response_body::ResponseBody;
use super::settings::{Protocol, UpstreamSettings};
use super::single_flight::SingleFlight;
use super::slots::{Client, UpstreamSlot};
use super::target::TargetState;
use super::target_error::{TargetError, within};
use super::{AttemptError, UpstreamError};
use tidegate_metrics::UpstreamMetrics;
use tidegate_rules::route::upgrade::Upgrade;

/// How many idle connections may turn out to be closed before a new one is opened.
const MAX_STALE_CONNECTIONS: usize = 3;

/// Marks a request, in its extensions, whose `Host` is the authority of the target that receives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendTargetHost;

/// A target that is reached over the network.
#[derive(Debug)]
pub(crate) struct Endpoint {
    dialer: Arc<Dialer>,
    pool: Pool,
    http2: Http2,
    /// The protocol of the target; [`Auto`](Protocol::Auto) if the target chooses it (ALPN).
    protocol: Protocol,
    /// The protocol that the target has chosen; `Auto` until it is negotiated.
    negotiated: Mutex<Protocol>,
    negotiation: SingleFlight,
}

impl Endpoint {
    pub(crate) fn new(
        dialer: impl Into<Arc<Dialer>>,
        settings: &UpstreamSettings,
        metrics: UpstreamMetrics,
        target: &Arc<TargetState>,
    ) -> Self {
        let dialer = dialer.into();
        let protocol = match settings.protocol {
            Protocol::Auto if !dialer.is_tls() => Protocol::Http1,
            configured => configured,
        };
        let pool = Pool::new(settings, metrics.clone(), Arc::clone(target));
        let http2 = Http2::new(settings, metrics, Arc::clone(target));
        Self {
            dialer,
            pool,
            http2,
            protocol,
            negotiated: Mutex::new(Protocol::Auto),
            negotiation: SingleFlight::default(),
        }
    }

    /// Returns what opens the connections.
    pub(super) fn dialer(&self) -> &Arc<Dialer> {
        &self.dialer
    }

    /// Returns the number of connection slots in use, and of idle connections.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (self.pool.slots().in_use(), self.pool.idle())
    }

    /// Takes a connection slot, if one is free for this client.
    pub(crate) fn try_acquire_slot(&self, client: Client) -> Option<UpstreamSlot> {
        self.pool.slots().try_acquire(client)
    }

    /// Waits for a connection slot.
    pub(crate) async fn acquire_slot(&self, client: Client) -> Result<UpstreamSlot, UpstreamError> {
        let _waiting = self.pool.metrics().waiting();
        self.pool.slots().acquire(client).await
    }

    /// Sends a request on an idle connection, else on a new one. If the request `was_sent` before, always uses a new
    /// one. `now` is the current time, passed in to avoid another read of the clock.
    pub(crate) async fn send(
        &self,
        mut slot: UpstreamSlot,
        request: &mut Request<RequestBody>,
        now: &Instant,
        limit: &Duration,
        was_sent: bool,
    ) -> Result<HeadlessResponse, AttemptError> {
        self.set_host(request);
        let mut protocol = self.protocol_for(request);
        if protocol == Protocol::Auto {
            protocol = Box::pin(self.negotiate()).await?;
        }
        if protocol == Protocol::Http2 {
            return Box::pin(self.send_over_http2(slot, request, *limit, was_sent)).await;
        }
        let mut is_repeated = false;
        for _ in 0..MAX_STALE_CONNECTIONS {
            let idle = if was_sent || is_repeated { None } else { self.pool.take_idle(*now, is_repeatable(request)) };
            let Some(connection) = idle else { break };
            let mut lease = self.pool.lease(connection, slot);
            match exchange(lease.connection(), request, *now, *limit).await {
                Ok(head) => return Ok(head.into_response(lease)),
                // The deadline of the request may pass before the next connection is open.
                Err(AttemptError::NotSent(_)) if !was_sent && !is_repeated => request.body_mut().set_not_sent(),
                Err(AttemptError::NotSent(_)) => {}
                Err(AttemptError::Unanswered(_)) => {
                    is_repeated = true;
                    self.pool.metrics().repeated();
                }
                Err(error) => return Err(error),
            }
            slot = lease.close_and_keep_slot();
        }
        match Box::pin(self.send_on_new(slot, request, *limit)).await {
            Err(AttemptError::NotSent(error)) if is_repeated => Err(AttemptError::Reset(error)),
            result => result,
        }
    }

    /// Sets the authority of the target as `Host`, if the rules say so.
    fn set_host(&self, request: &mut Request<RequestBody>) {
        if request.extensions().get::<SendTargetHost>().is_some() {
            request.headers_mut().insert(header::HOST, self.dialer.host().clone());
        }
    }

    async fn send_on_new(
        &self,
        slot: UpstreamSlot,
        request: &mut Request<RequestBody>,
        limit: Duration,
    ) -> Result<HeadlessResponse, AttemptError> {
        self.pool.close_excess();
        let connection = match Connection::open(&self.dialer, self.pool.metrics()).await {
            Ok(connection) => connection,
            // The target supports only HTTP/2. Other requests keep using the negotiated protocol.
            Err(error) if self.is_negotiated() && is_upgrade(request) && error.is_unsupported => {
                return Err(AttemptError::Failed(UpstreamError::UpgradeUnsupported));
            }
            Err(error) => return Err(self.not_sent(error)),
        };
        let mut lease = self.pool.lease(connection, slot);
        exchange(lease.connection(), request, Instant::now(), limit).await.map(|head| head.into_response(lease))
    }

    async fn send_over_http2(
        &self,
        slot: UpstreamSlot,
        request: &mut Request<RequestBody>,
        limit: Duration,
        was_sent: bool,
    ) -> Result<HeadlessResponse, AttemptError> {
        let sent = self.http2.send(slot, &self.dialer, request, limit, was_sent).await;
        if matches!(sent, Err(AttemptError::NotSent(_))) {
            self.forget_protocol();
        }
        sent.map(|response| HeadlessResponse::from_response(response.map(ResponseBody::http2), request))
    }

    /// Negotiates the protocol with the target, on a new connection. The connection serves later requests.
    async fn negotiate(&self) -> Result<Protocol, AttemptError> {
        let negotiation = async {
            let timeouts = self.dialer.timeouts();
            let deadline = timeouts.deadline();
            let (stream, protocol) = self.dialer.open(Protocol::Auto).await?;
            match protocol {
                Protocol::Http2 => {
                    let added = within(deadline, timeouts.limit(), self.http2.add_connection(stream)).await;
                    added.map_err(|error| TargetError::http2(&error))?;
                }
                Protocol::Http1 | Protocol::Auto => {
                    let limits = self.dialer.head_limits();
                    self.pool.add_idle(Connection::new(stream, limits, self.pool.metrics()));
                }
            }
            *self.negotiated.lock() = protocol;
            Ok(protocol)
        };
        let negotiated = || Some(self.current_protocol()).filter(|protocol| *protocol != Protocol::Auto);
        self.negotiation.open(negotiated, negotiation).await.map_err(|error| self.not_sent(error))
    }

    fn not_sent(&self, error: TargetError) -> AttemptError {
        self.forget_protocol();
        AttemptError::NotSent(error)
    }

    /// Negotiates again with the next request: the target may have changed its protocol.
    fn forget_protocol(&self) {
        if self.is_negotiated() {
            *self.negotiated.lock() = Protocol::Auto;
        }
    }

    /// Returns `true` if the target chooses the protocol.
    fn is_negotiated(&self) -> bool {
        self.protocol == Protocol::Auto
    }

    /// Returns the protocol, or [`Auto`](Protocol::Auto) if it must be negotiated. Most requests take no lock here.
    fn current_protocol(&self) -> Protocol {
        if self.is_negotiated() { *self.negotiated.lock() } else { self.protocol }
    }

    /// Returns the protocol for a request, or [`Auto`](Protocol::Auto) if it must be negotiated.
    fn protocol_for(&self, request: &Request<RequestBody>) -> Protocol {
        match self.current_protocol() {
            Protocol::Http2 | Protocol::Auto if self.is_negotiated() && is_upgrade(request) => {
                Protocol::Http1 // only HTTP/1.1 has `Upgrade`
            }
            protocol => protocol,
        }
    }
}

fn is_upgrade(request: &Request<RequestBody>) -> bool {
    request.extensions().get::<Upgrade>().is_some()
}

/// Returns `true` if a request can be sent twice: its method is idempotent, and it has no body.
fn is_repeatable(request: &Request<RequestBody>) -> bool {
    request.method().is_idempotent() && request.body().is_end_stream()
}
