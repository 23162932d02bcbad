//! Bytes on upgraded connections: both directions, half-closes, resets and backpressure.

use tokio::io::AsyncReadExt;

use super::*;

const MEGABYTE: usize = 1 << 20;

/// Starts an origin that accepts the upgrade and then runs `script`.
async fn upgrading_origin<F, S>(script: S) -> Origin
where
    S: Fn(OriginConnection) -> F + Send + Clone + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    Origin::start(move |mut conn: OriginConnection| {
        let script = script.clone();
        async move {
            conn.request().await.expect("a request");
            conn.raw.send(SWITCH).await;
            script(conn).await;
        }
    })
    .await
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index % 251).unwrap()).collect()
}

#[tokio::test]
async fn bytes_after_the_101_are_forwarded() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send(format!("{SWITCH}first")).await;
        conn.raw.rest().await.ok();
    })
    .await;
    let gateway = gateway(&origin, "");
    assert_eq!(upgraded(&gateway).await.exactly(5).await.unwrap(), b"first");
}

#[tokio::test]
async fn many_bytes_are_forwarded_both_ways_at_once() {
    let origin = echo().await;
    let gateway = gateway(&origin, "");
    let sent = pattern(32 * MEGABYTE);
    let (mut read, mut write) = upgraded(&gateway).await.stream.into_split();
    let (to_send, mut received) = (sent.clone(), Vec::new());
    let sending = tokio::spawn(async move {
        write.write_all(&to_send).await.expect("all bytes are sent");
        write.shutdown().await.expect("the end is sent");
    });
    read.read_to_end(&mut received).await.expect("all bytes and the end");
    sending.await.unwrap();
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
    wait_for_end(&gateway, "closed").await;
}

#[tokio::test]
async fn each_side_can_close_its_half_first() {
    for client_first in [true, false] {
        let origin = upgrading_origin(move |mut conn| async move {
            if client_first {
                assert_eq!(conn.raw.rest().await.unwrap(), b"from the client");
                conn.raw.send("from the origin").await;
            } else {
                conn.raw.send("from the origin").await;
                conn.raw.stream.shutdown().await.unwrap();
                assert_eq!(conn.raw.rest().await.unwrap(), b"from the client");
            }
        })
        .await;
        let gateway = gateway(&origin, "");
        let mut client = upgraded(&gateway).await;
        if !client_first {
            assert_eq!(client.rest().await.unwrap(), b"from the origin");
        }
        client.send("from the client").await;
        client.stream.shutdown().await.unwrap();
        if client_first {
            assert_eq!(client.rest().await.unwrap(), b"from the origin");
        }
        wait_for_end(&gateway, "closed").await;
    }
}

#[tokio::test]
async fn reset_is_forwarded_to_the_other_side() {
    let origin = upgrading_origin(|mut conn| async move {
        let first = conn.raw.exactly(1).await.unwrap();
        if first == b"r" {
            conn.raw.stream.set_zero_linger().unwrap();
        } else {
            assert!(conn.raw.rest().await.is_err() || conn.raw.closed().await.is_ok());
        }
    })
    .await;
    let gateway = gateway(&origin, "");
    let mut client = upgraded(&gateway).await;
    client.send("r").await;
    assert!(client.rest().await.is_err());
    let mut client = upgraded(&gateway).await;
    client.send("x").await;
    client.stream.set_zero_linger().unwrap();
    drop(client);
    while count_ended(&gateway, "broken").await < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(count_open(&gateway).await, 0);
}

/// Writes until a write blocks for 500 ms. Returns the number of bytes.
async fn fill(stream: &mut (impl AsyncWriteExt + Unpin)) -> usize {
    let (piece, mut count) = (vec![7; 64 * 1024], 0);
    while let Ok(written) = tokio::time::timeout(std::time::Duration::from_millis(500), stream.write(&piece)).await {
        count += written.expect("an open connection");
        assert!(count < 64 * MEGABYTE, "the gateway buffers too many bytes");
    }
    count
}

#[tokio::test]
async fn unread_direction_blocks_only_itself() {
    let (is_full, resume) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (full, wait) = (Arc::clone(&is_full), Arc::clone(&resume));
    let origin = upgrading_origin(move |conn| {
        let (full, wait) = (Arc::clone(&full), Arc::clone(&wait));
        async move {
            let (mut read, mut write) = conn.raw.stream.into_split();
            let filled = fill(&mut write).await; // the client does not read, but its bytes arrive
            let mut first = [0; 5];
            read.read_exact(&mut first).await.unwrap();
            assert_eq!(&first, b"hello");
            full.notify_one();
            wait.notified().await; // the client sends, but the origin does not read
            write.write_all(&u64::try_from(filled).unwrap().to_be_bytes()).await.unwrap();
            write.shutdown().await.unwrap();
            let mut rest = Vec::new();
            read.read_to_end(&mut rest).await.unwrap();
            assert!(rest.iter().all(|byte| *byte == 7));
        }
    })
    .await;
    let gateway = gateway(&origin, "");
    let mut client = upgraded(&gateway).await;
    client.send("hello").await;
    let sent = fill(&mut client.stream).await;
    assert!(sent > 0);
    is_full.notified().await;
    resume.notify_one();
    let received = client.rest().await.unwrap();
    let (data, length) = received.split_at(received.len() - 8);
    assert_eq!(u64::from_be_bytes(length.try_into().unwrap()), data.len() as u64);
    client.stream.shutdown().await.unwrap();
    wait_for_end(&gateway, "closed").await;
}
