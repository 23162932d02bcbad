//! One target: its idle connections, how to open more, and how a request is sent on one.

use std::time::Duration;

use http::uri::Authority;
use http::{Request, Response};
use http_body::Body;
use tokio::time::Instant;

use super::address::{Address, Timeouts};
use super::body::RequestBody;
use super::connection::Connection;
use super::exchange::exchange;
use super::http2::Http2;
use super::pool::Pool;
use super::response_body::ResponseBody;
use super::seats::{Client, Seat};
use super::settings::{Protocol, UpstreamSettings};
use super::{Attempt, Failure};
use crate::metrics::UpstreamMetrics;

/// How many kept connections may turn out to be closed before a new one is opened.
const STALE_TRIES: usize = 3;

/// A target that is reached over the network.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: Address,
    timeouts: Timeouts,
    pool: Pool,
    /// For a target that speaks HTTP/2.
    http2: Option<Http2>,
}

impl Endpoint {
    pub(crate) fn new(authority: &Authority, settings: &UpstreamSettings, metrics: UpstreamMetrics) -> Self {
        let (address, timeouts) = (Address::new(authority), Timeouts::of(settings));
        let http2 = (settings.protocol == Protocol::Http2).then(|| Http2::new(settings, metrics.clone()));
        Self { address, timeouts, pool: Pool::new(settings, metrics), http2 }
    }

    /// The right to use a connection, if the client may have one now.
    pub(crate) fn try_take_seat(&self, client: Client) -> Option<Seat> {
        self.pool.seats().try_take(client)
    }

    /// Waits for the right to use a connection.
    pub(crate) async fn take_seat(&self, client: Client) -> Result<Seat, Failure> {
        let _waiting = self.pool.metrics().waiting();
        self.pool.seats().take(client).await
    }

    /// Sends on a kept connection, else on a new one; what `was_sent` before, on a new one alone. `now` is as good as the
    /// present moment; the clock is not asked again where nothing is waited for.
    pub(crate) async fn send(
        &self,
        mut seat: Seat,
        request: &mut Request<RequestBody>,
        now: Instant,
        limit: Duration,
        mut was_sent: bool,
    ) -> Result<Response<ResponseBody>, Attempt> {
        if let Some(http2) = &self.http2 {
            // Boxed, so that the future of a request over HTTP/1 has no room for it.
            let sending = Box::pin(http2.send(seat, (&self.address, self.timeouts), request, limit, was_sent));
            return sending.await.map(|response| response.map(ResponseBody::http2));
        }
        for _ in 0..STALE_TRIES {
            let kept = if was_sent { None } else { self.pool.take(now, is_repeatable(request)) };
            let Some(connection) = kept else { break };
            let mut lease = self.pool.lease(connection, seat);
            match exchange(lease.connection(), request, now, limit).await {
                Ok(begun) => return Ok(begun.on(lease)),
                Err(Attempt::NotSent) => {}
                Err(Attempt::Unanswered) => {
                    was_sent = true;
                    self.pool.metrics().repeated();
                }
                Err(over) => return Err(over),
            }
            seat = lease.close();
        }
        // Boxed, as it is rare and large: what is in line makes the future of every request larger.
        match Box::pin(self.send_on_new(seat, request, limit)).await {
            Err(Attempt::NotSent) if was_sent => Err(Attempt::Unanswered),
            over => over,
        }
    }

    async fn send_on_new(
        &self,
        seat: Seat,
        request: &mut Request<RequestBody>,
        limit: Duration,
    ) -> Result<Response<ResponseBody>, Attempt> {
        self.pool.make_room();
        match Connection::open(&self.address, self.timeouts, self.pool.metrics()).await {
            Ok(connection) => {
                let mut lease = self.pool.lease(connection, seat);
                exchange(lease.connection(), request, Instant::now(), limit).await.map(|begun| begun.on(lease))
            }
            Err(error) => {
                tracing::debug!(address = ?self.address, %error, "cannot connect to an upstream");
                Err(Attempt::NotSent)
            }
        }
    }
}

/// Whether a request does no harm if it is sent twice, and nothing of it is lost by sending it.
fn is_repeatable(request: &Request<RequestBody>) -> bool {
    request.method().is_idempotent() && request.body().is_end_stream()
}
