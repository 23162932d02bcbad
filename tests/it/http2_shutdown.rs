//! Graceful shutdown of HTTP/2 connections whose client never acknowledges the PING.

use std::time::Duration;

use tokio::sync::watch;

use crate::support::gateway::TestGateway;
use crate::support::wire::frames::*;
use crate::support::wire::upstream::{Origin, OriginConnection};
use crate::support::wire::{soon, until, until_within};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const MAX_STREAM: u32 = 0x7fff_ffff;
const ALLOWED: &str = "tidegate_decisions_total{route=\"all\",limit=\"total\",outcome=\"allowed\"}";

/// Returns a gateway with one route to `origin`, one limit, and these settings of its listener.
fn gateway(origin: &Origin, settings: &str) -> TestGateway {
    let listen = format!("{{ address: '127.0.0.1:0', {settings} }}");
    let rules = format!(
        "store: memory
upstreams: {{ origin: {{ targets: ['http://{}'] }} }}
routes:
  - name: all
    match: {{ path: /** }}
    upstream: origin
    limits: [{{ name: total, mode: OVERALL, rate: 1000, interval: 1h }}]
",
        origin.address
    );
    TestGateway::start_at(&listen, &rules)
}

/// Returns an origin that reads requests and answers each of them once `open` is true.
async fn gated() -> (Origin, watch::Sender<bool>) {
    let (open, is_open) = watch::channel(false);
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let mut is_open = is_open.clone();
        async move {
            while conn.request().await.is_some() {
                if is_open.wait_for(|open| *open).await.is_err() {
                    return;
                }
                conn.raw.send(OK).await;
            }
        }
    })
    .await;
    (origin, open)
}

/// Returns the last stream of the next GOAWAY.
async fn go_away(client: &mut Frames) -> u32 {
    let frame = client.find(|frame| frame.kind == GOAWAY).await;
    assert_eq!(frame.number(4), NO_ERROR);
    frame.number(0)
}

/// Returns the HEADERS of requests on these streams. Sent in one write, they arrive before the deadline of the shutdown
/// that the first of them begin.
fn requests(streams: impl Iterator<Item = u32>) -> Vec<u8> {
    let block = fields(request_fields("GET", "/"));
    streams.flat_map(|stream| Frame::bytes(HEADERS, END_HEADERS | END_STREAM, stream, &block)).collect()
}

/// Reads until this number of streams have ended. Returns how many were answered, and how many were refused.
async fn answered_and_refused(client: &mut Frames, streams: usize) -> (usize, usize) {
    let (mut answered, mut refused) = (0, 0);
    while answered + refused < streams {
        let frame = client.next().await.expect("a frame");
        if frame.kind == RST_STREAM {
            assert_eq!(frame.number(0), REFUSED_STREAM);
            refused += 1;
        } else if frame.ends_stream() {
            answered += 1;
        }
    }
    (answered, refused)
}

/// Regression test: a client that never acknowledges the PING of the graceful shutdown got 60 of 60 requests answered.
#[tokio::test]
async fn max_requests_binds_without_ping_ack() {
    let origin = Origin::with_response(OK).await;
    let gateway = gateway(&origin, "max_requests: 5");
    let mut client = Frames::connect(gateway.address, &[]).await;
    client.send(requests((1..121).step_by(2))).await;
    assert_eq!(answered_and_refused(&mut client, 60).await, (5, 55));
    assert_eq!(gateway.counter(ALLOWED).await, 5);
    assert_eq!(origin.requests().len(), 5);
    assert_eq!(gateway.counter("tidegate_rejected_total{cause=\"max_requests\"}").await, 1);
    // The connection is idle at the deadline, so the gateway closes it.
    let last = client.find(|frame| frame.kind == GOAWAY && frame.number(0) != MAX_STREAM).await;
    assert!(last.number(0) <= 119 && last.number(4) == NO_ERROR, "{last:?}");
    while client.next().await.is_ok() {}
}

/// A client that ignores GOAWAY does not receive refusals forever.
#[tokio::test]
async fn client_that_ignores_goaway_is_disconnected() {
    let (origin, _open) = gated().await;
    let gateway = gateway(&origin, "max_requests: 1, max_streams: 10");
    let mut client = Frames::connect(gateway.address, &[]).await;
    client.get(1, "/").await;
    until(|| origin.requests().len() == 1).await;
    assert_eq!(go_away(&mut client).await, MAX_STREAM);
    for stream in (3..23).step_by(2) {
        client.get(stream, "/").await;
        assert_eq!(client.reset_code(stream).await, REFUSED_STREAM);
    }
    client.get(23, "/").await;
    assert_eq!(client.goaway_code().await, ENHANCE_YOUR_CALM);
    assert_eq!((origin.requests().len(), gateway.counter(ALLOWED).await), (1, 1));
    assert_eq!(gateway.counter("tidegate_rejected_total{cause=\"h2_flood\"}").await, 1);
}

/// Clients get the announcement before the last request, so that conforming ones lose none.
#[tokio::test]
async fn goaway_precedes_the_last_request_of_many() {
    let origin = Origin::with_response(OK).await;
    let gateway = gateway(&origin, "max_requests: 40");
    let mut client = Frames::connect(gateway.address, &[]).await;
    let mut announced_at = None;
    for request in 1..=36 {
        let stream = 2 * request - 1;
        client.get(stream, "/").await;
        loop {
            let frame = client.next().await.expect("a frame");
            if frame.kind == GOAWAY && announced_at.is_none() {
                announced_at = Some(request);
            }
            if frame.stream == stream && (frame.ends_stream() || frame.kind == RST_STREAM) {
                assert_ne!(frame.kind, RST_STREAM, "{request}: {frame:?}");
                break;
            }
        }
    }
    assert_eq!(announced_at, Some(36));

    let mut client = Frames::connect(gateway.address, &[]).await;
    client.send(requests((1..83).step_by(2))).await;
    assert_eq!(answered_and_refused(&mut client, 41).await, (40, 1));
}

/// Regression test: without the acknowledgement the final GOAWAY never came, and the drain lasted to its deadline.
#[tokio::test]
async fn drain_ends_a_connection_without_ping_ack() {
    let (origin, open) = gated().await;
    let gateway = gateway(&origin, "");
    let mut idle = Frames::connect(gateway.address, &[]).await;
    let mut busy = Frames::connect(gateway.address, &[]).await;
    busy.get(1, "/").await;
    until(|| origin.requests().len() == 1).await;
    let drained = std::thread::spawn(move || gateway.drain(Duration::from_secs(600)));
    assert_eq!(go_away(&mut busy).await, MAX_STREAM);
    // A second after its announcement, the gateway closes the idle connection.
    soon(async { while idle.next().await.is_ok() {} }).await;
    open.send(true).expect("the origin runs");
    let served = busy.rest_of_stream(1).await;
    assert!(served.last().is_some_and(Frame::ends_stream), "{served:?}");
    assert_eq!(go_away(&mut busy).await, 1);
    while busy.next().await.is_ok() {}
    until_within(Duration::from_secs(60), || drained.is_finished()).await;
    assert_eq!(origin.requests().len(), 1);
}

/// A header block that the client has begun before the deadline and completes after it is a refused stream.
#[tokio::test]
async fn stream_after_the_deadline_is_refused() {
    let (origin, open) = gated().await;
    let gateway = gateway(&origin, "");
    let mut client = Frames::connect(gateway.address, &[]).await;
    client.get(1, "/").await;
    until(|| origin.requests().len() == 1).await;
    // HEADERS without END_HEADERS, then half of its CONTINUATION.
    let block = fields(request_fields("GET", "/late"));
    let (head, rest) = block.split_at(20);
    let rest = Frame::bytes(CONTINUATION, END_HEADERS, 3, rest);
    client.frame(HEADERS, END_STREAM, 3, head).await;
    client.send(&rest[..12]).await;
    let drained = std::thread::spawn(move || gateway.drain(Duration::from_secs(600)));
    assert_eq!(go_away(&mut client).await, MAX_STREAM);
    tokio::time::sleep(Duration::from_millis(1500)).await; // the deadline passes
    client.send(&rest[12..]).await;
    assert_eq!(client.reset_code(3).await, REFUSED_STREAM);
    open.send(true).expect("the origin runs");
    let served = client.rest_of_stream(1).await;
    assert!(served.last().is_some_and(Frame::ends_stream), "{served:?}");
    while client.next().await.is_ok() {}
    until_within(Duration::from_secs(60), || drained.is_finished()).await;
    assert_eq!(origin.requests().len(), 1);
}
