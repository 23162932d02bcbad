//! Time limits and evictions of admin connections, in virtual time.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::open::{MAX_CONNECTIONS, Open};
use super::phase::{EventStream, Observer, Progress};
use super::serve::serve_one;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Serves a body of this length on one end of a pipe.
fn serve(length: usize) -> (DuplexStream, Observer, JoinHandle<Instant>) {
    let router = Router::new().route("/", get(move || async move { "x".repeat(length) }));
    let (client, stream) = duplex(4096);
    let shutdown = GracefulShutdown::new();
    let (phase, serving) = serve_one(stream, router, &shutdown);
    let ended = tokio::spawn(async move {
        let _without_shutdown = shutdown;
        serving.await;
        Instant::now()
    });
    (client, phase, ended)
}

/// Returns how many seconds passed from `begin` until the connection ended.
async fn seconds(begin: Instant, ended: JoinHandle<Instant>) -> u64 {
    (ended.await.unwrap() - begin).as_secs()
}

async fn read_response(client: &mut DuplexStream) {
    let mut buffer = [0; 1024];
    let mut response = Vec::new();
    while !response.ends_with(b"xx") {
        let count = client.read(&mut buffer).await.unwrap();
        assert!(count > 0, "{response:?}");
        response.extend_from_slice(&buffer[..count]);
    }
    assert!(response.starts_with(b"HTTP/1.1 200 OK"));
}

#[tokio::test(start_paused = true)]
async fn silent_connection_ends_after_the_head_timeout() {
    let (_client, _, ended) = serve(2);
    assert_eq!(seconds(Instant::now(), ended).await, 5);
}

#[tokio::test(start_paused = true)]
async fn trickled_head_ends_after_the_head_timeout() {
    let (mut client, _, ended) = serve(2);
    let begin = Instant::now();
    tokio::spawn(async move {
        for byte in REQUEST {
            _ = client.write_all(&[*byte]).await;
            sleep(Duration::from_secs(1)).await;
        }
    });
    assert_eq!(seconds(begin, ended).await, 5);
}

#[tokio::test(start_paused = true)]
async fn idle_connection_outlives_the_head_timeout() {
    let (mut client, phase, ended) = serve(2);
    for _ in 0..3 {
        client.write_all(REQUEST).await.unwrap();
        read_response(&mut client).await;
        sleep(Duration::from_secs(60)).await;
        assert!(phase.waits_since().is_some());
    }
    let begin = Instant::now();
    assert_eq!(seconds(begin, ended).await, 15);
}

#[tokio::test(start_paused = true)]
async fn half_of_the_next_head_ends_after_the_head_timeout() {
    let (mut client, _, ended) = serve(2);
    client.write_all(REQUEST).await.unwrap();
    read_response(&mut client).await;
    sleep(Duration::from_secs(30)).await;
    client.write_all(&REQUEST[..9]).await.unwrap();
    assert_eq!(seconds(Instant::now(), ended).await, 5);
}

/// A byte each second does not extend the time.
#[tokio::test(start_paused = true)]
async fn slow_reader_ends_after_the_response_timeout() {
    let (mut client, phase, ended) = serve(1 << 20);
    client.write_all(REQUEST).await.unwrap();
    let begin = Instant::now();
    tokio::spawn(async move {
        while client.read_u8().await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    });
    sleep(Duration::from_secs(1)).await;
    assert!(phase.waits_since().is_none());
    assert_eq!(seconds(begin, ended).await, 60);
}

/// Serves a stream with an event a second, of this many bytes each.
fn serve_events(size: usize) -> (DuplexStream, JoinHandle<Instant>) {
    let events = move || async move {
        let event = move |_: ()| async move {
            sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, Infallible>(Bytes::from(vec![b'x'; size])), ()))
        };
        let mut response = Response::new(Body::from_stream(futures_util::stream::unfold((), event)));
        response.extensions_mut().insert(EventStream);
        response
    };
    let (client, stream) = duplex(4096);
    let shutdown = GracefulShutdown::new();
    let (_, serving) = serve_one(stream, Router::new().route("/", get(events)), &shutdown);
    let ended = tokio::spawn(async move {
        let _without_shutdown = shutdown;
        serving.await;
        Instant::now()
    });
    (client, ended)
}

#[tokio::test(start_paused = true)]
async fn stream_lasts_while_its_viewer_reads() {
    let (mut client, ended) = serve_events(100);
    client.write_all(REQUEST).await.unwrap();
    let begin = Instant::now();
    let mut buffer = [0; 1024];
    while begin.elapsed() < Duration::from_secs(3600) {
        assert!(client.read(&mut buffer).await.unwrap() > 0);
    }
    assert!(!ended.is_finished());
}

/// The first events fit into the buffers of hyper and of the pipe.
#[tokio::test(start_paused = true)]
async fn viewer_that_does_not_read_is_closed() {
    let (mut client, ended) = serve_events(100_000);
    client.write_all(REQUEST).await.unwrap();
    let took = seconds(Instant::now(), ended).await;
    assert!((15..=18).contains(&took), "{took} s");
}

/// Fills all slots, one each millisecond. Returns the connections with their ends.
async fn fill(open: &mut Open, begin_responses: bool) -> Vec<(Progress, JoinHandle<()>)> {
    let mut connections = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let (progress, phase) = Progress::new();
        let (alive, dead) = tokio::sync::oneshot::channel::<()>();
        open.spawn(phase, async move {
            let _alive = alive;
            pending::<()>().await;
        });
        if begin_responses {
            progress.begin_response();
        }
        connections.push((progress, tokio::spawn(async move { _ = dead.await })));
        sleep(Duration::from_millis(1)).await;
    }
    connections
}

async fn assert_ended(connections: &[(Progress, JoinHandle<()>)], expected: &[usize]) {
    sleep(Duration::from_millis(1)).await;
    let ended: Vec<_> = (0..connections.len()).filter(|index| connections[*index].1.is_finished()).collect();
    assert_eq!(ended, expected);
}

#[tokio::test(start_paused = true)]
async fn longest_waiting_connection_is_evicted_first() {
    let mut open = Open::default();
    let connections = fill(&mut open, false).await;
    connections[0].0.begin_response();
    let begin = Instant::now();
    open.make_room().await;
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert_ended(&connections, &[1]).await;
    open.make_room().await;
    assert_ended(&connections, &[1]).await;
}

#[tokio::test(start_paused = true)]
async fn slow_responses_are_evicted_after_a_second() {
    let mut open = Open::default();
    let connections = fill(&mut open, true).await;
    let begin = Instant::now();
    open.make_room().await;
    let waited = begin.elapsed();
    assert!((Duration::from_millis(900)..Duration::from_millis(1100)).contains(&waited), "{waited:?}");
    assert_ended(&connections, &[0]).await;
}

#[tokio::test(start_paused = true)]
async fn ended_connection_frees_its_slot() {
    let mut open = Open::default();
    let connections = fill(&mut open, true).await;
    let (_progress, phase) = Progress::new();
    open.make_room().await;
    open.spawn(phase, async {});
    open.make_room().await;
    assert_ended(&connections, &[0]).await;
}
