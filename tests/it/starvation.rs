//! Slow clients of one address leave upstream connections to other clients.

use tokio::io::AsyncWriteExt;

use crate::support::gateway::{TestGateway, get};
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::soon;
use crate::support::wire::upstream::{Origin, OriginConnection};

/// More clients than the upstream has connections.
const FLOOD: u64 = 60;

const UPLOAD: &str = "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n";
const DOWNLOAD: &str = "GET /long HTTP/1.1\r\nHost: a\r\n";

/// More than the kernel buffers for a client that does not read.
const LONG: usize = 16 * 1024 * 1024;

fn rules(origin: &Origin, clients: &str) -> String {
    format!(
        "clients: {{ {clients} }}
upstreams:
  api: {{ targets: ['http://{}'], max_connections: 16, queue_timeout: 1m }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: api }}]",
        origin.address
    )
}

/// Starts an origin that responds to requests; to `/long` with a long body. An upload lasts as long as its connection.
async fn origin() -> Origin {
    Origin::start(|mut conn: OriginConnection| async move {
        while let Some(request) = conn.head().await {
            if request.start.starts_with("POST") {
                _ = conn.raw.take_all().await;
                return;
            }
            let body = if request.start.contains("/long") { vec![b'x'; LONG] } else { b"ok".to_vec() };
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            if conn.raw.stream.write_all(&[head.as_bytes(), &body].concat()).await.is_err() {
                return;
            }
        }
    })
    .await
}

/// Sends [`FLOOD`] requests, and waits until each has an upstream connection or waits for one.
async fn flood(gateway: &TestGateway, request: impl Fn(u64) -> String) -> Vec<Raw> {
    let mut clients = Vec::new();
    for number in 0..FLOOD {
        let mut client = gateway.client().await;
        client.send(request(number)).await;
        clients.push(client);
    }
    soon(async {
        loop {
            let connections = gateway.counter(r#"tidegate_upstream_connections{upstream="api"}"#).await;
            let waiting = gateway.counter(r#"tidegate_upstream_waiting{upstream="api"}"#).await;
            if waiting > 0 && connections + waiting == FLOOD {
                return;
            }
        }
    })
    .await;
    clients
}

/// Sends eight requests from an address, on eight connections, so that they reach every worker.
async fn ask_from(gateway: &TestGateway, source: &str, fields: &str) -> Vec<Message> {
    let mut responses = Vec::new();
    for _ in 0..8 {
        responses.push(get(&mut Raw::connect_from(source, gateway.address).await, "/", fields).await);
    }
    responses
}

async fn assert_served_during(request: &str) {
    let gateway = TestGateway::start(&rules(&origin().await, "ipv6_prefix: 64"));
    let clients = flood(&gateway, |_| format!("{request}\r\n")).await;
    for response in ask_from(&gateway, "127.0.0.2", "").await {
        assert_eq!((response.status(), response.text().as_str()), (200, "ok"));
    }
    drop(clients);
    for response in ask_from(&gateway, "127.0.0.1", "").await {
        assert_eq!(response.status(), 200); // the share of the address is free again
    }
}

#[tokio::test]
async fn slow_uploads_leave_connections_to_other_addresses() {
    assert_served_during(UPLOAD).await;
}

#[tokio::test]
async fn slow_readers_leave_connections_to_other_addresses() {
    assert_served_during(DOWNLOAD).await;
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_have_own_shares() {
    let gateway = TestGateway::start(&rules(&origin().await, "trusted_proxies: [127.0.0.0/8]"));
    let _clients = flood(&gateway, |_| format!("{UPLOAD}X-Forwarded-For: 192.0.2.1\r\n\r\n")).await;
    for response in ask_from(&gateway, "127.0.0.1", "X-Forwarded-For: 192.0.2.2\r\n").await {
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn untrusted_forwarded_addresses_get_no_extra_share() {
    let gateway = TestGateway::start(&rules(&origin().await, "trusted_proxies: [192.0.2.0/24]"));
    let _clients = flood(&gateway, |number| format!("{UPLOAD}X-Forwarded-For: 198.51.100.{number}\r\n\r\n")).await;
    let connections = gateway.counter(r#"tidegate_upstream_connections{upstream="api"}"#).await;
    assert!(connections <= 8, "{connections}");
}

/// Starts an upload that holds an upstream connection. Returns `None` if the gateway rejects it.
async fn upload(gateway: &TestGateway, origin: &Origin, address: &str) -> Option<Raw> {
    let before = origin.connections();
    let mut client = Raw::connect_from(address, gateway.address).await;
    client.send(format!("{UPLOAD}\r\n")).await;
    soon(async {
        loop {
            if origin.connections() > before {
                return Some(client);
            }
            if client.stream.try_read(&mut [0; 1]).is_ok() {
                return None;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Regression test: ten addresses took all connections.
#[tokio::test]
async fn hundred_greedy_addresses_leave_a_connection_to_others() {
    const MAX: usize = 416; // 208 of each worker, 104 of them reserved
    let origin = origin().await;
    let rules = format!(
        "upstreams: {{ api: {{ targets: ['http://{}'], max_connections: {MAX}, queue: 0 }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: api }}]",
        origin.address
    );
    let gateway = TestGateway::start(&rules);
    let mut uploads = Vec::new();
    for address in 2..102 {
        // The first address continues until both workers reject an upload.
        let tries = if uploads.is_empty() { MAX } else { 8 };
        for _ in 0..tries {
            uploads.extend(upload(&gateway, &origin, &format!("127.0.0.{address}")).await);
        }
    }
    assert!((MAX / 2 + 90..MAX).contains(&uploads.len()), "{} uploads", uploads.len());
    for response in ask_from(&gateway, "127.0.0.200", "").await {
        assert_eq!((response.status(), response.text().as_str()), (200, "ok"));
    }
}
