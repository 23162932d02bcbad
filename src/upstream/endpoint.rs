//! One target: its idle connections, how to open more, and how a request is sent on one.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
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
use crate::metrics::UpstreamMetrics;
use crate::upgrade::Upgrade;

/// How many kept connections may turn out to be closed before a new one is opened.
const STALE_TRIES: usize = 3;

/// A target that is reached over the network.
#[derive(Debug)]
pub(crate) struct Endpoint {
    dial: Arc<Dialer>,
    pool: Pool,
    http2: Http2,
    /// What is spoken to it; [`Auto`](Protocol::Auto) as long as it has not been asked.
    spoken: Mutex<Protocol>,
    /// Whether it is it that chooses.
    chooses: bool,
    asking: SingleFlight,
}

impl Endpoint {
    pub(crate) fn new(
        dial: Dialer,
        settings: &UpstreamSettings,
        metrics: UpstreamMetrics,
        target: &Arc<TargetState>,
    ) -> Self {
        let chooses = settings.protocol == Protocol::Auto && dial.is_tls();
        let spoken = match settings.protocol {
            Protocol::Auto if !chooses => Protocol::Http1,
            written => written,
        };
        let pool = Pool::new(settings, metrics.clone(), Arc::clone(target));
        let http2 = Http2::new(settings, metrics, Arc::clone(target));
        Self { dial: Arc::new(dial), pool, http2, spoken: Mutex::new(spoken), chooses, asking: SingleFlight::default() }
    }

    /// The right to use a connection, if the client may have one now.
    pub(crate) fn try_take_seat(&self, client: Client) -> Option<UpstreamSlot> {
        self.pool.seats().try_take(client)
    }

    /// Waits for the right to use a connection.
    pub(crate) async fn take_seat(&self, client: Client) -> Result<UpstreamSlot, UpstreamError> {
        let _waiting = self.pool.metrics().waiting();
        self.pool.seats().take(client).await
    }

    /// Sends on a kept connection, else on a new one; what `was_sent` before, on a new one alone. `now` is as good as the
    /// present moment; the clock is not asked again where nothing is waited for.
    pub(crate) async fn send(
        &self,
        mut seat: UpstreamSlot,
        request: &mut Request<RequestBody>,
        now: Instant,
        limit: Duration,
        mut was_sent: bool,
    ) -> Result<HeadlessResponse, AttemptError> {
        // Boxed, both, so that the future of a request over HTTP/1 has no room for them.
        let mut spoken = *self.spoken.lock();
        if spoken != Protocol::Http1 && self.chooses && is_upgrade(request) {
            spoken = Protocol::Http1; // only its connections can be switched, and it is offered nothing else
        }
        if spoken == Protocol::Auto {
            spoken = Box::pin(self.ask()).await?;
        }
        if spoken == Protocol::Http2 {
            return Box::pin(self.send_over_http2(seat, request, limit, was_sent)).await;
        }
        for _ in 0..STALE_TRIES {
            let kept = if was_sent { None } else { self.pool.take(now, is_repeatable(request)) };
            let Some(connection) = kept else { break };
            let mut lease = self.pool.lease(connection, seat);
            match exchange(lease.connection(), request, now, limit).await {
                Ok(begun) => return Ok(begun.on(lease)),
                Err(AttemptError::NotSent(_)) => {}
                Err(AttemptError::Unanswered(_)) => {
                    was_sent = true;
                    self.pool.metrics().repeated();
                }
                Err(over) => return Err(over),
            }
            seat = lease.close();
        }
        // Boxed, as it is rare and large: what is in line makes the future of every request larger.
        match Box::pin(self.send_on_new(seat, request, limit)).await {
            Err(AttemptError::NotSent(fault)) if was_sent => Err(AttemptError::Unanswered(fault)),
            over => over,
        }
    }

    async fn send_on_new(
        &self,
        seat: UpstreamSlot,
        request: &mut Request<RequestBody>,
        limit: Duration,
    ) -> Result<HeadlessResponse, AttemptError> {
        self.pool.make_room();
        let connection = match Connection::open(&self.dial, self.pool.metrics()).await {
            Ok(connection) => connection,
            // The target has chosen HTTP/2 or would: that is not forgotten for the requests that can use it.
            Err(fault) if self.chooses && is_upgrade(request) && fault.is_unsupported => {
                return Err(AttemptError::Failed(UpstreamError::CannotSwitch));
            }
            Err(fault) => return Err(self.unreachable(fault)),
        };
        let mut lease = self.pool.lease(connection, seat);
        exchange(lease.connection(), request, Instant::now(), limit).await.map(|begun| begun.on(lease))
    }

    async fn send_over_http2(
        &self,
        seat: UpstreamSlot,
        request: &mut Request<RequestBody>,
        limit: Duration,
        was_sent: bool,
    ) -> Result<HeadlessResponse, AttemptError> {
        let sent = self.http2.send(seat, &self.dial, request, limit, was_sent).await;
        if matches!(sent, Err(AttemptError::NotSent(_))) {
            self.forget();
        }
        sent.map(|response| HeadlessResponse::of(response.map(ResponseBody::http2), request))
    }

    /// Finds out what the target chooses to speak. The connection is kept for the requests that follow.
    async fn ask(&self) -> Result<Protocol, AttemptError> {
        let asking = async {
            let timeouts = self.dial.timeouts();
            let deadline = timeouts.deadline();
            let (stream, spoken) = self.dial.open(Protocol::Auto).await?;
            match spoken {
                Protocol::Http2 => {
                    let added = within(deadline, timeouts.limit(), self.http2.add(stream)).await;
                    added.map_err(|error| TargetError::http2(&error))?;
                }
                Protocol::Http1 | Protocol::Auto => self.pool.add(Connection::new(stream, self.pool.metrics())),
            }
            *self.spoken.lock() = spoken;
            Ok(spoken)
        };
        let known = || Some(*self.spoken.lock()).filter(|spoken| *spoken != Protocol::Auto);
        self.asking.open(known, asking).await.map_err(|fault| self.unreachable(fault))
    }

    fn unreachable(&self, fault: TargetError) -> AttemptError {
        self.forget();
        AttemptError::NotSent(fault)
    }

    /// What it spoke once may be no more what it speaks.
    fn forget(&self) {
        if self.chooses {
            *self.spoken.lock() = Protocol::Auto;
        }
    }
}

fn is_upgrade(request: &Request<RequestBody>) -> bool {
    request.extensions().get::<Upgrade>().is_some()
}

/// Whether a request does no harm if it is sent twice, and nothing of it is lost by sending it.
fn is_repeatable(request: &Request<RequestBody>) -> bool {
    request.method().is_idempotent() && request.body().is_end_stream()
}
