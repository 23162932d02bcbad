//! One target: its idle connections, how to open more, and how a request is sent on one.

use std::time::Duration;

use http::Response;
use http::uri::Authority;
use tokio::time::Instant;

use super::address::Address;
use super::body::ResponseBody;
use super::connection::Connection;
use super::exchange::exchange;
use super::pool::Pool;
use super::{Attempt, Parcel};

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
