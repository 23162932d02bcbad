//! Switched connections of clients that speak TLS.

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::TlsClient;

/// An origin, a gateway that speaks TLS, and a client that was switched there.
async fn switched() -> (Origin, TestGateway, Raw<TlsStream<TcpStream>>) {
    let (origin, authority) = (echo().await, Authority::new());
    authority.sign("api", &["api.example"]);
    let gateway = TestGateway::start_at(&listener(&authority, &["api"], ""), &rules(&origin, "", ""));
    let mut client = TlsClient::new(&authority).connect(gateway.address).await.unwrap();
    client.send(handshake("/", "")).await;
    assert_eq!(client.head().await.expect("an answer").status(), 101);
    (origin, gateway, client)
}

#[tokio::test]
async fn a_websocket_over_tls_is_carried_and_each_end_is_told() {
    let (_origin, gateway, mut client) = switched().await;
    for piece in 0..100 {
        let sent = vec![piece; 30_000];
        client.send(&sent).await;
        assert_eq!(client.exactly(sent.len()).await.unwrap(), sent);
    }
    client.stream.shutdown().await.unwrap();
    // An end that is not told (`close_notify`) is an error.
    assert_eq!(client.rest().await.expect("an end that is told"), b"");
    ends(&gateway, "closed").await;
}

#[tokio::test]
async fn an_end_that_a_client_of_tls_does_not_tell_is_a_broken_one() {
    let (_origin, gateway, mut client) = switched().await;
    client.stream.get_mut().0.shutdown().await.unwrap();
    assert!(client.rest().await.is_err());
    ends(&gateway, "broken").await;
}
