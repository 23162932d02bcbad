//! HTTP/2 clients that are slow or gone.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use crate::support::gateway::TestGateway;
use crate::support::wire::frames::*;
use crate::support::wire::until;
use crate::support::wire::upstream::{Origin, OriginConnection};

const SLOW_READER: &str = "tidegate_rejected_total{cause=\"slow_reader\"}";
const GONE: &str = "tidegate_rejected_total{cause=\"gone\"}";

/// The pause between two bytes of a slow client.
const PAUSE: Duration = Duration::from_millis(10);

/// An initial window of 0: no body can be sent.
const NO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];

/// The largest initial window.
const ALL_WINDOWS: [u8; 6] = [0, 4, 0x7f, 0xff, 0xff, 0xff];

/// Starts a gateway with one route to this origin, and a listener with these settings.
fn gateway(origin: &Origin, settings: &str) -> TestGateway {
    let listen = format!("{{ address: '127.0.0.1:0', {settings} }}");
    let rules = format!(
        "store: memory
upstreams: {{ origin: {{ targets: ['http://{}'] }} }}
routes:
  - {{ name: all, match: {{ path: /** }}, upstream: origin }}
",
        origin.address
    );
    TestGateway::start_at(&listen, &rules)
}

async fn healthy() -> Origin {
    Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await
}

/// Starts an origin that reads everything and sends nothing.
async fn silent() -> Origin {
    Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        _ = conn.raw.take_all().await;
    })
    .await
}

#[tokio::test]
async fn stream_with_a_closed_window_is_reset() {
    let origin = healthy().await;
    let gateway = gateway(&origin, "body_timeout: 1s");
    let mut client = Frames::connect(gateway.address, &NO_WINDOW).await;
    for stream in (1..201).step_by(2) {
        client.get(stream, "/").await;
    }
    for _ in 0..100 {
        let reset = client.find(|frame| frame.kind == RST_STREAM).await;
        assert_eq!(reset.number(0), CANCEL);
    }
    assert_eq!(gateway.counter(SLOW_READER).await, 100);
    client.open(201, "HEAD", "/", &[], true).await;
    assert_eq!(client.status(201).await, 200);
}

#[tokio::test]
async fn tiny_window_updates_do_not_extend_the_timeout() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n").await;
        conn.raw.send(vec![7; 100_000]).await;
        conn.request().await;
    })
    .await;
    let gateway = gateway(&origin, "body_timeout: 300ms, min_rate: 1000B");
    let mut client = Frames::connect(gateway.address, &NO_WINDOW).await;
    client.get(1, "/").await;
    client.status(1).await;
    loop {
        client.frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()).await;
        let frame = client.find(|frame| frame.stream == 1).await;
        match frame.kind {
            DATA => assert_eq!(frame.payload.len(), 1),
            _ => break assert_eq!((frame.kind, frame.number(0)), (RST_STREAM, CANCEL)),
        }
        // At most 100 bytes per second.
        sleep(PAUSE).await;
    }
    assert_eq!(gateway.counter(SLOW_READER).await, 1);
}

#[tokio::test]
async fn stalled_or_slow_upload_is_rejected_with_408() {
    let origin = silent().await;
    let gateway = gateway(&origin, "body_timeout: 300ms, min_rate: 1000B");
    let mut client = Frames::connect(gateway.address, &[]).await;
    client.open(1, "POST", "/", &[("content-length", "1000")], false).await;
    client.frame(DATA, 0, 1, &[7; 500]).await;
    assert_eq!(client.status(1).await, 408);
    assert_eq!(client.reset_code(1).await, NO_ERROR);
    client.open(3, "POST", "/", &[], false).await;
    let status = loop {
        match timeout(PAUSE, client.next()).await {
            Ok(Ok(frame)) if (frame.stream, frame.kind) == (3, HEADERS) => break frame.status(),
            Ok(frame) => _ = frame.unwrap(),
            Err(_) => client.frame(DATA, 0, 3, b"x").await,
        }
    };
    assert_eq!(status, 408);
    assert_eq!(gateway.counter("tidegate_rejected_total{cause=\"slow_upload\"}").await, 2);
}

#[tokio::test]
async fn short_messages_in_flight_end_no_connection() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        if conn.head().await.is_some_and(|head| head.field("expect").is_some()) {
            return std::future::pending().await; // never sends 100 (Continue)
        }
        conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    })
    .await;
    let gateway = gateway(&origin, "body_timeout: 30s");
    let mut client = Frames::connect(gateway.address, &[]).await;
    client.open(1, "POST", "/", &[("expect", "100-continue")], false).await;
    let message = Frame::bytes(DATA, 0, 1, &[0, 0, 0, 0, 1, 7]);
    client.send(message.repeat(64 * 1024 / 6)).await;
    client.get(3, "/").await;
    assert_eq!(client.status(3).await, 200);
}

#[tokio::test]
async fn silent_client_is_pinged_during_a_response() {
    let origin = silent().await;
    // Retries with a longer timeout: a busy machine may acknowledge a PING too late.
    for (attempt, timeout) in (1..).zip(["600ms", "3s"]) {
        let gateway = gateway(&origin, &format!("body_timeout: {timeout}"));
        let mut client = Frames::connect(gateway.address, &[]).await;
        client.get(1, "/").await;
        if acknowledges_three_pings(&mut client).await {
            while client.next().await.is_ok() {}
            assert_eq!(gateway.counter(GONE).await, 1);
            until(|| origin.connections() == attempt).await;
            return;
        }
    }
    panic!("the gateway closed a connection whose client had acknowledged each PING");
}

/// Acknowledges three PINGs. Returns `true` if a fourth follows, and `false` if the connection ends before.
async fn acknowledges_three_pings(client: &mut Frames) -> bool {
    let mut pings = 0;
    while let Ok(frame) = client.next().await {
        if frame.kind == PING && frame.flags & ACK == 0 {
            pings += 1;
            if pings == 4 {
                return true;
            }
            client.try_send(Frame::bytes(PING, ACK, 0, &frame.payload)).await;
        }
    }
    false
}

#[tokio::test]
async fn last_allowed_request_is_answered_before_the_goaway() {
    let origin = healthy().await;
    let gateway = gateway(&origin, "max_requests: 3");
    let mut client = Frames::connect(gateway.address, &[]).await;
    for stream in [1, 3, 5] {
        client.get(stream, "/").await;
    }
    let mut answered = 0;
    let mut got_goaway = false;
    while let Ok(frame) = client.next().await {
        answered += u32::from(frame.kind == DATA && frame.ends_stream());
        got_goaway |= frame.kind == GOAWAY && frame.number(4) == NO_ERROR;
        if frame.kind == PING {
            client.frame(PING, ACK, 0, &frame.payload).await;
        }
    }
    assert_eq!((answered, got_goaway), (3, true));
    assert_eq!(gateway.counter("tidegate_rejected_total{cause=\"max_requests\"}").await, 1);
}

#[tokio::test]
async fn concurrent_streams_are_limited_by_the_rule_file() {
    let origin = silent().await;
    let gateway = gateway(&origin, "max_streams: 3");
    let mut client = Frames::connect(gateway.address, &[]).await;
    let settings = client.find(|frame| frame.kind == SETTINGS && frame.flags & ACK == 0).await;
    assert!(settings.payload.chunks(6).any(|setting| setting == [0, 3, 0, 0, 0, 3]), "{settings:?}");
    for stream in [1, 3, 5, 7] {
        client.get(stream, "/").await;
    }
    assert_eq!(client.reset_code(7).await, REFUSED_STREAM);
}

/// Connects a client that opens all windows, requests 100 bodies of 60 kB, and reads nothing.
async fn unread_client(gateway: &TestGateway) -> Frames {
    let mut client = Frames::connect(gateway.address, &ALL_WINDOWS).await;
    client.frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()).await;
    for stream in (1..201).step_by(2) {
        client.get(stream, "/").await;
    }
    client
}

async fn large() -> Origin {
    Origin::start(|mut conn: OriginConnection| async move {
        while conn.request().await.is_some() {
            conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n").await;
            if conn.raw.stream.write_all(&[7; 60_000]).await.is_err() {
                return;
            }
        }
    })
    .await
}

#[tokio::test]
async fn client_that_reads_late_gets_all_responses() {
    let origin = large().await;
    let gateway = gateway(&origin, "body_timeout: 30s");
    let mut client = unread_client(&gateway).await;
    until(|| origin.requests().len() == 100).await;
    let (mut bytes, mut ends) = (0, 0);
    while ends < 100 {
        let frame = client.next().await.unwrap();
        bytes += if frame.kind == DATA { frame.payload.len() } else { 0 };
        ends += usize::from(frame.ends_stream());
    }
    assert_eq!((bytes, gateway.counter(SLOW_READER).await), (6_000_000, 0));
}

#[tokio::test]
async fn client_that_reads_nothing_loses_its_connection() {
    let origin = large().await;
    let gateway = gateway(&origin, "body_timeout: 500ms");
    let mut client = unread_client(&gateway).await;
    // The gateway must have counted the connection before the loop, and the kernel buffers the first responses.
    until(|| !origin.requests().is_empty()).await;
    while gateway.counter("tidegate_connections").await > 0 {
        sleep(PAUSE).await;
    }
    // On a busy machine the unanswered PING can be noticed before the unread bytes.
    assert!(gateway.counter(SLOW_READER).await + gateway.counter(GONE).await > 0);
    while client.next().await.is_ok() {}
}
