//! One target: its idle connections, how to open more, and how a request is sent on one.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use http::uri::Authority;
use http::{Response, StatusCode};
use tokio::time::Instant;

use super::address::Address;
use super::body::ResponseBody;
use super::connection::Connection;
use super::pool::{Lease, Pool};
use super::transfer::Transfer;
use super::{Attempt, Failure, Parcel};

/// How many kept connections may turn out to be closed before a new one is opened.
const STALE_TRIES: usize = 3;

/// A target that is reached over the network.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: Address,
    connect_timeout: Duration,
    pool: Pool,
}

impl Endpoint {
    pub(crate) fn new(authority: &Authority, connect_timeout: Duration) -> Self {
        Self { address: Address::new(authority), connect_timeout, pool: Pool::default() }
    }

    /// Sends on a kept connection, else on a new one. `now` is as good as the present moment; the clock is not asked again
    /// where nothing is waited for.
    pub(crate) async fn send(
        &self,
        parcel: &mut Parcel,
        now: Instant,
        limit: Duration,
    ) -> Result<Response<ResponseBody>, Attempt> {
        for _ in 0..STALE_TRIES {
            let Some(lease) = self.pool.take(now) else { break };
            match exchange(lease, parcel, now, limit).await {
                Err(Attempt::NotSent) => {}
                over => return over,
            }
        }
        // Boxed, as they are rare and large: what is in line makes the future of every request larger.
        match Box::pin(Connection::open(&self.address, self.connect_timeout)).await {
            Ok(connection) => Box::pin(exchange(self.pool.lease(connection), parcel, Instant::now(), limit)).await,
            Err(error) => {
                tracing::debug!(address = ?self.address, %error, "cannot connect to an upstream");
                Err(Attempt::NotSent)
            }
        }
    }
}

/// One request and its answer on one connection.
async fn exchange(
    mut lease: Lease,
    parcel: &mut Parcel,
    now: Instant,
    limit: Duration,
) -> Result<Response<ResponseBody>, Attempt> {
    let Some(request) = parcel else { return Err(Attempt::NotSent) };
    let transfer = Transfer::attach(request);
    let Some(request) = parcel.take() else { return Err(Attempt::NotSent) };
    let connection = lease.connection();
    let mut answer = pin!(connection.sender.try_send_request(request));
    let result = match &transfer {
        Some(transfer) => transfer.wait(answer.as_mut(), limit).await,
        None => {
            poll_fn(|cx| match answer.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(Ok(result)),
                Poll::Pending => connection.timer.poll(now + limit, cx).map(|()| Err(Failure::TimedOut)),
            })
            .await
        }
    };
    match result.map_err(Attempt::Failed)? {
        // An upgrade that nobody asked for: the bytes that follow are no HTTP.
        Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => Err(Attempt::Failed(Failure::Broken)),
        Ok(response) => Ok(response.map(|body| ResponseBody::new(body, lease, transfer))),
        Err(mut error) => {
            *parcel = error.take_message();
            Err(match transfer {
                _ if parcel.is_some() => Attempt::NotSent,
                Some(transfer) if transfer.has_failed() => Attempt::Failed(Failure::ClientBroken),
                _ => Attempt::Failed(Failure::Broken),
            })
        }
    }
}
