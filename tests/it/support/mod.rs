//! What the tests stand on: a real Redis, real sockets, real gateways.

pub mod cluster;
pub mod compose;
pub mod gateway;
pub mod listening;
pub mod pages;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod redisson;
pub mod sentinel;
pub mod strict;
pub mod tls;
pub mod tls_client;
pub mod wire;

use std::sync::Arc;

use tidegate::RateLimiter;
use tidegate::limit::redisson::Sharing;
use tidegate::limit::{Algorithm, Charge, ClientId, Limiter, Mode, Quota};
use tidegate::rate_limiter::RateLimiterError;

/// Returns whether a limiter grants the permits now.
pub async fn granted(limiter: &RateLimiter, permits: u32) -> Result<bool, RateLimiterError> {
    limiter.try_acquire(permits).await.map(|taken| taken.granted)
}

/// A charge on an OVERALL bucket.
pub fn overall(name: &str, rate: u64, interval: u64, permits: u32) -> Charge {
    charge(name, Mode::Overall, None, rate, interval, permits)
}

/// A charge on the PER_CLIENT bucket of a client that sent `value`.
pub fn per_client(name: &str, value: &[u8], rate: u64, interval: u64, permits: u32) -> Charge {
    charge(name, Mode::PerClient, Some(ClientId::Value(value.into())), rate, interval, permits)
}

/// A charge on a bucket with this quota: that of a client, or the OVERALL one.
pub fn charge_of(name: &str, client: Option<&[u8]>, quota: Quota, permits: u32) -> Charge {
    let mode = if client.is_some() { Mode::PerClient } else { Mode::Overall };
    let client = client.map(|value| ClientId::Value(value.into()));
    Charge { limiter: Arc::new(Limiter::new(name.to_owned(), mode, quota)), client, permits, shadow: false }
}

/// A charge on a limiter that others configure; `client` is its suffix where each has its own.
pub fn adopted(name: &str, mode: Option<Mode>, client: Option<&str>, permits: u32) -> Charge {
    shared(name, Quota::adopted(Sharing::Adopt(mode)), client, permits)
}

/// A charge on a limiter that others use and we configure.
pub fn configured(name: &str, rate: u64, interval: u64, permits: u32) -> Charge {
    let quota = Quota::new(rate, interval, Algorithm::Redisson(Sharing::Configure)).expect("a quota");
    shared(name, quota, None, permits)
}

/// A charge on a limiter with this quota, of this instance if each has its own.
pub fn shared(name: &str, quota: Quota, client: Option<&str>, permits: u32) -> Charge {
    let mode = if client.is_some() { Mode::PerClient } else { Mode::Overall };
    let client = client.map(|client| ClientId::Instance(client.into()));
    Charge { limiter: Arc::new(Limiter::new(name.to_owned(), mode, quota)), client, permits, shadow: false }
}

fn charge(name: &str, mode: Mode, client: Option<ClientId>, rate: u64, interval: u64, permits: u32) -> Charge {
    let quota = Quota::new(rate, interval, Algorithm::TokenBucket).expect("a quota");
    Charge { limiter: Arc::new(Limiter::new(name.to_owned(), mode, quota)), client, permits, shadow: false }
}
