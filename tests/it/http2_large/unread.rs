//! Streams whose client reads no response do not delay other streams.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;

/// More than all buffers and windows on the way can hold.
const TOO_MUCH: u64 = 16 * MIB;

#[tokio::test]
async fn unread_stream_does_not_delay_other_streams() {
    for echo in [Echo::plaintext().await, Echo::tls()] {
        let client = echo.client().await;
        let request = Request::post("http://api.example/").body(()).expect("a request");
        let (response, mut to) = client.clone().send_request(request, false).expect("a stream");
        let sending = tokio::spawn(async move { send_all(&mut to, TOO_MUCH).await });
        let mut unread = response.await.expect("a response").into_body();

        let mut others = JoinSet::new();
        for _ in 1..100 {
            let mut client = client.clone();
            others.spawn(async move { exchange(&mut client, MIB).await });
        }
        timeout(Duration::from_secs(60), others.join_all()).await.expect("99 exchanges end within 60 s");
        assert!(!sending.is_finished(), "the upload must wait until its echo is read");
        assert_eq!(read_all(&mut unread).await, TOO_MUCH);
        sending.await.expect("a complete upload");
    }
}
