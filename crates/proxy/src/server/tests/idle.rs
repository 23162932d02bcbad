//! Connections that wait for their next request.

use std::mem::size_of_val;

use super::*;
use crate::server::connection::serve;

/// The bytes that Tokio 1.54 adds to a future to make it a task. The sum is rounded up to a multiple of 128.
const TASK_OVERHEAD: usize = 96;

/// Waits longer than a connection without requests keeps its buffers.
pub(super) async fn wait_until_idle() {
    tokio::time::sleep(activity::IDLE_DELAY + Duration::from_millis(200)).await;
}

#[tokio::test]
async fn idle_connection_serves_its_next_request() {
    let server = start(&listen(), describe);
    let mut client = Raw::connect(server.address).await;
    for path in ["/1", "/2"] {
        assert_eq!(client.ask(get(path)).await.text(), format!("GET {path}"));
        wait_until_idle().await;
    }
    // The buffer contains the beginning of the next request, which must not be lost.
    client.send(get("/3") + "GET /4 HT").await;
    assert_eq!(client.response(false).await.text(), "GET /3");
    wait_until_idle().await;
    client.send("TP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.response(false).await.text(), "GET /4");
    wait_until_idle().await;
    server.trigger.start(LONG);
    soon(client.closed()).await.unwrap();
    soon(server.serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn idle_connection_is_closed_after_its_timeout() {
    let server = start(&Listen { idle_timeout: Duration::from_millis(1500), ..listen() }, describe);
    let mut client = Raw::connect(server.address).await;
    // Before the request: the client may read the response long after the timer has started.
    let start = Instant::now();
    client.ask(get("/")).await;
    soon(client.closed()).await.unwrap();
    let idle = start.elapsed();
    assert!(idle >= Duration::from_millis(1400), "{idle:?}");
}

#[tokio::test]
async fn idle_connection_uses_at_most_448_bytes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, peer) = listener.accept().await.unwrap();
    let (_trigger, drain) = Drain::new();
    let server = Server::new(&listen(), Arc::new(Metrics::of_gateway(&[])), drain);
    let slot = Arc::new(server.connections.acquire(peer).unwrap());
    let activity = Arc::new(Activity::new(Instant::now()));
    // An `Arc` has two counters in addition to its value.
    assert!(size_of_val(&*activity) + 16 <= 128 && size_of_val(&*slot) + 16 <= 64);
    // Makes the handler as large as the gateway's service.
    let pointers = (Arc::new(()), Arc::new(()));
    let handler = testing::HandlerService(move |request, peer| {
        let _used = &pointers;
        describe(request, peer)
    });
    assert_eq!(size_of_val(&handler), 16);
    assert!(size_of_val(&serve(stream.into(), handler, activity, server.context, slot)) + TASK_OVERHEAD <= 256);
}
