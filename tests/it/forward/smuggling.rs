//! After a malformed body, the following bytes are never parsed as a request.

use super::*;

const HEAD: &str = "POST /first HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
const BODY: &[u8] = b"5\r\nhello\r\n0\r\n\r\n";
const HIDDEN: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Returns all responses until the end of the connection.
async fn responses(gateway: &Gateway, bytes: &[u8]) -> Vec<Message> {
    let mut client = gateway.client().await;
    client.send(bytes).await;
    let mut responses = Vec::new();
    while let Ok(response) = client.try_message(false, true).await {
        responses.push(response);
    }
    responses
}

/// Regression test: the decoder continued after an error. 88 of these 112 bodies let the hidden request pass.
#[tokio::test]
async fn inserted_byte_in_a_chunked_body_hides_no_request() {
    let origin = Origin::with_response(OK).await;
    let gateway = Settings::to(origin.address).start();
    let mut rejected = 0;
    for at in 0..=BODY.len() {
        for byte in *b"\nX\0 -\r\x80" {
            let body = [&BODY[..at], &[byte], &BODY[at..]].concat();
            let responses = responses(&gateway, &[HEAD.as_bytes(), &body, HIDDEN].concat()).await;
            let shown = String::from_utf8_lossy(&body).into_owned();
            let smuggled = origin.requests().iter().filter(|request| request.start.contains("/smuggled")).count();
            let statuses: Vec<_> = responses.iter().map(Message::status).collect();
            match statuses[..] {
                [400] => {
                    rejected += 1;
                    assert_eq!(
                        (responses[0].field("connection").as_deref(), smuggled),
                        (Some("close"), 0),
                        "{shown:?}"
                    );
                }
                // The bytes after the body belong to the next request.
                [200, 200] => assert_eq!(smuggled, 1, "{shown:?}"),
                [200, 400] => assert!(smuggled == 0 && at + 1 >= BODY.len(), "{shown:?}"),
                _ => panic!("{shown:?}: {statuses:?}"),
            }
            origin.clear_requests();
        }
    }
    assert!(rejected > 100, "only {rejected} were rejected");
}

#[tokio::test]
async fn malformed_body_after_early_response_ends_the_connection() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.head().await;
        conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        _ = conn.raw.rest().await;
    })
    .await;
    let gateway = Settings::to(origin.address).start();
    let mut client = gateway.client().await;
    client.send([HEAD, "5\r\nhello\r\n"].concat()).await;
    assert_eq!(client.response(false).await.status(), 200);
    client.send([b"-5\r\nhello\r\n0\r\n\r\n", HIDDEN].concat()).await;
    assert!(client.rest().await.unwrap_or_default().is_empty());
    assert_eq!(origin.requests().len(), 1);
}

/// Regression test: the gateway forwarded the head of such a response, and then reset the connection.
#[tokio::test]
async fn malformed_chunks_after_a_head_become_a_502() {
    for chunks in
        ["x\r\n", "5 \r\nhello\r\n0\r\n\r\n", "5\r\nhello0\r\n\r\n", "5\r\nhello\r\n5;a=\r\n", "0\r\nno field\r\n\r\n"]
    {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let response: &'static str = format!("{head}{chunks}").leak();
        let origin = Origin::with_response(response).await;
        let gateway = Settings::to(origin.address).start();
        let response = gateway.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!((response.status(), origin.connections()), (502, 1), "{chunks:?}");
        // A response without a body has no chunks.
        let mut client = gateway.client().await;
        client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(client.response(true).await.status(), 200, "{chunks:?}");
    }
}
