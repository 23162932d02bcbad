//! Attacks on the admin listener: half requests, and probes that ask the store.

use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::time::Duration;

use deadpool_redis::redis::cmd;
use socket2::SockRef;
use tidegate::Gateway;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::yield_now;

use crate::support::gateway::{TestGateway, get};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

const RULES: &str = "upstreams: { echo: { targets: ['builtin:echo'] } }
routes: [{ name: all, match: {}, upstream: echo }]
";

/// The highest number of connections of the admin listener.
const CAP: usize = 64;

/// Returns `true` if the gateway has not closed this connection.
fn is_open(socket: &impl AsFd) -> bool {
    let read = SockRef::from(socket).peek(&mut [MaybeUninit::uninit()]);
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Opens connections that send half a request each, while health checks run.
async fn assert_served<S: AsyncRead + AsyncWrite + AsFd + Unpin>(connect: impl AsyncFn() -> S) {
    let mut attackers = Vec::new();
    for _ in 0..4 {
        for _ in 0..CAP {
            let mut attacker = connect().await;
            soon(attacker.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")).await.expect("sent");
            attackers.push(attacker);
        }
        let mut client = Raw::new(connect().await);
        assert_eq!(get(&mut client, "/healthz", "").await.status(), 200);
        // The gateway has accepted all connections before this one, and the one of the health check is open, too. It
        // closes a connection a moment after it has accepted another.
        let open = || attackers.iter().filter(|attacker| is_open(*attacker)).count();
        soon(async {
            while open() >= CAP {
                yield_now().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn half_requests_do_not_block_health_checks() {
    let gateway = TestGateway::start(RULES);
    let connect = async || soon(tokio::net::TcpStream::connect(gateway.admin)).await.expect("a connection");
    assert_served(connect).await;
}

#[tokio::test]
async fn half_requests_do_not_block_a_unix_admin_socket() {
    let path = std::env::temp_dir().join(format!("tg-admin-{}.sock", std::process::id()));
    let rules = format!("listen: 127.0.0.1:0\nadmin: 'unix:{}'\n{RULES}", path.display());
    let config = Gateway::parse_config(&rules).unwrap_or_else(|problems| panic!("{problems}"));
    let gateway = Gateway::start(config, 1).expect("a gateway");
    assert_served(async || soon(UnixStream::connect(&path)).await.expect("a connection")).await;
    tokio::task::spawn_blocking(move || gateway.drain(Duration::from_millis(10)))
        .await
        .expect("joined")
        .expect("drained");
}

/// `PING` calls of connections that are opened at the start.
const PINGS_AT_START: u64 = 20;

/// Returns how many `PING` calls a Redis has answered.
fn pings(redis: &RedisServer) -> u64 {
    let stats: String = cmd("INFO").arg("commandstats").query(&mut redis.connection()).expect("statistics");
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_ping:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_checks_share_one_ping_a_second() {
    let Some(redis) = RedisServer::start() else { return };
    let gateway = TestGateway::start(&format!("store: {}\n{RULES}", redis.rule()));
    let ready = async || get(&mut Raw::connect(gateway.admin).await, "/readyz", "").await.text();
    soon(async { while !ready().await.contains(r#""store":"up""#) {} }).await;
    let (before, begin) = (pings(&redis), tokio::time::Instant::now());
    for _ in 0..300 {
        assert_eq!(ready().await, r#"{"ready":true,"store":"up"}"#);
    }
    let (calls, allowed) = (pings(&redis) - before, begin.elapsed().as_secs() + 1 + PINGS_AT_START);
    assert!(calls <= allowed, "{calls} calls, {allowed} allowed");
}

/// A page elsewhere can send requests to this address with its own name as `Host` (DNS rebinding).
#[tokio::test]
async fn readiness_check_has_no_addresses() {
    let store = "store: { url: 'redis://127.0.0.1:1', timeout: 20ms }\n";
    let gateway = TestGateway::start(&format!("{store}{RULES}"));
    gateway.until_config_has(&["127.0.0.1:1", r#""state":"down""#]).await;
    let ready = gateway.admin_get("/readyz").await;
    assert_eq!((ready.status(), ready.text().as_str()), (200, r#"{"ready":true,"store":"unreachable"}"#));
}
