//! Misbehaving HTTP/2 origins.

use super::repeats::{goaway_payload, scripted_frames};
use super::*;

/// Starts a gateway with short timeouts.
fn impatient_gateway(address: SocketAddr) -> Gateway {
    to(address).timeout("connect", "200ms").timeout("response", "200ms").start()
}

fn setting(number: u8, value: u32) -> Vec<u8> {
    [&[0, number][..], &value.to_be_bytes()].concat()
}

/// Starts an origin that sends these bytes after the first request of each connection.
async fn origin_sending(bytes: impl Fn(u32) -> Vec<u8> + Clone + Send + 'static) -> SocketAddr {
    let script = move |mut conn: Frames, _| {
        let bytes = bytes.clone();
        async move {
            let request = conn.find(|frame| frame.kind == frames::HEADERS).await;
            conn.try_send(bytes(request.stream)).await;
            while conn.next().await.is_ok() {}
        }
    };
    scripted_frames(script).await.0
}

async fn assert_not_sent(address: SocketAddr) {
    let response = impatient_gateway(address).ask(get("/")).await;
    assert_eq!((response.status(), response.field("x-not-sent").as_deref()), (502, Some("yes")));
}

async fn assert_invalid_response(bytes: impl Fn(u32) -> Vec<u8> + Clone + Send + 'static) {
    let gateway = to(origin_sending(bytes).await).start();
    let response = gateway.ask(get("/")).await;
    assert_eq!((response.status(), response.field("x-not-sent")), (502, None));
}

#[tokio::test]
async fn immediate_goaway_counts_as_not_sent() {
    let (address, connections) = scripted_frames(|mut conn, _| async move {
        conn.frame(frames::GOAWAY, 0, 0, &goaway_payload(0)).await;
        while conn.next().await.is_ok() {}
    })
    .await;
    assert_not_sent(address).await;
    assert!(*connections.lock() <= 3);
}

#[tokio::test]
async fn origin_without_streams_or_settings_counts_as_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut conn = Frames::accept(listener.accept().await.unwrap().0, &setting(3, 0)).await;
        while conn.next().await.is_ok() {}
        let mut silent = listener.accept().await.unwrap().0;
        silent.read_to_end(&mut Vec::new()).await.ok();
    });
    assert_not_sent(address).await;
    assert_not_sent(address).await;
}

#[tokio::test]
async fn http1_origin_counts_as_not_sent() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.raw.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        conn.raw.rest().await.ok();
    })
    .await;
    assert_not_sent(origin.address).await;
}

#[tokio::test]
async fn next_target_replaces_an_unreachable_one() {
    let origin = H2Origin::with_ok().await;
    let targets = [Origin::closed_port(), origin.address];
    let gateway = Settings::to_all(targets).set("protocol", "http2").start();
    for _ in 0..2 {
        assert_eq!(gateway.ask(chunked("body")).await.status(), 200);
    }
}

#[tokio::test]
async fn origin_without_a_window_gets_the_response_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = impatient_gateway(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut conn = Frames::accept(listener.accept().await.unwrap().0, &setting(4, 0)).await;
        while conn.next().await.is_ok() {}
    });
    let response = gateway.ask(chunked("body")).await;
    assert_eq!((response.status(), response.field("x-not-sent")), (504, None));
}

#[tokio::test]
async fn endless_informational_responses_are_a_502() {
    assert_invalid_response(|stream| {
        let block = frames::fields([(":status", "103")]);
        frames::Frame::bytes(frames::HEADERS, frames::END_HEADERS, stream, &block).repeat(1000)
    })
    .await;
}

#[tokio::test]
async fn too_large_response_head_is_a_502() {
    let long = "x".repeat(1000);
    let block =
        frames::fields([(":status", "200")].into_iter().chain(std::iter::repeat_n(("x-a", long.as_str()), 100)));
    assert_invalid_response(move |stream| {
        let mut pieces = block.chunks(16_000);
        let mut bytes = frames::Frame::bytes(frames::HEADERS, 0, stream, pieces.next().unwrap());
        let count = pieces.len();
        for (index, piece) in pieces.enumerate() {
            let flags = if index + 1 == count { frames::END_HEADERS } else { 0 };
            bytes.extend(frames::Frame::bytes(frames::CONTINUATION, flags, stream, piece));
        }
        bytes
    })
    .await;
}

#[tokio::test]
async fn endless_response_head_is_a_502() {
    assert_invalid_response(|stream| {
        let first = frames::Frame::bytes(frames::HEADERS, 0, stream, &[0x88]);
        let more = frames::Frame::bytes(frames::CONTINUATION, 0, stream, &frames::fields([("x-a", "b")]));
        [first, more.repeat(100_000)].concat()
    })
    .await;
}

#[tokio::test]
async fn invalid_response_heads_are_a_502() {
    for status in ["", "abc", "101", "99"] {
        assert_invalid_response(move |stream| {
            let block =
                if status.is_empty() { frames::fields([("x-a", "b")]) } else { frames::fields([(":status", status)]) };
            frames::Frame::bytes(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, stream, &block)
        })
        .await;
    }
    for field in ["connection", "transfer-encoding", "X-Capital"] {
        assert_invalid_response(move |stream| {
            let block = frames::fields([(":status", "200"), (field, "chunked")]);
            frames::Frame::bytes(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, stream, &block)
        })
        .await;
    }
}

#[tokio::test]
async fn response_with_wrong_content_length_is_broken_off() {
    for (announced, sent) in [("9", 4), ("2", 4)] {
        let address = origin_sending(move |stream| {
            let block = frames::fields([(":status", "200"), ("content-length", announced)]);
            let head = frames::Frame::bytes(frames::HEADERS, frames::END_HEADERS, stream, &block);
            [head, frames::Frame::bytes(frames::DATA, frames::END_STREAM, stream, &vec![b'x'; sent])].concat()
        })
        .await;
        let gateway = to(address).start();
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        if let Ok(head) = client.head().await {
            assert!(head.status() == 502 || client.exactly(announced.parse().unwrap()).await.is_err(), "{announced}");
        }
    }
}

#[tokio::test]
async fn unread_small_frames_do_not_end_the_connection() {
    let (address, connections) = scripted_frames(|mut conn, _| async move {
        while let Ok(frame) = conn.next().await {
            if frame.kind != frames::HEADERS {
                continue;
            }
            let ends = if frame.stream > 1 { frames::END_STREAM } else { 0 };
            conn.frame(frames::HEADERS, frames::END_HEADERS | ends, frame.stream, &[0x88]).await;
            if frame.stream == 1 {
                // Fills the window of the stream.
                conn.send(frames::Frame::bytes(frames::DATA, 0, 1, b"x").repeat(256 * 1024)).await;
            }
        }
    })
    .await;
    let gateway = to(address).start();
    let mut stuck = Frames::connect(gateway.address, &setting(4, 0)).await;
    stuck.get(1, "/").await;
    assert_eq!(stuck.status(1).await, 200);
    for _ in 0..3 {
        assert_eq!(gateway.ask(get("/")).await.status(), 200);
    }
    assert_eq!(*connections.lock(), 1);
}

#[tokio::test]
async fn many_resets_end_only_their_streams() {
    let origin = H2Origin::start(|mut request| async move {
        match request.head.uri.path() {
            "/reset" => request.respond.send_reset(Reason::CANCEL),
            _ => request.respond_with("ok").await,
        }
    })
    .await;
    let gateway = origin.gateway();
    let mut client = gateway.client().await;
    for _ in 0..300 {
        assert_eq!(client.ask(get("/reset")).await.status(), 502);
    }
    assert_eq!(client.ask(get("/")).await.status(), 200);
    assert_eq!(origin.connections(), 1);
}

/// Sends a request to an origin that does not respond. Returns the start of the gateway's response, and after how many
/// seconds it came.
async fn timed_out_request(address: SocketAddr) -> (Vec<u8>, u64) {
    let gateway = to(address).timeout("response", "10m").start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    until(|| gateway.has_metric(r#"tidegate_upstream_connections{upstream="api"} 1"#)).await;
    tokio::time::pause();
    let begin = tokio::time::Instant::now();
    let mut status = vec![0; 12];
    client.stream.read_exact(&mut status).await.unwrap();
    tokio::time::resume();
    (status, begin.elapsed().as_secs())
}

#[tokio::test]
async fn origin_without_pong_is_given_up() {
    let (address, _) = scripted_frames(|mut conn, _| async move {
        conn.stream.read_to_end(&mut Vec::new()).await.ok();
    })
    .await;
    let (status, after) = timed_out_request(address).await;
    assert_eq!(status, b"HTTP/1.1 502");
    assert!((38..=42).contains(&after), "{after}");
}

#[tokio::test]
async fn origin_with_pongs_gets_the_full_response_timeout() {
    let origin = H2Origin::start(|request| async move {
        std::future::pending::<()>().await;
        drop(request);
    })
    .await;
    let (status, after) = timed_out_request(origin.address).await;
    assert_eq!(status, b"HTTP/1.1 504");
    assert!((599..=601).contains(&after), "{after}");
}

/// Pseudo-header fields of requests, and in trailers, are dropped.
#[tokio::test]
async fn misplaced_pseudo_header_fields_are_dropped() {
    let head = |stream, more: &[(&'static str, &'static str)]| {
        let block = frames::fields([(":status", "200")].into_iter().chain(more.iter().copied()));
        let head = frames::Frame::bytes(frames::HEADERS, frames::END_HEADERS, stream, &block);
        [head, frames::Frame::bytes(frames::DATA, 0, stream, b"ok")].concat()
    };
    for (more, trailers) in [
        (&[][..], frames::fields([(":status", "200"), ("x-sum", "1")])),
        (&[(":path", "/")], frames::fields([(":path", "/"), ("x-sum", "1")])),
    ] {
        let ending = frames::END_HEADERS | frames::END_STREAM;
        let bytes = move |stream| {
            [head(stream, more), frames::Frame::bytes(frames::HEADERS, ending, stream, &trailers)].concat()
        };
        let gateway = to(origin_sending(bytes).await).start();
        let response = gateway.ask("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te\r\n\r\n").await;
        assert_eq!((response.status(), response.body.as_slice()), (200, &b"ok"[..]));
        assert_eq!(response.trailers, [("x-sum".to_owned(), "1".to_owned())]);
        assert!(!response.fields.iter().any(|(name, _)| name.contains("path")), "{:?}", response.fields);
    }
}

/// Regression test: streams that `h2` had reset because of malformed responses did not count as resets, and the
/// connection remembered each of them.
#[tokio::test]
async fn many_malformed_responses_end_the_use_of_a_connection() {
    let (address, connections) = scripted_frames(|mut conn, _| async move {
        let malformed = frames::fields([(":status", "200"), ("connection", "close")]);
        while let Ok(frame) = conn.next().await {
            if frame.kind == frames::HEADERS {
                conn.frame(frames::HEADERS, frames::END_HEADERS, frame.stream, &malformed).await;
            }
        }
    })
    .await;
    let gateway = to(address).start();
    let mut client = gateway.client().await;
    for _ in 0..150 {
        assert_eq!(client.ask(get("/")).await.status(), 502);
    }
    assert_eq!(*connections.lock(), 2);
}

/// HEADERS after an informational response are the final response, not trailers.
#[tokio::test]
async fn bodiless_response_follows_an_informational_one() {
    let gateway = to(origin_sending(|stream| {
        let informational = frames::fields([(":status", "103")]);
        let informational = frames::Frame::bytes(frames::HEADERS, frames::END_HEADERS, stream, &informational);
        let ending = frames::END_HEADERS | frames::END_STREAM;
        let last = frames::Frame::bytes(frames::HEADERS, ending, stream, &frames::fields([(":status", "204")]));
        [informational, last].concat()
    })
    .await)
    .start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    assert_eq!(client.head().await.unwrap().status(), 103);
    assert_eq!(client.head().await.unwrap().status(), 204);
}
