//! What is carried once a connection is switched: every byte, both ways, as fast as both sides take it.

use tokio::io::AsyncReadExt;

use super::*;

const MEGABYTE: usize = 1 << 20;

/// An origin that switches, and leaves the connection to this script.
async fn switching<F, S>(script: S) -> Origin
where
    S: Fn(Visit) -> F + Send + Clone + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    Origin::start(move |mut visit: Visit| {
        let script = script.clone();
        async move {
            visit.request().await.expect("a request");
            visit.raw.send(SWITCH).await;
            script(visit).await;
        }
    })
    .await
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index % 251).unwrap()).collect()
}

#[tokio::test]
async fn what_comes_with_the_101_is_carried() {
    let origin = Origin::start(|mut visit: Visit| async move {
        visit.request().await;
        visit.raw.send(format!("{SWITCH}first")).await;
        visit.raw.rest().await.ok();
    })
    .await;
    let gateway = gateway(&origin, "");
    assert_eq!(switched(&gateway).await.exactly(5).await.unwrap(), b"first");
}

#[tokio::test]
async fn much_is_carried_both_ways_at_once() {
    let origin = echo().await;
    let gateway = gateway(&origin, "");
    let sent = pattern(32 * MEGABYTE);
    let (mut read, mut write) = switched(&gateway).await.stream.into_split();
    let (to_send, mut came) = (sent.clone(), Vec::new());
    let sending = tokio::spawn(async move {
        write.write_all(&to_send).await.expect("it is taken");
        write.shutdown().await.expect("the end is told");
    });
    read.read_to_end(&mut came).await.expect("all of it, and the end");
    sending.await.unwrap();
    assert!(came == sent, "{} bytes of {}", came.len(), sent.len());
    ends(&gateway, "closed").await;
}

#[tokio::test]
async fn each_side_may_end_first_while_the_other_goes_on() {
    for client_first in [true, false] {
        let origin = switching(move |mut visit| async move {
            if client_first {
                assert_eq!(visit.raw.rest().await.unwrap(), b"from the client");
                visit.raw.send("from the origin").await;
            } else {
                visit.raw.send("from the origin").await;
                visit.raw.stream.shutdown().await.unwrap();
                assert_eq!(visit.raw.rest().await.unwrap(), b"from the client");
            }
        })
        .await;
        let gateway = gateway(&origin, "");
        let mut client = switched(&gateway).await;
        if !client_first {
            assert_eq!(client.rest().await.unwrap(), b"from the origin");
        }
        client.send("from the client").await;
        client.stream.shutdown().await.unwrap();
        if client_first {
            assert_eq!(client.rest().await.unwrap(), b"from the origin");
        }
        ends(&gateway, "closed").await;
    }
}

#[tokio::test]
async fn a_reset_on_one_side_is_a_reset_on_the_other() {
    let origin = switching(|mut visit| async move {
        let first = visit.raw.exactly(1).await.unwrap();
        if first == b"r" {
            visit.raw.stream.set_zero_linger().unwrap();
        } else {
            assert!(visit.raw.rest().await.is_err() || visit.raw.closed().await.is_ok());
        }
    })
    .await;
    let gateway = gateway(&origin, "");
    let mut client = switched(&gateway).await;
    client.send("r").await;
    assert!(client.rest().await.is_err());
    let mut client = switched(&gateway).await;
    client.send("x").await;
    client.stream.set_zero_linger().unwrap();
    drop(client);
    while ended(&gateway, "broken").await < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(open_ones(&gateway).await, 0);
}

/// Writes until nothing more is taken for a while; returns how much was.
async fn fill(stream: &mut (impl AsyncWriteExt + Unpin)) -> usize {
    let (piece, mut count) = (vec![7; 64 * 1024], 0);
    while let Ok(written) = tokio::time::timeout(std::time::Duration::from_millis(500), stream.write(&piece)).await {
        count += written.expect("it is open");
        assert!(count < 64 * MEGABYTE, "somebody gathers it");
    }
    count
}

#[tokio::test]
async fn who_does_not_read_holds_up_one_direction_and_nothing_is_gathered() {
    let (is_full, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (full, wait) = (Arc::clone(&is_full), Arc::clone(&go_on));
    let origin = switching(move |visit| {
        let (full, wait) = (Arc::clone(&full), Arc::clone(&wait));
        async move {
            let (mut read, mut write) = visit.raw.stream.into_split();
            let filled = fill(&mut write).await; // the client does not read, and yet is read
            let mut first = [0; 5];
            read.read_exact(&mut first).await.unwrap();
            assert_eq!(&first, b"hello");
            full.notify_one();
            wait.notified().await; // the client sends, and is not read
            write.write_all(&u64::try_from(filled).unwrap().to_be_bytes()).await.unwrap();
            write.shutdown().await.unwrap();
            let mut rest = Vec::new();
            read.read_to_end(&mut rest).await.unwrap();
            assert!(rest.iter().all(|byte| *byte == 7));
        }
    })
    .await;
    let gateway = gateway(&origin, "");
    let mut client = switched(&gateway).await;
    client.send("hello").await;
    let sent = fill(&mut client.stream).await;
    assert!(sent > 0);
    is_full.notified().await;
    go_on.notify_one();
    let came = client.rest().await.unwrap();
    let (data, told) = came.split_at(came.len() - 8);
    assert_eq!(u64::from_be_bytes(told.try_into().unwrap()), data.len() as u64);
    client.stream.shutdown().await.unwrap();
    ends(&gateway, "closed").await;
}
