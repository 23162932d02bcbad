//! Tests of both ends of a TLS connection over real sockets.

use std::future::poll_fn;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

/// Returns the client's and the server's end of a TLS 1.3 connection. The client has not received its session tickets
/// yet.
async fn pair() -> (Transport, Transport) {
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let server = server
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], signing_key.serialize_der().try_into().unwrap())
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = async {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap()
    };
    let accepting = async {
        let (stream, _) = listener.accept().await.unwrap();
        TlsAcceptor::from(Arc::new(server)).accept(stream).await.unwrap()
    };
    let (client, server) = tokio::join!(connecting, accepting);
    (Transport::Tls(Tls::new(client)), Transport::Tls(Tls::new(server)))
}

async fn readable(transport: &Transport) {
    poll_fn(|cx| transport.poll_readable(cx)).await.unwrap();
}

fn tcp(transport: &Transport) -> &TcpStream {
    match transport {
        Transport::Tls(stream) => stream.tcp(),
        other => panic!("no TLS: {other:?}"),
    }
}

#[tokio::test]
async fn decrypted_data_is_readable() {
    let (mut client, mut server) = pair().await;
    client.write_all(b"GET /").await.unwrap();
    readable(&server).await;
    assert_eq!(server.read_u8().await.unwrap(), b'G');
    // All of it has left the socket with the first byte.
    readable(&server).await;
    assert_eq!(server.read(&mut [0; 9]).await.unwrap(), 4);
    let polled = server.poll_readable(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
}

#[tokio::test]
async fn session_tickets_are_not_data() {
    let (mut client, mut server) = pair().await;
    tcp(&client).readable().await.unwrap();
    assert!(client.has_nothing_to_read(false) && client.has_nothing_to_read(true));
    server.write_all(b"HTTP/1.1 408 ").await.unwrap();
    tcp(&client).readable().await.unwrap();
    assert!(!client.has_nothing_to_read(true) && !client.has_nothing_to_read(false));
}

#[tokio::test]
async fn closed_connection_has_an_end_to_read() {
    for with_notice in [true, false] {
        let (mut client, mut server) = pair().await;
        if !with_notice {
            server.reset_on_drop();
        }
        drop(server);
        while client.has_nothing_to_read(false) {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn dropped_stream_sends_close_notify_unless_reset() {
    let (mut client, server) = pair().await;
    drop(server);
    assert_eq!(client.read(&mut [0; 9]).await.unwrap(), 0);

    let (mut client, mut server) = pair().await;
    server.reset_on_drop();
    drop(server);
    assert!(client.read(&mut [0; 9]).await.is_err());
}

#[tokio::test]
async fn end_without_close_notify_is_an_error() {
    let (client, mut server) = pair().await;
    SockRef::from(tcp(&client)).shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0; 9]).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn flush_sends_more_than_all_buffers_hold() {
    let (mut client, mut server) = pair().await;
    let sent: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let all = sent.clone();
    let sending = tokio::spawn(async move {
        server.write_all(&all).await.unwrap();
        server.flush().await.unwrap();
        server
    });
    let mut received = vec![0; sent.len()];
    client.read_exact(&mut received).await.unwrap();
    assert!(received == sent);
    drop(sending.await.unwrap());
    assert_eq!(client.read(&mut [0; 9]).await.unwrap(), 0);
}

#[tokio::test]
async fn tcp_keeps_all_bytes_of_small_reads_and_blocked_writes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut client, mut server) = (Transport::from(client), Transport::from(listener.accept().await.unwrap().0));
    // More than the buffers of the sockets hold, so that writes have to wait.
    let sent: Vec<u8> = (0..16_u32 << 20).map(|number| (number % 251).to_le_bytes()[0]).collect();
    let writing = async {
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
    };
    let reading = async {
        let mut received = Vec::new();
        for size in [1, 100, 4_096, 4_097, 65_536].into_iter().cycle() {
            let mut buffer = vec![0; size];
            match server.read(&mut buffer).await.unwrap() {
                0 => break,
                count => received.extend_from_slice(&buffer[..count]),
            }
        }
        received
    };
    let ((), received) = tokio::join!(writing, reading);
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
}
