//! Origins that misbehave.

use super::refused::{go_away, spelled};
use super::*;

const SHORT: Duration = Duration::from_millis(200);

/// A gateway that waits shortly.
fn hasty(address: SocketAddr) -> Gateway {
    let adjust: fn(&mut UpstreamSettings) = |api| (api.protocol, api.connect_timeout) = (Protocol::Http2, SHORT);
    Settings { adjust, response_timeout: SHORT, ..Settings::to(address) }.start()
}

fn setting(number: u8, value: u32) -> Vec<u8> {
    [&[0, number][..], &value.to_be_bytes()].concat()
}

/// An answer to the first request of each connection, spelled out.
async fn answering(bytes: impl Fn(u32) -> Vec<u8> + Clone + Send + 'static) -> SocketAddr {
    let script = move |mut conn: RawFrames, _| {
        let bytes = bytes.clone();
        async move {
            let asked = conn.find(|frame| frame.kind == frames::HEADERS).await;
            conn.try_send(bytes(asked.stream)).await;
            while conn.next().await.is_ok() {}
        }
    };
    spelled(script).await.0
}

async fn is_not_sent(address: SocketAddr) {
    let answer = hasty(address).ask(get("/")).await;
    assert_eq!((answer.status(), answer.field("x-not-sent").as_deref()), (502, Some("yes")));
}

async fn is_no_answer(bytes: impl Fn(u32) -> Vec<u8> + Clone + Send + 'static) {
    let gateway = to(answering(bytes).await).start();
    let answer = gateway.ask(get("/")).await;
    assert_eq!((answer.status(), answer.field("x-not-sent")), (502, None));
}

#[tokio::test]
async fn an_origin_that_sends_everybody_away_at_once_was_sent_nothing() {
    let (address, connections) = spelled(|mut conn, _| async move {
        conn.frame(frames::GOAWAY, 0, 0, &go_away(0)).await;
        while conn.next().await.is_ok() {}
    })
    .await;
    is_not_sent(address).await;
    assert!(*connections.lock() <= 3);
}

#[tokio::test]
async fn an_origin_that_takes_no_streams_or_says_nothing_was_sent_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut conn = RawFrames::accept(listener.accept().await.unwrap().0, &setting(3, 0)).await;
        while conn.next().await.is_ok() {}
        let mut silent = listener.accept().await.unwrap().0;
        silent.read_to_end(&mut Vec::new()).await.ok();
    });
    is_not_sent(address).await;
    is_not_sent(address).await;
}

#[tokio::test]
async fn an_origin_of_http1_was_sent_nothing() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.raw.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        conn.raw.rest().await.ok();
    })
    .await;
    is_not_sent(origin.address).await;
}

#[tokio::test]
async fn a_target_that_cannot_be_used_leaves_its_place_to_the_next() {
    let origin = H2Origin::saying_ok().await;
    let mut settings = to(origin.address);
    settings.targets.insert(0, target(Origin::closed_port().await));
    let gateway = settings.start();
    for _ in 0..2 {
        assert_eq!(gateway.ask(chunked("body")).await.status(), 200);
    }
}

#[tokio::test]
async fn an_origin_that_opens_no_window_is_waited_for_as_long_as_for_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = hasty(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut conn = RawFrames::accept(listener.accept().await.unwrap().0, &setting(4, 0)).await;
        while conn.next().await.is_ok() {}
    });
    let answer = gateway.ask(chunked("body")).await;
    assert_eq!((answer.status(), answer.field("x-not-sent")), (504, None));
}

#[tokio::test]
async fn an_origin_that_only_informs_gives_no_answer() {
    is_no_answer(|stream| {
        let block = frames::fields([(":status", "103")]);
        frames::Frame::bytes(frames::HEADERS, frames::END_HEADERS, stream, &block).repeat(1000)
    })
    .await;
}

#[tokio::test]
async fn a_head_that_is_too_long_is_no_answer() {
    let long = "x".repeat(1000);
    let block =
        frames::fields([(":status", "200")].into_iter().chain(std::iter::repeat_n(("x-a", long.as_str()), 100)));
    is_no_answer(move |stream| {
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
async fn a_head_that_never_ends_is_no_answer() {
    is_no_answer(|stream| {
        let first = frames::Frame::bytes(frames::HEADERS, 0, stream, &[0x88]);
        let more = frames::Frame::bytes(frames::CONTINUATION, 0, stream, &frames::fields([("x-a", "b")]));
        [first, more.repeat(100_000)].concat()
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_is_none_is_told_from_one() {
    for status in ["", "abc", "101", "99"] {
        is_no_answer(move |stream| {
            let block =
                if status.is_empty() { frames::fields([("x-a", "b")]) } else { frames::fields([(":status", status)]) };
            frames::Frame::bytes(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, stream, &block)
        })
        .await;
    }
    for field in ["connection", "transfer-encoding", "X-Capital"] {
        is_no_answer(move |stream| {
            let block = frames::fields([(":status", "200"), (field, "chunked")]);
            frames::Frame::bytes(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, stream, &block)
        })
        .await;
    }
}

#[tokio::test]
async fn an_answer_that_is_not_as_long_as_it_says_is_cut_off() {
    for (told, sent) in [("9", 4), ("2", 4)] {
        let address = answering(move |stream| {
            let block = frames::fields([(":status", "200"), ("content-length", told)]);
            let head = frames::Frame::bytes(frames::HEADERS, frames::END_HEADERS, stream, &block);
            [head, frames::Frame::bytes(frames::DATA, frames::END_STREAM, stream, &vec![b'x'; sent])].concat()
        })
        .await;
        let gateway = to(address).start();
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        if let Ok(head) = client.head().await {
            assert!(head.status() == 502 || client.exactly(told.parse().unwrap()).await.is_err(), "{told}");
        }
    }
}

#[tokio::test]
async fn small_frames_that_one_client_does_not_read_end_no_connection() {
    let (address, connections) = spelled(|mut conn, _| async move {
        while let Ok(frame) = conn.next().await {
            if frame.kind != frames::HEADERS {
                continue;
            }
            let ends = if frame.stream > 1 { frames::END_STREAM } else { 0 };
            conn.frame(frames::HEADERS, frames::END_HEADERS | ends, frame.stream, &[0x88]).await;
            if frame.stream == 1 {
                // As many bytes as there is a window for.
                conn.send(frames::Frame::bytes(frames::DATA, 0, 1, b"x").repeat(256 * 1024)).await;
            }
        }
    })
    .await;
    let gateway = to(address).start();
    let mut stuck = RawFrames::connect(gateway.address, &setting(4, 0)).await;
    stuck.get(1, "/").await;
    assert_eq!(stuck.status(1).await, 200);
    for _ in 0..3 {
        assert_eq!(gateway.ask(get("/")).await.status(), 200);
    }
    assert_eq!(*connections.lock(), 1);
}

#[tokio::test]
async fn resets_in_numbers_end_nothing_but_their_streams() {
    let origin = H2Origin::start(|mut asked| async move {
        match asked.head.uri.path() {
            "/reset" => asked.respond.send_reset(Reason::CANCEL),
            _ => asked.say("ok").await,
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

/// How a request to an origin that never answers ends, and after how many seconds.
async fn unanswered(address: SocketAddr) -> (Vec<u8>, u64) {
    let gateway = Settings { response_timeout: 10 * LONG, ..to(address) }.start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    until(|| gateway.metrics.render().contains(r#"tidegate_upstream_connections{upstream="api"} 1"#)).await;
    tokio::time::pause();
    let begin = tokio::time::Instant::now();
    let mut status = vec![0; 12];
    client.stream.read_exact(&mut status).await.unwrap();
    tokio::time::resume();
    (status, begin.elapsed().as_secs())
}

#[tokio::test]
async fn an_origin_that_does_not_answer_pings_is_gone() {
    let (address, _) = spelled(|mut conn, _| async move {
        conn.stream.read_to_end(&mut Vec::new()).await.ok();
    })
    .await;
    let (status, after) = unanswered(address).await;
    assert_eq!(status, b"HTTP/1.1 502");
    assert!((38..=42).contains(&after), "{after}");
}

#[tokio::test]
async fn an_origin_that_answers_pings_is_waited_for_as_long_as_may_be() {
    let origin = H2Origin::start(|asked| async move {
        std::future::pending::<()>().await;
        drop(asked);
    })
    .await;
    let (status, after) = unanswered(origin.address).await;
    assert_eq!(status, b"HTTP/1.1 504");
    assert!((599..=601).contains(&after), "{after}");
}

/// Regression test: the gateway passed such trailers on, without the pseudo-header fields (RFC 9113 section 8.1).
#[tokio::test]
async fn pseudo_header_in_trailers_breaks_the_response_off() {
    let head = |stream| {
        let block = frames::fields([(":status", "200")]);
        let head = frames::Frame::bytes(frames::HEADERS, frames::END_HEADERS, stream, &block);
        [head, frames::Frame::bytes(frames::DATA, 0, stream, b"ok")].concat()
    };
    for (trailers, is_whole) in [
        (frames::fields([("x-sum", "1")]), true),
        (frames::fields([(":status", "200")]), false),
        (frames::fields([(":path", "/"), ("x-sum", "1")]), false),
        (vec![0x88], false),
    ] {
        let ending = frames::END_HEADERS | frames::END_STREAM;
        let bytes =
            move |stream| [head(stream), frames::Frame::bytes(frames::HEADERS, ending, stream, &trailers)].concat();
        let gateway = to(answering(bytes).await).start();
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        let answer = client.try_message(false, true).await;
        assert_eq!(answer.is_ok(), is_whole, "{answer:?}");
    }
}

/// A head behind an informational one, with no body, is no trailers.
#[tokio::test]
async fn bodiless_response_follows_an_informational_one() {
    let gateway = to(answering(|stream| {
        let informed = frames::fields([(":status", "103")]);
        let informed = frames::Frame::bytes(frames::HEADERS, frames::END_HEADERS, stream, &informed);
        let ending = frames::END_HEADERS | frames::END_STREAM;
        let last = frames::Frame::bytes(frames::HEADERS, ending, stream, &frames::fields([(":status", "204")]));
        [informed, last].concat()
    })
    .await)
    .start();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    assert_eq!(client.head().await.unwrap().status(), 103);
    assert_eq!(client.head().await.unwrap().status(), 204);
}
