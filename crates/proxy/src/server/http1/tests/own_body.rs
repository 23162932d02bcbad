//! Responses that echo the request's own body.

use super::*;

async fn echo(request: Request<RequestBody>, _: SocketAddr) -> Response<RequestBody> {
    Response::new(request.into_body())
}

const POST: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";

/// Regression test: the connection was reset without a response.
#[tokio::test]
async fn malformed_body_before_its_echo_gets_400() {
    let server = start(echo);
    for broken in ["-1\r\n", "5 x\r\n", "0\r\nno trailer\r\n\r\n"] {
        let mut client = Raw::connect(server.address).await;
        let response = client.ask([POST, broken, "GET /smuggled HTTP/1.1\r\n\r\n"].concat()).await;
        assert_eq!((response.status(), response.field("connection").as_deref()), (400, Some("close")), "{broken:?}");
        assert!(response.text().contains("the request body is malformed or incomplete"), "{}", response.text());
        client.closed().await.unwrap();
    }
}

#[tokio::test]
async fn malformed_body_during_its_echo_resets_the_connection() {
    let server = start(echo);
    let mut client = Raw::connect(server.address).await;
    client.send(POST).await;
    client.head().await.unwrap();
    assert_eq!(client.chunk().await.unwrap(), b"hello");
    client.send("-1\r\n").await;
    assert_eq!(client.rest().await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}
