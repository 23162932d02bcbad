//! A gateway with `concurrency`: streamed bodies, tunnels, clients that leave, and a store that does not reply.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::wire::upstream::{Origin, OriginConnection};

/// Starts an origin that sends the head of each response, and the rest when `go` has a permit. It accepts upgrades.
async fn streaming() -> (Origin, Arc<Semaphore>) {
    let go = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&go);
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let go = Arc::clone(&held);
        async move {
            while let Some(request) = conn.request().await {
                if request.field("upgrade").is_some() {
                    conn.raw
                        .send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
                        .await;
                    go.acquire().await.expect("open").forget();
                    return;
                }
                conn.raw.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await;
                go.acquire().await.expect("open").forget();
                conn.raw.send("1\r\nb\r\n0\r\n\r\n").await;
            }
        }
    })
    .await;
    (origin, go)
}

fn rules(origin: &Origin, store: &str, concurrency: &str) -> String {
    format!(
        "store: {store}\nupstreams: {{ origin: {{ targets: 'http://{}' }} }}\n\
         routes: [{{ name: all, match: {{}}, upstream: origin, concurrency: {concurrency} }}]",
        origin.address
    )
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Waits until this number of requests wait.
pub async fn until_waiting(gateway: &TestGateway, count: u64) {
    while gateway.counter("tidegate_requests_waiting{route=\"all\"}").await != count {
        tokio::task::yield_now().await;
    }
}

async fn until_in_flight(gateway: &TestGateway, count: u64) {
    while gateway.counter("tidegate_requests_in_flight{route=\"all\"}").await != count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn request_is_in_flight_until_its_body_has_ended() {
    let (origin, go) = streaming().await;
    let gateway = TestGateway::start(&rules(&origin, "memory", "{ max: 1 }"));
    let mut client = gateway.client().await;
    client.send(GET).await;
    assert_eq!(client.head().await.expect("a head").status(), 200);
    assert_eq!(gateway.get("/", "").await.status(), 503);
    go.add_permits(1);
    until_in_flight(&gateway, 0).await;
    go.add_permits(1);
    assert_eq!(gateway.get("/", "").await.status(), 200);
}

#[tokio::test]
async fn client_that_leaves_frees_its_slot() {
    let (origin, go) = streaming().await;
    let gateway = TestGateway::start(&rules(&origin, "memory", "{ max: 1 }"));
    let mut client = gateway.client().await;
    client.send(GET).await;
    assert_eq!(client.head().await.expect("a head").status(), 200);
    drop(client);
    until_in_flight(&gateway, 0).await;
    go.add_permits(2);
    assert_eq!(gateway.get("/", "").await.status(), 200);
}

#[tokio::test]
async fn tunnel_holds_its_slot_until_it_is_closed() {
    let (origin, go) = streaming().await;
    let gateway = TestGateway::start(&rules(&origin, "memory", "{ max: 1 }"));
    let mut client = gateway.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    assert_eq!(client.head().await.expect("a head").status(), 101);
    assert_eq!(gateway.get("/", "").await.status(), 503);
    go.add_permits(1);
    drop(client);
    until_in_flight(&gateway, 0).await;
    go.add_permits(1);
    assert_eq!(gateway.get("/", "").await.status(), 200);
}

#[tokio::test]
async fn gateways_share_the_slots_in_redis() {
    let Some(redis) = RedisServer::start() else { return };
    let (origin, go) = streaming().await;
    let rules = rules(&origin, &redis.rule(), "{ max: 2, queue: 9, max_wait: 1m }");
    let gateways = [TestGateway::start(&rules), TestGateway::start(&rules)];
    let mut held = Vec::new();
    for gateway in &gateways {
        let mut client = gateway.client().await;
        client.send(GET).await;
        assert_eq!(client.head().await.expect("a head").status(), 200);
        held.push(client);
    }
    let mut waiting = gateways[0].client().await;
    waiting.send(GET).await;
    until_waiting(&gateways[0], 1).await;
    // The request of the other gateway ends.
    held.pop();
    assert_eq!(waiting.head().await.expect("a head").status(), 200);
    go.add_permits(9);
}

/// Without a reply, each gateway uses its share of the bounds, and keeps the slots that it holds.
#[tokio::test]
async fn outage_leaves_held_slots_and_a_share() {
    let Some(redis) = RedisServer::start() else { return };
    let (origin, go) = streaming().await;
    let store = format!("{{ url: '{}', timeout: 100ms, min_gateways: 2 }}", redis.url());
    let gateway = TestGateway::start(&rules(&origin, &store, "{ max: 4 }"));
    let mut clients = Vec::new();
    let mut ask = async || {
        let mut client = gateway.client().await;
        client.send(GET).await;
        let status = client.head().await.expect("a head").status();
        clients.push(client);
        status
    };
    assert_eq!(ask().await, 200);
    drop(redis);
    assert_eq!([ask().await, ask().await], [200, 503], "half of four, of which one was held");
    go.add_permits(9);
}
