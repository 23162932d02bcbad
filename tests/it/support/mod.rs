//! Shared helpers of the tests: Redis servers, sockets, gateways and certificates.

pub mod cluster;
pub mod compose;
pub mod control_plane;
pub mod dns;
pub mod gateway;
pub mod issuer;
pub mod listening;
pub mod pages;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod redisson;
pub mod sentinel;
pub mod service;
pub mod strict;
pub mod tls;
pub mod tls_client;
pub mod wire;

use std::sync::Arc;

use tidegate::internals::ReplayStore;
use tidegate::redisson::{Mode, RateLimiter, RateLimiterError};
use tidegate_limit::redisson::Sharing;
use tidegate_limit::{Algorithm, Quota};
use tidegate_rules::charge::{Charge, ClientId, Limiter};
use tidegate_rules::settings::store::StoreSettings;

/// Returns the number of cases of a property with a real Redis or gateway: all of them with `ALL_CASES`, which
/// `tests/run --all` sets, and a quarter otherwise. `PROPTEST_CASES` raises the number.
pub fn case_count(all: u32) -> u32 {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|given| given.parse().ok()).unwrap_or(0);
    given.max(if std::env::var_os("ALL_CASES").is_some() { all } else { all.div_ceil(4) })
}

/// Returns `true` if the limiter grants the permits immediately.
pub async fn granted(limiter: &RateLimiter, permits: u32) -> Result<bool, RateLimiterError> {
    limiter.try_acquire(permits).await.map(|taken| taken.granted)
}

/// Opens an embedded store with a manual clock.
pub fn replay_memory() -> ReplayStore {
    ReplayStore::open(&StoreSettings::Memory { key_secret: None }).expect("a store")
}

/// Creates a charge on an OVERALL bucket.
pub fn overall(name: &str, rate: u64, interval: u64, permits: u32) -> Charge {
    charge(name, Mode::Overall, None, rate, interval, permits)
}

/// Creates a charge on the PER_CLIENT bucket of the client key `value`.
pub fn per_client(name: &str, value: &[u8], rate: u64, interval: u64, permits: u32) -> Charge {
    charge(name, Mode::PerClient, Some(ClientId::Value(value.into())), rate, interval, permits)
}

/// Creates a charge on a bucket with this quota: PER_CLIENT if there is a `client`, OVERALL otherwise.
pub fn charge_of(name: &str, client: Option<&[u8]>, quota: Quota, permits: u32) -> Charge {
    let mode = if client.is_some() { Mode::PerClient } else { Mode::Overall };
    let client = client.map(|value| ClientId::Value(value.into()));
    Charge::new(Arc::new(Limiter::new(name.to_owned(), mode, quota)), client, permits)
}

/// Creates a charge on a limiter that another program configures. `client` is the instance id in PER_CLIENT mode.
pub fn adopted(name: &str, mode: Option<Mode>, client: Option<&str>, permits: u32) -> Charge {
    shared(name, Quota::adopted(Sharing::Adopt(mode)), client, permits)
}

/// Creates a charge on a shared limiter that Tidegate configures.
pub fn configured(name: &str, rate: u64, interval: u64, permits: u32) -> Charge {
    let quota = Quota::new(rate, interval, Algorithm::Redisson(Sharing::Configure)).expect("a quota");
    shared(name, quota, None, permits)
}

/// Creates a charge on a shared limiter with this quota: PER_CLIENT if there is an instance id, OVERALL otherwise.
pub fn shared(name: &str, quota: Quota, client: Option<&str>, permits: u32) -> Charge {
    let mode = if client.is_some() { Mode::PerClient } else { Mode::Overall };
    let client = client.map(|client| ClientId::Instance(client.into()));
    Charge::new(Arc::new(Limiter::new(name.to_owned(), mode, quota)), client, permits)
}

fn charge(name: &str, mode: Mode, client: Option<ClientId>, rate: u64, interval: u64, permits: u32) -> Charge {
    let quota = Quota::new(rate, interval, Algorithm::TokenBucket).expect("a quota");
    Charge::new(Arc::new(Limiter::new(name.to_owned(), mode, quota)), client, permits)
}
