//! Reloaded listeners: added, removed and changed ones. All others keep their connections.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;

use tidegate::ListenAddress;

use super::{GatedOrigin, rules};
use crate::support::gateway::{TestGateway, get};
use crate::support::wire::raw::Raw;
use crate::support::wire::{soon, until};

const ECHO: &str = "upstreams: { echo: { targets: ['builtin:echo'] } }\n\
                    routes: [{ name: all, match: { path: /** }, upstream: echo }]";

fn second_address(gateway: &TestGateway) -> SocketAddr {
    gateway.addresses()[1].tcp().expect("a port")
}

#[tokio::test]
async fn listener_is_added_and_removed() {
    let gateway = TestGateway::start(ECHO);
    let mut client = gateway.client().await;
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
    let report = gateway.try_reload("[127.0.0.1:0, 127.0.0.1:0]", ECHO).expect("a reload");
    assert_eq!(report.changes(), ["listener 127.0.0.1:0 (2): added"]);
    assert_eq!(gateway.addresses()[0], ListenAddress::Tcp(gateway.address));
    let second = second_address(&gateway);
    let mut on_second = Raw::connect(second).await;
    assert_eq!(get(&mut on_second, "/", "").await.status(), 200);
    assert_eq!(get(&mut client, "/", "").await.status(), 200, "the first listener kept its connection");

    gateway.reload(ECHO);
    soon(on_second.closed()).await.expect("the idle connection is closed");
    until(|| std::net::TcpStream::connect(second).is_err()).await;
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
}

#[tokio::test]
async fn removed_listener_can_be_added_again() {
    let gateway = TestGateway::start(ECHO);
    // No other test uses this address, so none can take the port in the meantime.
    gateway.try_reload("[127.0.0.1:0, 127.3.5.8:0]", ECHO).expect("a reload");
    let second = second_address(&gateway);
    let both = format!("[127.0.0.1:0, '{second}']");
    for _ in 0..10 {
        gateway.try_reload(&both, ECHO).expect("the address is free again");
        assert_eq!(get(&mut Raw::connect(second).await, "/", "").await.status(), 200);
        gateway.reload(ECHO);
        // The workers close their sockets a moment after the reload. Until the last one has closed its socket, a
        // connection is accepted, or reset with the socket that it waits at. The system distributes connections over the
        // sockets, so that a single one can be refused while another socket is still open.
        let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
        until(|| (0..8).all(|_| std::net::TcpStream::connect(second).is_err_and(refused))).await;
    }
}

#[tokio::test]
async fn removed_listener_finishes_running_requests() {
    let origin = GatedOrigin::start("slow").await;
    let rules = rules(origin.address(), "");
    let gateway = TestGateway::start(&rules);
    gateway.try_reload("[127.0.0.1:0, 127.0.0.1:0]", &rules).expect("a reload");
    let mut client = Raw::connect(second_address(&gateway)).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until(|| !origin.origin.requests().is_empty()).await;
    gateway.reload(&rules);
    origin.open(1);
    let response = client.response(false).await;
    assert_eq!((response.status(), response.text().as_str()), (200, "slow"));
    soon(client.closed()).await.expect("closed after the response");
}

#[tokio::test]
async fn changed_listener_keeps_its_port_and_applies_its_settings() {
    let gateway = TestGateway::start(ECHO);
    let mut idle = gateway.client().await;
    assert_eq!(get(&mut idle, "/", "").await.status(), 200);
    let listen = "{ address: 127.0.0.1:0, max_target: 1KiB }";
    let report = gateway.try_reload(listen, ECHO).expect("a reload");
    assert_eq!(report.changes(), ["listener 127.0.0.1:0: changed (max_target)"]);
    soon(idle.closed()).await.expect("the old server closes its idle connection");
    assert_eq!(gateway.addresses(), [ListenAddress::Tcp(gateway.address)]);
    let long = format!("/{}", "x".repeat(2000));
    for _ in 0..20 {
        assert_eq!(gateway.get("/", "").await.status(), 200);
        assert_eq!(gateway.get(&long, "").await.status(), 414);
    }
}

#[tokio::test]
async fn changed_caps_keep_all_connections() {
    let gateway = TestGateway::start(ECHO);
    let mut first = gateway.client().await;
    assert_eq!(get(&mut first, "/", "").await.status(), 200);
    gateway.try_reload("{ address: 127.0.0.1:0, max_connections_per_client: 1 }", ECHO).expect("a reload");
    assert_eq!(gateway.client().await.response(false).await.status(), 503);
    assert_eq!(get(&mut first, "/", "").await.status(), 200);
    gateway.reload(ECHO);
    assert_eq!(gateway.get("/", "").await.status(), 200);
    assert_eq!(get(&mut first, "/", "").await.status(), 200);
}

#[tokio::test]
async fn address_in_use_changes_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|address| (taken, address)).expect("an address");
    let gateway = TestGateway::start(ECHO);
    let mut client = gateway.client().await;
    let others = ECHO.replace("/**", "/other");
    let error = gateway.try_reload(&format!("[127.0.0.1:0, '{}']", taken.1), &others).expect_err("a taken port");
    assert!(error.to_string().starts_with(&format!("cannot listen on {}: ", taken.1)), "{error}");
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
    assert_eq!(gateway.addresses().len(), 1);
}

#[tokio::test]
async fn unix_socket_is_added_changed_and_removed() {
    let path = std::env::temp_dir().join(format!("tidegate-reload-{}.sock", std::process::id()));
    let gateway = TestGateway::start(ECHO);
    let entry = |mode: &str| format!("[127.0.0.1:0, {{ address: 'unix:{}', mode: '{mode}' }}]", path.display());
    gateway.try_reload(&entry("0600"), ECHO).expect("a reload");
    let mode = || std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    let mut client = Raw::new(tokio::net::UnixStream::connect(&path).await.expect("a connection"));
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
    gateway.try_reload(&entry("0660"), ECHO).expect("a reload");
    assert_eq!(mode(), 0o660);
    assert_eq!(get(&mut client, "/", "").await.status(), 200, "a changed mode keeps connections");
    gateway.reload(ECHO);
    soon(client.closed()).await.expect("closed");
    assert!(!path.exists());
}
