//! What one stream carries over 10 ms of round trip, which is told and not judged.

use tokio::time::Instant;

use super::*;
use crate::support::proxy::FaultyProxy;

const ROUND_TRIP: u64 = 10;

/// The way to this address, with so many milliseconds of round trip.
async fn far(address: SocketAddr) -> SocketAddr {
    let way = FaultyProxy::start(address.port()).await;
    way.delay(ROUND_TRIP, ROUND_TRIP);
    SocketAddr::from(([127, 0, 0, 1], way.port))
}

/// Sends so many bytes, of which the answer is read; the first megabyte opens what opens slowly.
async fn time(echo: &Echo, address: SocketAddr, what: &str) {
    let mut client = echo.client_at(address).await;
    exchange(&mut client, MIB).await;
    let (begin, length) = (Instant::now(), much(8));
    exchange(&mut client, length).await;
    tell(&format!("{what} {ROUND_TRIP} ms away"), begin, length);
}

#[tokio::test]
async fn a_long_body_comes_whole_from_a_client_and_an_origin_that_are_far_away() {
    let (near, tls) = (Echo::clear().await, Echo::tls());
    time(&near, far(near.address).await, "a client in clear").await;
    time(&tls, far(tls.address).await, "a client over TLS").await;
    let behind = Echo::clear_to(far(origin().await).await);
    time(&behind, behind.address, "an origin").await;
}
