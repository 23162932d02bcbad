//! TLS to clients: versions, certificates, ALPN, session resumption and failed handshakes.

use rustls::HandshakeKind;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};
use tokio::io::AsyncWriteExt;

use crate::support::gateway::{TestGateway, get};
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::{TlsClient, connect};
use crate::support::wire::soon;
use crate::support::wire::upstream::Origin;

const ECHO: &str = "store: memory
upstreams: { echo: { targets: [builtin:echo] } }
routes: [{ name: all, match: { path: /** }, upstream: echo }]";

/// Creates an authority with the certificates `api` and `web`.
fn authority() -> Authority {
    let authority = Authority::new();
    authority.sign("api", &["api.example"]);
    authority.sign("web", &["web.example", "*.web.example"]);
    authority
}

fn gateway(authority: &Authority) -> TestGateway {
    TestGateway::start_at(&listener(authority, &["api", "web"], ""), ECHO)
}

fn certificate(authority: &Authority, name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(authority.path(&format!("{name}.pem"))).unwrap()
}

#[tokio::test]
async fn both_tls_versions_work_and_min_version_holds() {
    let authority = authority();
    let both = gateway(&authority);
    let newest = TestGateway::start_at(&listener(&authority, &["api"], ", min_version: '1.3'"), ECHO);
    for (version, is_new) in [(&TLS12, false), (&TLS13, true)] {
        let client = TlsClient { versions: vec![version], ..TlsClient::new(&authority) };
        let mut connected = client.connect(both.address).await.unwrap();
        assert_eq!(connected.stream.get_ref().1.protocol_version(), Some(version.version));
        assert_eq!(get(&mut connected, "/", "").await.status(), 200);
        assert_eq!(client.connect(newest.address).await.is_ok(), is_new);
    }
}

#[tokio::test]
async fn certificate_is_selected_by_server_name() {
    let authority = authority();
    let gateway = gateway(&authority);
    for (server_name, expected) in [("api.example", "api"), ("web.example", "web"), ("a.web.example", "web")] {
        let client = TlsClient { server_name, ..TlsClient::new(&authority) };
        let connected = client.connect(gateway.address).await.unwrap();
        let certificates = connected.stream.get_ref().1.peer_certificates().unwrap().to_vec();
        assert_eq!(certificates, [certificate(&authority, expected)], "{server_name}");
    }
    for server_name in ["unknown.example", "a.b.web.example", "127.0.0.1"] {
        let client = TlsClient { server_name, ..TlsClient::new(&authority) };
        let error = client.connect(gateway.address).await.unwrap_err().to_string();
        assert!(
            error.contains("not valid for name"),
            "the first certificate is presented, which has another name: {error}"
        );
    }
}

#[tokio::test]
async fn protocol_is_negotiated_by_alpn() {
    let authority = authority();
    let without_http2 = listener(&authority, &["api"], "").replace("tls:", "http2: false, tls:");
    let (gateway, without) = (gateway(&authority), TestGateway::start_at(&without_http2, ECHO));
    let both = TlsClient { protocols: &["h2", "http/1.1"], ..TlsClient::new(&authority) };
    for (gateway, agreed) in [(&gateway, &b"h2"[..]), (&without, b"http/1.1")] {
        let connected = both.connect(gateway.address).await.unwrap();
        assert_eq!(connected.stream.get_ref().1.alpn_protocol(), Some(agreed));
    }
    let neither = TlsClient { protocols: &["smtp"], ..TlsClient::new(&authority) };
    assert!(neither.connect(gateway.address).await.is_err());
    // Without ALPN the protocol is HTTP/1.1, even if the first bytes are HTTP/2.
    let silent = TlsClient { protocols: &[], ..TlsClient::new(&authority) };
    let mut client = silent.connect(gateway.address).await.unwrap();
    assert_eq!(client.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.status(), 505);
    let mut client = silent.connect(gateway.address).await.unwrap();
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
}

#[tokio::test]
async fn http2_over_tls_forwards_the_proto_https() {
    let authority = authority();
    let origin = Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let rules = ECHO.replace("builtin:echo", &format!("'http://{}'", origin.address));
    let gateway = TestGateway::start_at(&listener(&authority, &["api"], ""), &rules);
    let client = TlsClient { protocols: &["h2"], ..TlsClient::new(&authority) };
    let stream = client.connect(gateway.address).await.unwrap().stream;
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("https://api.example/").body(()).unwrap();
    let response = soon(client.send_request(request, true).unwrap().0).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(origin.last_request().field("x-forwarded-proto").as_deref(), Some("https"));
}

#[tokio::test]
async fn disabled_plaintext_http2_is_505() {
    let gateway = TestGateway::start_at("{ address: '127.0.0.1:0', http2: false }", ECHO);
    let mut client = gateway.client().await;
    assert_eq!(client.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.status(), 505);
}

#[tokio::test]
async fn all_workers_resume_sessions() {
    let authority = authority();
    let gateway = gateway(&authority);
    for version in [&TLS12, &TLS13] {
        let config = TlsClient { versions: vec![version], ..TlsClient::new(&authority) }.config();
        let mut kinds = Vec::new();
        for _ in 0..8 {
            let mut client = connect(&config, "api.example", gateway.address).await.unwrap();
            assert_eq!(get(&mut client, "/", "").await.status(), 200); // the client also receives the session ticket
            kinds.push(client.stream.get_ref().1.handshake_kind().unwrap());
        }
        assert_eq!(kinds.remove(0), HandshakeKind::Full);
        assert!(kinds.iter().all(|kind| *kind == HandshakeKind::Resumed), "{version:?} {kinds:?}");
    }
}

#[tokio::test]
async fn plaintext_http_on_a_tls_port_is_400() {
    let authority = authority();
    let gateway = gateway(&authority);
    let mut client = gateway.client().await;
    let response = get(&mut client, "/", "").await;
    assert_eq!(response.status(), 400);
    assert!(response.text().contains("this port requires TLS"), "{}", response.text());
    client.closed().await.unwrap();
    assert_eq!(gateway.counter("tidegate_rejected_total{cause=\"not_tls\"}").await, 1);
}

#[tokio::test]
async fn only_started_handshakes_are_counted_as_failed() {
    let authority = authority();
    let gateway = gateway(&authority);
    drop(gateway.client().await);
    let mut client = gateway.client().await;
    client.send([22, 3, 1, 0]).await;
    client.stream.shutdown().await.unwrap();
    client.closed().await.unwrap();
    assert_eq!(gateway.counter("tidegate_rejected_total{cause=\"bad_handshake\"}").await, 1);
}

#[tokio::test]
async fn slow_handshake_is_ended_and_counted() {
    let authority = authority();
    let listen = listener(&authority, &["api"], "").replace("tls:", "header_timeout: 3s, tls:");
    let gateway = TestGateway::start_at(&listen, ECHO);
    let mut client = gateway.client().await;
    client.send([22, 3, 1]).await;
    client.closed().await.unwrap();
    assert_eq!(gateway.counter("tidegate_rejected_total{cause=\"slow_handshake\"}").await, 1);
}

#[tokio::test]
async fn tls_1_1_is_rejected_with_an_alert() {
    // A ClientHello of TLS 1.1 with two of its cipher suites.
    let authority = authority();
    let gateway = gateway(&authority);
    let body = [&[3, 2][..], &[7; 32], &[0], &[0, 4, 0xc0, 0x13, 0x00, 0x2f], &[1, 0]].concat();
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
    let hello = [&[1, 0, 0, length(&body)][..], &body].concat();
    let record = [&[22, 3, 1, 0, length(&hello)][..], &hello].concat();
    let mut client = gateway.client().await;
    client.send(record).await;
    let alert = client.rest().await.unwrap();
    assert_eq!((alert[0], alert[5], alert.len()), (21, 2, 7), "a fatal alert and nothing else: {alert:?}");
}
