//! Streams whose answers are not read: they hold up nobody else.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;

/// More than there is room for on the way.
const TOO_MUCH: u64 = 16 * MIB;

#[tokio::test]
async fn of_a_hundred_streams_one_that_is_not_read_holds_up_none_of_the_others() {
    for echo in [Echo::clear().await, Echo::tls()] {
        let client = echo.client().await;
        let request = Request::post("http://api.example/").body(()).expect("a request");
        let (response, mut to) = client.clone().send_request(request, false).expect("a stream");
        let sending = tokio::spawn(async move { send_all(&mut to, TOO_MUCH).await });
        let mut unread = response.await.expect("an answer").into_body();

        let mut others = JoinSet::new();
        for _ in 1..100 {
            let mut client = client.clone();
            others.spawn(async move { exchange(&mut client, MIB).await });
        }
        timeout(Duration::from_secs(60), others.join_all()).await.expect("nobody waits for who does not read");
        assert!(!sending.is_finished(), "it waits for its reader");
        assert_eq!(read_all(&mut unread).await, TOO_MUCH);
        sending.await.expect("all is sent");
    }
}
