//! How long a switched connection may last, what it holds meanwhile, and what is told of it.

use std::time::Duration;

use tidegate::{Config, Gateway};

use super::*;

#[tokio::test]
async fn a_connection_ends_that_is_idle_too_old_or_has_carried_too_much() {
    let origin = echo().await;
    for (bound, cause) in
        [("idle_timeout: 100ms", "idle"), ("max_time: 100ms", "max_time"), ("max_bytes: 15B", "max_bytes")]
    {
        let gateway = gateway(&origin, &format!("upgrades: {{ {bound} }}"));
        let mut client = switched(&gateway).await;
        client.send("hello").await;
        assert_eq!(client.exactly(5).await.unwrap(), b"hello");
        if cause == "max_bytes" {
            client.send("hello").await;
        }
        client.rest().await.expect("an end in order");
        ends(&gateway, cause).await;
    }
}

#[tokio::test]
async fn neither_bounds_of_bodies_nor_of_requests_hold_for_it() {
    let origin = echo().await;
    let listen = "{ address: 127.0.0.1:0, body_timeout: 50ms, idle_timeout: 50ms, min_rate: 1MiB }";
    let rules = rules(&origin, "max_body: 1B, upgrades: { idle_timeout: 1s }", "body_timeout: 50ms");
    let gateway = TestGateway::start_at(listen, &rules);
    let mut client = switched(&gateway).await;
    client.send("many bytes").await;
    assert_eq!(client.exactly(10).await.unwrap(), b"many bytes");
    client.closed().await.unwrap();
    ends(&gateway, "idle").await;
}

#[tokio::test]
async fn it_holds_its_seat_at_the_upstream_until_it_ends() {
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
    ends(&gateway, "closed").await;
    switched(&gateway).await;
}

#[tokio::test]
async fn a_drain_waits_for_it_until_the_deadline_and_then_ends_it() {
    let origin = echo().await;
    let text = format!("listen: 127.0.0.1:0\nadmin: off\n{}", rules(&origin, "", ""));
    let gateway = Gateway::start(Config::parse_for_gateway(&text).unwrap(), 1).unwrap();
    let address = gateway.addresses()[0].tcp().expect("a port");
    let mut client = Raw::connect(address).await;
    client.send(handshake("/", "")).await;
    assert_eq!(client.head().await.unwrap().status(), 101);
    let draining = tokio::task::spawn_blocking(move || gateway.drain(Duration::from_millis(800)));
    until(|| std::net::TcpStream::connect(address).is_err()).await;
    client.send("still here").await;
    assert_eq!(client.exactly(10).await.unwrap(), b"still here");
    _ = client.rest().await;
    draining.await.unwrap().unwrap();
}
