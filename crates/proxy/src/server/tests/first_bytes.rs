//! Connections whose protocol is not known yet.

use std::future::poll_fn;

use super::*;
use crate::server::connection::serve;

/// Regression test: after a byte that both protocols can begin with, the gateway polled 500 times a second until the
/// header timeout.
#[tokio::test]
async fn ambiguous_first_byte_is_polled_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = Raw::connect(listener.local_addr().unwrap()).await;
    let (stream, peer) = listener.accept().await.unwrap();
    let header_timeout = Duration::from_millis(300);
    let (_trigger, drain) = Drain::new();
    let server = Server::new(&Listen { header_timeout, ..listen() }, Arc::new(Metrics::of_gateway(&[])), drain);
    let slot = server.connections.acquire(peer).unwrap();
    let activity = Arc::new(Activity::new(Instant::now()));
    let mut serving = Box::pin(serve(
        stream.into(),
        testing::HandlerService(describe),
        activity,
        server.context.clone(),
        Arc::new(slot),
    ));
    client.send("P").await;
    let mut polls = 0;
    soon(poll_fn(|cx| {
        polls += 1;
        serving.as_mut().poll(cx)
    }))
    .await;
    assert!(polls <= 4, "{polls} polls");
    drop(serving);
    assert_eq!(client.rest().await.unwrap(), b"");
}

#[tokio::test]
async fn first_bytes_may_arrive_one_by_one() {
    let server = start(&listen(), describe);
    let mut client = Raw::connect(server.address).await;
    for byte in "PRINT / HTTP/1.1\r\nHost: a\r\n\r\n".replace("PRINT", "PRX").bytes() {
        client.send([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.response(false).await.text(), "PRX /");

    let mut client = TcpStream::connect(server.address).await.unwrap();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".iter().chain(&settings) {
        tokio::io::AsyncWriteExt::write_all(&mut client, &[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut frame = [0; 4];
    soon(tokio::io::AsyncReadExt::read_exact(&mut client, &mut frame)).await.unwrap();
    assert_eq!(frame[3], 4, "SETTINGS");
}

#[tokio::test]
async fn ambiguous_first_byte_starts_the_header_timeout() {
    let header_timeout = Duration::from_secs(4);
    let server = start(&Listen { header_timeout, ..listen() }, describe);
    let mut client = Raw::connect(server.address).await;
    client.send("P").await;
    let start = Instant::now();
    tokio::time::sleep(header_timeout / 2).await;
    client.send("OST").await;
    client.closed().await.unwrap();
    let took = start.elapsed();
    assert!(took < header_timeout * 3 / 2, "{took:?}");
    assert!(server.metrics.render().contains(r#"tidegate_rejected_total{cause="slow_head"} 1"#));
}
