//! Limits on connections, requests and heads.

use ipnet::IpNet;

use super::idle::wait_until_idle;
use super::*;

fn rejected(running: &Running, cause: &str) -> bool {
    running.metrics.render().contains(&format!("tidegate_rejected_total{{cause=\"{cause}\"}} "))
}

/// Returns the client of a served connection, or the text of the rejection.
async fn is_served(server: &Running) -> Result<Raw, String> {
    let mut client = Raw::connect(server.address).await;
    let response = client.ask(get("/")).await;
    if response.status() == 200 { Ok(client) } else { Err(response.text()) }
}

#[tokio::test]
async fn each_client_has_its_own_connection_cap() {
    let server = start(&Listen { max_connections_per_client: 2, ..listen() }, describe);
    let first = is_served(&server).await.unwrap();
    let _second = is_served(&server).await.unwrap();
    assert!(is_served(&server).await.unwrap_err().contains("too many connections from you"));
    assert!(rejected(&server, "client_connections"));
    // Another loopback address counts as another client.
    let mut other = Raw::connect_from("127.0.0.2", server.address).await;
    assert_eq!(other.ask(get("/")).await.status(), 200);
    drop(first);
    until(|| server.metrics.render().contains("tidegate_connections 2")).await;
    assert!(is_served(&server).await.is_ok());
}

#[tokio::test]
async fn trusted_proxy_has_no_client_cap() {
    let trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    let connections = gateway_connections(100, AddressRules { trusted_proxies, ipv6_prefix: 64 });
    let server = start_with_connections(&connections, &Listen { max_connections_per_client: 1, ..listen() }, describe);
    let _first = is_served(&server).await.unwrap();
    assert!(is_served(&server).await.is_ok());
}

/// Regression test: if a peer became a trusted proxy after its connection was counted, the connection stayed counted for
/// it.
#[test]
fn proxied_connection_is_counted_only_for_its_client() {
    let gateway = gateway_connections(9, AddressRules::default());
    let connections = ListenerConnections::new(&listen(), &gateway);
    let [peer, client] = ["10.0.0.1:1", "10.0.0.2:1"].map(|address| address.parse::<SocketAddr>().unwrap());
    let slot = connections.acquire(peer).unwrap();
    let counts = || [peer, client].map(|one| slot.count_of(&IpNet::from(one.ip())));
    assert_eq!(counts(), [1, 0]);
    gateway
        .update(9, AddressRules { trusted_proxies: vec!["10.0.0.1/32".parse().unwrap()], ..AddressRules::default() });
    slot.assign_client(client, false).unwrap();
    assert_eq!(counts(), [0, 1]);
    slot.release();
    assert_eq!(counts(), [0, 0]);
}

#[tokio::test]
async fn listeners_share_the_gateway_cap() {
    let connections = gateway_connections(2, AddressRules::default());
    let one = start_with_connections(&connections, &listen(), describe);
    let other = start_with_connections(&connections, &listen(), describe);
    let first = is_served(&one).await.unwrap();
    let _second = is_served(&other).await.unwrap();
    assert!(is_served(&one).await.unwrap_err().contains("too many connections\""));
    assert!(is_served(&other).await.is_err());
    assert!(rejected(&one, "connections"));
    drop(first);
    until(|| one.metrics.render().contains("tidegate_connections 1")).await;
    assert!(is_served(&other).await.is_ok());
}

#[tokio::test]
async fn last_request_of_a_connection_gets_a_close() {
    let server = start(&Listen { max_requests: 3, ..listen() }, describe);
    let mut client = Raw::connect(server.address).await;
    client.send(get("/").repeat(5)).await;
    for connection in [None, None, Some("close")] {
        let response = client.response(false).await;
        assert_eq!((response.status(), response.field("connection").as_deref()), (200, connection));
    }
    assert_eq!(client.rest().await.unwrap_or_default(), b"");
    assert!(rejected(&server, "max_requests"));
}

#[tokio::test]
async fn max_requests_includes_requests_before_an_idle_time() {
    let server = start(&Listen { max_requests: 2, ..listen() }, describe);
    let mut client = Raw::connect(server.address).await;
    assert_eq!(client.ask(get("/")).await.field("connection"), None);
    wait_until_idle().await;
    assert_eq!(client.ask(get("/")).await.field("connection").as_deref(), Some("close"));
    client.closed().await.unwrap();
}

#[tokio::test]
async fn head_limits_follow_the_settings() {
    let settings = Listen { max_fields: 200, max_field_bytes: 64 * 1024, max_target: 1024, ..listen() };
    let server = start(&settings, describe);
    let path = |length: usize| get(&format!("/{}", "a".repeat(length - 1)));
    let fields = |count: usize, value: &str| {
        let fields: String = (0..count).map(|index| format!("x-{index:03}: {value}\r\n")).collect();
        format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    };
    let method = |length: usize| get("/").replace("GET", &"M".repeat(length));
    for (request, status, cause) in [
        (path(1024), 200, ""),
        (path(1025), 414, "max_target"),
        (path(80_000), 414, "max_target"),
        (fields(199, "v"), 200, ""),
        (fields(200, "v"), 431, "max_fields"),
        (fields(60, &"v".repeat(1000)), 200, ""),
        (fields(66, &"v".repeat(1000)), 431, "max_fields"),
        (fields(1, &"v".repeat(100_000)), 431, "max_fields"),
        (method(32), 200, ""),
        (method(33), 501, "method"),
        (get("/").replace("HTTP/1.1", "HTTP/1.7"), 505, "version"),
        (get("/").replace("Host", "Transfer-Encoding: gzip, chunked\r\nHost"), 501, "coding"),
        (get("/").replace("Host: a", "Host a"), 400, "malformed"),
    ] {
        let response = Raw::connect(server.address).await.ask(&request).await;
        assert_eq!(response.status(), status, "{} bytes: {}", request.len(), response.text());
        let closes = response.field("connection").as_deref() == Some("close");
        assert_eq!(closes, status != 200, "{} bytes", request.len());
        assert!(cause.is_empty() || rejected(&server, cause), "{cause}");
    }
}
