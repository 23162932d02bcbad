//! Reloads under load: no request fails, no connection closes, and no window exceeds its limit.
//!
//! `RELOADS=100 RELOAD_PAUSE_MS=600 cargo test --test it -- reload::load --nocapture` runs for a minute.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::stress::run::checker::{Algorithm, Grant, Rule, check};
use crate::support::gateway::get;
use crate::support::process::{Program, address, tidegate};
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::TlsClient;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;
use crate::support::wire::upstream::{Origin, OriginConnection};

/// The larger of both rates of the limit, in each second.
const MAX_RATE: u64 = 300;

/// The most memory that the gateway may occupy in addition after the first reloads, in bytes.
const MAX_GROWTH: usize = 12 * 1024 * 1024;

/// More requests than a client sends on its connection.
const MAX_REQUESTS: u64 = 1_000_000;

/// The folder of the rule file and of the access log. Dropping it removes the folder.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// Counts the requests of all clients until they must stop.
#[derive(Clone, Default)]
struct Load {
    must_stop: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
}

impl Load {
    /// Sends requests on one connection.
    async fn http1<S: AsyncRead + AsyncWrite + Unpin>(self, mut client: Raw<S>) {
        while self.is_running() {
            let status = get(&mut client, "/counted", "").await.status();
            assert!([200, 429].contains(&status), "{status}");
            self.count().await;
        }
    }

    async fn http2(self, address: SocketAddr) {
        let stream = TcpStream::connect(address).await.expect("a connection");
        let (mut client, connection) = h2::client::handshake(stream).await.expect("a handshake");
        let connection = tokio::spawn(connection);
        while self.is_running() {
            client = client.ready().await.expect("an open connection");
            let request = Request::get("http://a.example/counted").body(()).expect("a request");
            let (response, _) = client.send_request(request, true).expect("sent");
            let response = soon(response).await.expect("a response");
            assert!([200, 429].contains(&response.status().as_u16()), "{}", response.status());
            let mut body = response.into_body();
            while let Some(data) = body.data().await {
                let length = data.expect("data").len();
                _ = body.flow_control().release_capacity(length);
            }
            self.count().await;
        }
        connection.abort();
    }

    async fn web_socket(self, address: SocketAddr) {
        let mut client = Raw::connect(address).await;
        client.send("GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
        assert_eq!(soon(client.head()).await.expect("a head").status(), 101);
        while self.is_running() {
            client.stream.write_all(b"ping").await.expect("an open connection");
            assert_eq!(soon(client.exactly(4)).await.expect("an echo"), b"ping");
            self.count().await;
        }
    }

    fn is_running(&self) -> bool {
        !self.must_stop.load(Ordering::SeqCst)
    }

    /// Counts a request. The pause leaves CPU time to the gateway.
    async fn count(&self) {
        self.requests.fetch_add(1, Ordering::SeqCst);
        sleep(Duration::from_millis(2)).await;
    }
}

/// Starts an origin that echoes the bytes of upgraded connections.
async fn origin() -> Origin {
    Origin::start(|mut conn: OriginConnection| async move {
        while let Some(request) = conn.request().await {
            if request.field("upgrade").is_none() {
                conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
                continue;
            }
            conn.raw
                .send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
                .await;
            let (mut read, mut write) = conn.raw.stream.split();
            tokio::io::copy(&mut read, &mut write).await.ok();
            return;
        }
    })
    .await
}

/// Returns rules in which each version changes a rate, a route, an upstream, and two listeners.
fn rules(folder: &Folder, authority: &Authority, origin: &Origin, version: u64) -> String {
    let is_odd = version % 2 == 1;
    format!(
        "listen:
  - {{ address: 127.0.0.1:0, max_requests: {MAX_REQUESTS} }}
  - {}
  - {{ address: 127.0.0.1:0, max_target: {}KiB }}
{}
admin: 127.0.0.1:0
access_log: {}
upstreams:
  api: {{ targets: ['http://{origin}'] }}
  other: {{ targets: ['http://{origin}'], timeouts: {{ response: {}s }} }}
routes:
  - name: counted
    match: {{ path: /counted }}
    upstream: api
    limits: [{{ name: total, mode: OVERALL, rate: {}, interval: 1s }}]
  - {{ name: v{version}, match: {{ path: /v{version} }}, upstream: other }}
  - {{ name: sockets, match: {{ path: /socket }}, upstream: other, upgrades: [websocket] }}
",
        listener(authority, &["api"], "").replacen('{', &format!("{{ max_requests: {MAX_REQUESTS},"), 1),
        1 + version % 2,
        if is_odd { "  - 127.0.0.1:0" } else { "" },
        folder.0.join("access.log").display(),
        10 + version,
        if is_odd { MAX_RATE } else { MAX_RATE / 2 },
        origin = origin.address,
    )
}

async fn metrics(admin: SocketAddr) -> String {
    get(&mut Raw::connect(admin).await, "/metrics", "").await.text()
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "a long run shows its figures")]
async fn reloads_under_load_fail_nothing() {
    let (reloads, pause) = (number("RELOADS", 20), Duration::from_millis(number("RELOAD_PAUSE_MS", 100)));
    let folder = Folder(std::env::temp_dir().join(format!("tidegate-reload-load-{}", std::process::id())));
    fs::create_dir_all(&folder.0).expect("a folder");
    let authority = Authority::new();
    authority.sign("api", &["api.example"]);
    let origin = origin().await;
    let path = folder.0.join("rules.yaml");
    fs::write(&path, rules(&folder, &authority, &origin, 0)).expect("written");
    let arguments = ["run", path.to_str().expect("UTF-8"), "--workers", "2", "--no-watch", "--log-format", "json"];
    let mut program = Program::start(&mut tidegate(&arguments));
    let plain = address(&mut program.stderr, "listening on http://");
    let tls = address(&mut program.stderr, "listening on https://");
    let admin = address(&mut program.stderr, "admin on http://");

    let (load, mut clients) = (Load::default(), JoinSet::new());
    for _ in 0..3 {
        clients.spawn(load.clone().http1(Raw::connect(plain).await));
        let client = TlsClient::new(&authority).connect(tls).await.expect("a handshake");
        clients.spawn(load.clone().http1(client));
        clients.spawn(load.clone().http2(plain));
        clients.spawn(load.clone().web_socket(plain));
    }
    let mut memory = 0;
    for version in 1..=reloads {
        fs::write(&path, rules(&folder, &authority, &origin, version)).expect("written");
        program.signal("HUP");
        let applied = format!("tidegate_config_reloads_total{{result=\"applied\"}} {version}\n");
        soon(async { while !metrics(admin).await.contains(&applied) {} }).await;
        let response = get(&mut Raw::connect(plain).await, &format!("/v{version}"), "").await;
        assert_eq!(response.status(), 200, "the new route");
        let before = get(&mut Raw::connect(plain).await, &format!("/v{}", version - 1), "").await;
        assert_eq!(before.status(), 404, "the removed route");
        sleep(pause).await;
        if version == reloads.min(10) {
            memory = program.memory();
        }
        assert!(clients.try_join_next().is_none(), "a client has ended early");
    }
    let grown = program.memory().saturating_sub(memory);
    load.must_stop.store(true, Ordering::SeqCst);
    while let Some(ended) = clients.join_next().await {
        ended.expect("no failed request and no closed connection");
    }
    assert!(grown < MAX_GROWTH, "grew from {memory} by {grown} bytes");
    let requests = load.requests.load(Ordering::SeqCst);
    assert!(metrics(admin).await.contains("tidegate_config_reloads_total{result=\"failed\"} 0\n"));
    program.signal("TERM");
    let (status, log) = program.wait_for_exit();
    assert!(status.success(), "{log}");

    let access = fs::read_to_string(folder.0.join("access.log")).expect("a log");
    let lines = access.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let granted = lines.filter(|line| line["route"] == "counted" && line["limits"] == "allowed");
    let mut grants: Vec<_> =
        granted.map(|line| Grant { at: line["at"].as_u64().expect("a time"), permits: 1, rule: 0 }).collect();
    grants.sort_by_key(|grant| grant.at);
    let rule = Rule { algorithm: Algorithm::TokenBucket, rate: MAX_RATE, interval: 1_000 };
    let finding = check(&[rule], &grants);
    assert!(finding.violations.is_empty(), "{finding:?}");
    assert!(finding.fullest.used > MAX_RATE / 2, "the load reaches the limit: {finding:?}");
    println!("{reloads} reloads, {requests} requests, {memory} bytes of memory, later {grown} more");
}
