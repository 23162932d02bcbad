//! Limits of upgraded connections, their upstream slots, and drains.

use std::time::Duration;

use tidegate::Gateway;

use super::*;

#[tokio::test]
async fn upgrade_limits_end_a_connection() {
    let origin = echo().await;
    for (bound, cause) in [("idle_timeout: 3s", "idle"), ("max_time: 3s", "max_time"), ("max_bytes: 15B", "max_bytes")]
    {
        let gateway = gateway(&origin, &format!("upgrades: {{ {bound} }}"));
        let mut client = upgraded(&gateway).await;
        client.send("hello").await;
        assert_eq!(client.exactly(5).await.unwrap(), b"hello");
        if cause == "max_bytes" {
            client.send("hello").await;
        }
        client.rest().await.expect("an end without a reset");
        wait_for_end(&gateway, cause).await;
    }
}

#[tokio::test]
async fn limits_of_bodies_and_requests_do_not_apply() {
    let origin = echo().await;
    let listen = "{ address: 127.0.0.1:0, body_timeout: 2s, idle_timeout: 2s, min_rate: 1MiB }";
    let rules = rules(&origin, "max_body: 1B, upgrades: { idle_timeout: 5s }", "timeouts: { idle: 2s }");
    let gateway = TestGateway::start_at(listen, &rules);
    let mut client = upgraded(&gateway).await;
    client.send("many bytes").await;
    assert_eq!(client.exactly(10).await.unwrap(), b"many bytes");
    client.closed().await.unwrap();
    wait_for_end(&gateway, "idle").await;
}

#[tokio::test]
async fn upgraded_connection_keeps_its_upstream_slot() {
    let origin = echo().await;
    let gateway = TestGateway::start(&rules(&origin, "", "max_connections: 2, queue: 0")); // one for each worker
    let mut open = Vec::new();
    loop {
        let mut client = gateway.client().await;
        client.send(handshake("/", "")).await;
        match client.head().await.unwrap().status() {
            101 => open.push(client),
            status => break assert_eq!(status, 503),
        }
    }
    assert!((1..=2).contains(&open.len()));
    open.clear();
    wait_for_end(&gateway, "closed").await;
    upgraded(&gateway).await;
}

#[tokio::test]
async fn drain_ends_upgraded_connections_at_its_deadline() {
    let origin = echo().await;
    let text = format!("listen: 127.0.0.1:0\nadmin: off\n{}", rules(&origin, "", ""));
    let gateway = Gateway::start(Gateway::parse_config(&text).unwrap(), 1).unwrap();
    let address = gateway.addresses()[0].tcp().expect("a port");
    let mut client = Raw::connect(address).await;
    client.send(handshake("/", "")).await;
    assert_eq!(client.head().await.unwrap().status(), 101);
    let draining = tokio::task::spawn_blocking(move || gateway.drain(Duration::from_secs(4)));
    until(|| std::net::TcpStream::connect(address).is_err()).await;
    client.send("still here").await;
    assert_eq!(client.exactly(10).await.unwrap(), b"still here");
    _ = client.rest().await;
    draining.await.unwrap().unwrap();
}
