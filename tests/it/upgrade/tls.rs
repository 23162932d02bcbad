//! Upgraded connections of TLS clients.

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::TlsClient;

/// Starts an origin and a gateway with TLS, and connects an upgraded client.
async fn upgraded() -> (Origin, TestGateway, Raw<TlsStream<TcpStream>>) {
    let (origin, authority) = (echo().await, Authority::new());
    authority.sign("api", &["api.example"]);
    let gateway = TestGateway::start_at(&listener(&authority, &["api"], ""), &rules(&origin, "", ""));
    let mut client = TlsClient::new(&authority).connect(gateway.address).await.unwrap();
    client.send(handshake("/", "")).await;
    assert_eq!(client.head().await.expect("a response").status(), 101);
    (origin, gateway, client)
}

#[tokio::test]
async fn websocket_over_tls_ends_with_close_notify() {
    let (_origin, gateway, mut client) = upgraded().await;
    for piece in 0..100 {
        let sent = vec![piece; 30_000];
        client.send(&sent).await;
        assert_eq!(client.exactly(sent.len()).await.unwrap(), sent);
    }
    client.stream.shutdown().await.unwrap();
    // An end without `close_notify` is an error.
    assert_eq!(client.rest().await.expect("an end with close_notify"), b"");
    wait_for_end(&gateway, "closed").await;
}

#[tokio::test]
async fn end_without_close_notify_is_broken() {
    let (_origin, gateway, mut client) = upgraded().await;
    client.stream.get_mut().0.shutdown().await.unwrap();
    assert!(client.rest().await.is_err());
    wait_for_end(&gateway, "broken").await;
}
