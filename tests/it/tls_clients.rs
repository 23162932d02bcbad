//! TLS to clients: who is shown which certificate, what is spoken, and what is told upstream.

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

/// An authority that has signed `api` and `web`.
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
async fn both_versions_are_spoken_and_the_minimum_holds() {
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
async fn a_client_is_shown_the_certificate_with_the_name_that_it_asks_for() {
    let authority = authority();
    let gateway = gateway(&authority);
    for (asked, shown) in [("api.example", "api"), ("web.example", "web"), ("a.web.example", "web")] {
        let client = TlsClient { asks_for: asked, ..TlsClient::new(&authority) };
        let connected = client.connect(gateway.address).await.unwrap();
        let certificates = connected.stream.get_ref().1.peer_certificates().unwrap().to_vec();
        assert_eq!(certificates, [certificate(&authority, shown)], "{asked}");
    }
    for asked in ["nobody.example", "a.b.web.example", "127.0.0.1"] {
        let client = TlsClient { asks_for: asked, ..TlsClient::new(&authority) };
        let error = client.connect(gateway.address).await.unwrap_err().to_string();
        assert!(error.contains("not valid for name"), "the first is shown, which has another name: {error}");
    }
}

#[tokio::test]
async fn the_protocol_is_agreed_upon_before_the_first_byte() {
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
    // Without an agreement it is HTTP/1.1, whatever the first bytes are.
    let silent = TlsClient { protocols: &[], ..TlsClient::new(&authority) };
    let mut client = silent.connect(gateway.address).await.unwrap();
    assert_eq!(client.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.status(), 505);
    let mut client = silent.connect(gateway.address).await.unwrap();
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
}

#[tokio::test]
async fn http2_is_spoken_over_tls_and_upstreams_are_told_of_it() {
    let authority = authority();
    let origin = Origin::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let rules = ECHO.replace("builtin:echo", &format!("'http://{}'", origin.address));
    let gateway = TestGateway::start_at(&listener(&authority, &["api"], ""), &rules);
    let client = TlsClient { protocols: &["h2"], ..TlsClient::new(&authority) };
    let stream = client.connect(gateway.address).await.unwrap().stream;
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("https://api.example/").body(()).unwrap();
    let response = soon(client.send_request(request, true).unwrap().0).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(origin.last().field("x-forwarded-proto").as_deref(), Some("https"));
}

#[tokio::test]
async fn http2_in_clear_is_a_version_like_any_other_where_it_is_switched_off() {
    let gateway = TestGateway::start_at("{ address: '127.0.0.1:0', http2: false }", ECHO);
    let mut client = gateway.client().await;
    assert_eq!(client.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.status(), 505);
}

#[tokio::test]
async fn a_session_is_resumed_whichever_worker_the_client_meets() {
    let authority = authority();
    let gateway = gateway(&authority);
    for version in [&TLS12, &TLS13] {
        let config = TlsClient { versions: vec![version], ..TlsClient::new(&authority) }.config();
        let mut kinds = Vec::new();
        for _ in 0..8 {
            let mut client = connect(&config, "api.example", gateway.address).await.unwrap();
            assert_eq!(get(&mut client, "/", "").await.status(), 200); // the ticket has come with it
            kinds.push(client.stream.get_ref().1.handshake_kind().unwrap());
        }
        assert_eq!(kinds.remove(0), HandshakeKind::Full);
        assert!(kinds.iter().all(|kind| *kind == HandshakeKind::Resumed), "{version:?} {kinds:?}");
    }
}

#[tokio::test]
async fn a_client_that_speaks_http_in_clear_is_told_and_counted() {
    let authority = authority();
    let gateway = gateway(&authority);
    let mut client = gateway.client().await;
    let answer = get(&mut client, "/", "").await;
    assert_eq!(answer.status(), 400);
    assert!(answer.text().contains("this port requires TLS"), "{}", answer.text());
    client.closed().await.unwrap();
    assert_eq!(gateway.counter("tidegate_rejected_total{cause=\"not_tls\"}").await, 1);
}

#[tokio::test]
async fn a_client_that_leaves_before_its_first_byte_is_not_counted_and_one_in_the_middle_is() {
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
async fn a_slow_handshake_is_ended_and_counted() {
    let authority = authority();
    let listen = listener(&authority, &["api"], "").replace("tls:", "header_timeout: 200ms, tls:");
    let gateway = TestGateway::start_at(&listen, ECHO);
    let mut client = gateway.client().await;
    client.send([22, 3, 1]).await;
    client.closed().await.unwrap();
    assert_eq!(gateway.counter("tidegate_rejected_total{cause=\"slow_handshake\"}").await, 1);
}

#[tokio::test]
async fn nothing_older_than_tls_1_2_is_spoken() {
    // A client's hello of TLS 1.1 with two suites that it could have.
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
