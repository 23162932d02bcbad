//! Long bodies over a network with a round trip of 10 ms. The rate is printed, not checked.

use tokio::time::Instant;

use super::*;
use crate::support::proxy::FaultyProxy;

const ROUND_TRIP: u64 = 10;

/// Starts a proxy to this address with a round trip of [`ROUND_TRIP`] milliseconds, and returns its address.
async fn far(address: SocketAddr) -> SocketAddr {
    let proxy = FaultyProxy::start(address.port()).await;
    proxy.delay(ROUND_TRIP, ROUND_TRIP);
    SocketAddr::from(([127, 0, 0, 1], proxy.port))
}

/// Exchanges a long body and prints the rate. A first megabyte opens the windows.
async fn measure(echo: &Echo, address: SocketAddr, what: &str) {
    let mut client = echo.client_at(address).await;
    exchange(&mut client, MIB).await;
    let (begin, length) = (Instant::now(), body_length(8));
    exchange(&mut client, length).await;
    print_rate(&format!("{what} {ROUND_TRIP} ms away"), begin, length);
}

#[tokio::test]
async fn long_bodies_arrive_complete_over_a_slow_network() {
    let (near, tls) = (Echo::plaintext().await, Echo::tls());
    measure(&near, far(near.address).await, "a plaintext client").await;
    measure(&tls, far(tls.address).await, "a TLS client").await;
    let behind = Echo::plaintext_to(far(origin().await).await);
    measure(&behind, behind.address, "an origin").await;
}
