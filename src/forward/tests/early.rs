//! Origins that answer before they have been sent all of a request.

use super::*;

/// More than sockets hold.
const UPLOAD: usize = 32 << 20;

/// Sends a large upload while it waits for the answer.
pub(super) async fn upload(gateway: &Gateway) -> (Raw, Message) {
    let (mut client, sending) = begin_upload(gateway).await;
    let answer = client.response(false).await;
    sending.abort();
    (client, answer)
}

/// Sends a large upload in a task of its own.
async fn begin_upload(gateway: &Gateway) -> (Raw, tokio::task::JoinHandle<()>) {
    let stream = gateway.client().await.stream.into_std().unwrap();
    let mut writer = tokio::net::TcpStream::from_std(stream.try_clone().unwrap()).unwrap();
    let mut client = Raw::new(tokio::net::TcpStream::from_std(stream).unwrap());
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD}\r\n\r\n")).await;
    // How far it comes is not the point.
    let sending = tokio::spawn(async move { drop(writer.write_all(&vec![7; UPLOAD]).await) });
    (client, sending)
}

fn refusal(status: u16, connection: &str) -> String {
    format!("HTTP/1.1 {status} No\r\nContent-Length: 20000\r\nConnection: {connection}\r\n\r\n{}", "x".repeat(20000))
}

#[tokio::test]
async fn an_early_refusal_reaches_the_client_whole_though_its_connection_is_reset() {
    for status in [401, 413, 429, 503] {
        let origin = Origin::start(move |mut conn: OriginConnection| async move {
            conn.head().await;
            conn.raw.send(refusal(status, "close")).await;
        })
        .await;
        let gateway = Settings::to(origin.address).start();
        let (_, answer) = upload(&gateway).await;
        assert_eq!((answer.status(), answer.body.len()), (status, 20000));
        assert_eq!(origin.connections(), 1);
    }
}

#[tokio::test]
async fn an_origin_that_refuses_and_closes_is_sent_no_more() {
    let (sent, mut counts) = tokio::sync::mpsc::unbounded_channel();
    let refused = Arc::new(Notify::new());
    let was_refused = refused.clone();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let (sent, was_refused) = (sent.clone(), was_refused.clone());
        async move {
            conn.head().await;
            // The answer is not over, but it is clear what it says.
            conn.raw.send("HTTP/1.1 413 No\r\nContent-Length: 4\r\nConnection: close\r\n\r\nno").await;
            was_refused.notified().await;
            conn.raw.send("no").await;
            sent.send(conn.raw.rest().await.unwrap_or_default().len()).unwrap();
        }
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let (mut client, sending) = begin_upload(&gateway).await;
    assert_eq!(client.head().await.unwrap().status(), 413);
    refused.notify_one();
    assert_eq!(client.exactly(4).await.unwrap(), b"nono");
    sending.abort();
    let count = soon(counts.recv()).await.unwrap();
    assert!(count < UPLOAD / 2, "{count} bytes were sent for nothing");
}

#[tokio::test]
async fn an_upload_that_is_under_way_when_its_answer_is_over_ends_its_connection() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send(refusal(413, "keep-alive")).await;
        // It reads no more, so that the upload is under way when its answer is over.
        std::future::pending::<()>().await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    for asked in 1..=2 {
        let (_, answer) = upload(&gateway).await;
        assert_eq!((answer.status(), answer.body.len(), origin.connections()), (413, 20000, asked));
    }
}
