//! Requests over HTTP/2 and tunnels hold slots in Redis, which two gateways share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::wire::frames::Frames;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;
use crate::support::wire::upstream::Origin;
use crate::upgrade;

use super::gateways::until_waiting;
use super::upstream_load::{Load, hold, until, upstream};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Starts two gateways with this `concurrency` in front of an upstream.
async fn two_gateways(redis: &RedisServer, load: &Arc<Load>, concurrency: &str) -> ([TestGateway; 2], Origin) {
    let upstream = upstream(load).await;
    let rules = format!(
        "store: {}\nupstreams: {{ api: {{ targets: 'http://{}', retry: off, eject: off }} }}\nroutes:\n\
         - {{ name: all, match: {{}}, upstream: api, upgrades: [websocket], concurrency: {concurrency} }}",
        redis.rule(),
        upstream.address
    );
    ([TestGateway::start(&rules), TestGateway::start(&rules)], upstream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_streams_hold_and_free_slots() {
    let Some(redis) = RedisServer::start() else { return };
    let load = Arc::new(Load::default());
    let (gateways, _upstream) = two_gateways(&redis, &load, "{ max: 3, queue: 9, max_wait: 1m }").await;
    let mut client = Frames::connect(gateways[0].address, &[]).await;
    client.get(1, "/hold").await;
    client.get(3, "/hold").await;
    until(&load, |load| load.held.load(Ordering::SeqCst) == 2).await;
    let _held = hold(gateways[1].address, &load).await;
    client.get(5, "/").await;
    until_waiting(&gateways[0], 1).await;
    let mut other = gateways[1].client().await;
    other.send(GET).await;
    until_waiting(&gateways[1], 1).await;
    assert_eq!(load.peak.load(Ordering::SeqCst), 3);

    // A stream that is reset frees its slot.
    client.reset(1).await;
    assert_eq!(client.status(5).await, 200);
    assert_eq!(other.head().await.expect("a head").status(), 200);

    // A connection that is closed frees the slots of its streams.
    drop(client);
    until(&load, |load| load.held.load(Ordering::SeqCst) == 1).await;
    let _held = [hold(gateways[1].address, &load).await, hold(gateways[0].address, &load).await];
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_streams_never_exceed_max() {
    let Some(redis) = RedisServer::start() else { return };
    let load = Arc::new(Load::default());
    let (gateways, _upstream) = two_gateways(&redis, &load, "{ max: 7, queue: 20, max_wait: 5s }").await;
    let until = Instant::now() + Duration::from_secs(1);
    let (one, other) = (send_streams(gateways[0].address, until), send_streams(gateways[1].address, until));
    let (one, other) = tokio::join!(one, other);
    let (peak, now) = (load.peak.load(Ordering::SeqCst), load.now.load(Ordering::SeqCst));
    assert!(peak <= 7 && now == 0, "{peak} and {now} of {one} and {other} requests");
}

/// Repeats requests in 30 streams of a connection. Returns how many were admitted.
async fn send_streams(gateway: SocketAddr, until: Instant) -> usize {
    let io = TokioIo::new(TcpStream::connect(gateway).await.expect("a connection"));
    let (sender, connection) = handshake(TokioExecutor::new(), io).await.expect("a connection");
    let serving = tokio::spawn(connection);
    let streams: Vec<_> = (0..30)
        .map(|_| {
            let mut sender = sender.clone();
            tokio::spawn(async move {
                let mut admitted = 0;
                while Instant::now() < until {
                    let request = Request::get(format!("http://{gateway}/")).body(Full::<Bytes>::default());
                    let response = soon(sender.send_request(request.expect("a request"))).await.expect("a response");
                    assert!(matches!(response.status().as_u16(), 200 | 503), "{}", response.status());
                    admitted += usize::from(response.status() == 200);
                    soon(response.into_body().collect()).await.expect("a body");
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for stream in streams {
        admitted += stream.await.expect("responses");
    }
    serving.abort();
    admitted
}

/// The leases of tunnels are renewed: they last 9 s, and a request of another gateway waits for more than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_keep_their_slots_beyond_a_lease() {
    let Some(redis) = RedisServer::start() else { return };
    let load = Arc::new(Load::default());
    let (gateways, _upstream) = two_gateways(&redis, &load, "{ max: 2, queue: 9, max_wait: 6s }").await;
    let mut upgraded = Raw::connect(gateways[0].address).await;
    upgraded.send(upgrade::handshake("/", "")).await;
    assert_eq!(upgraded.head().await.expect("a head").status(), 101);
    let mut client = Frames::connect(gateways[0].address, &[]).await;
    upgrade::http2::open_tunnel(&mut client, 1, "/", &[]).await;
    assert_eq!(client.status(1).await, 200);
    for _ in 0..2 {
        assert_eq!(gateways[1].get("/", "").await.status(), 503);
    }
    assert_eq!((load.peak.load(Ordering::SeqCst), load.held.load(Ordering::SeqCst)), (2, 2));
    drop(upgraded);
    until(&load, |load| load.held.load(Ordering::SeqCst) == 1).await;
    assert_eq!(gateways[1].get("/", "").await.status(), 200);
    client.reset(1).await;
    until(&load, |load| load.held.load(Ordering::SeqCst) == 0).await;
    let _held = [hold(gateways[1].address, &load).await, hold(gateways[1].address, &load).await];
}
