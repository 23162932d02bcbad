//! Requests that are in flight during a reload: they finish with the rules with which they started.

use tokio::io::AsyncWriteExt;

use super::{GatedOrigin, OK, rules};
use crate::support::gateway::{TestGateway, get};
use crate::support::wire::upstream::{Origin, OriginConnection};
use crate::support::wire::{soon, until};

/// Rules without the upstream and the route of the other rules.
const ELSEWHERE: &str = "upstreams: { echo: { targets: ['builtin:echo'] } }
routes: [{ name: other, match: { path: /other }, upstream: echo }]";

#[tokio::test]
async fn request_in_flight_keeps_its_upstream() {
    let (old, new) = (GatedOrigin::start("old").await, GatedOrigin::start("new").await);
    let gateway = TestGateway::start(&rules(old.address(), ""));
    let mut client = gateway.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until(|| !old.origin.requests().is_empty()).await;
    gateway.reload(&rules(new.address(), ""));
    new.open(1);
    assert_eq!(gateway.get("/", "").await.text(), "new");
    old.open(1);
    assert_eq!(client.response(false).await.text(), "old");
    until(|| old.closed() == 1).await;
    new.open(1);
    assert_eq!(get(&mut client, "/", "").await.text(), "new");
}

/// A waiting request uses its upstream only after the wait: the upstream of its rules must still exist then.
#[tokio::test]
async fn waiting_request_keeps_its_removed_upstream() {
    let old = Origin::with_response(OK).await;
    let limit = "{ name: slow, mode: OVERALL, rate: 1, interval: 6s, max_wait: 9s, queue: 1 }";
    let gateway = TestGateway::start(&rules(old.address, limit));
    assert_eq!(gateway.get("/", "").await.status(), 200);
    // The queue has room for one of the requests. The rejection of the other shows that the first one waits.
    let (mut one, mut other) = (gateway.client().await, gateway.client().await);
    for client in [&mut one, &mut other] {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    }
    let (rejected, waiting) = tokio::select! {
        rejected = one.response(false) => (rejected, &mut other),
        rejected = other.response(false) => (rejected, &mut one),
    };
    assert_eq!(rejected.status(), 429);
    gateway.reload(ELSEWHERE);
    assert_eq!(gateway.get("/", "").await.status(), 404);
    assert_eq!(old.requests().len(), 1);
    let response = waiting.response(false).await;
    assert_eq!((response.status(), response.text().as_str()), (200, "ok"));
    assert_eq!(old.requests().len(), 2);
}

#[tokio::test]
async fn upgraded_connection_outlives_its_route() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
        let (mut read, mut write) = conn.raw.stream.split();
        tokio::io::copy(&mut read, &mut write).await.ok();
    })
    .await;
    let gateway = TestGateway::start(&rules(origin.address, "").replace("limits: []", "upgrades: [websocket]"));
    let mut client = gateway.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    assert_eq!(soon(client.head()).await.expect("a head").status(), 101);
    gateway.reload(ELSEWHERE);
    assert_eq!(gateway.get("/", "").await.status(), 404);
    client.stream.write_all(b"still here").await.expect("written");
    assert_eq!(soon(client.exactly(10)).await.expect("echoed"), b"still here");
}
