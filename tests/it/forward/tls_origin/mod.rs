//! TLS origins.

mod reload;

use parking_lot::Mutex;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;
use crate::support::tls::Authority;

/// Returns the settings of a server with this certificate. With `clients`, it requires client certificates of that
/// authority.
fn server(authority: &Authority, name: &str, protocols: &[&str], clients: Option<&Authority>) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(clients.path("ca.pem")).unwrap()).unwrap();
            let provider = Arc::new(ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let chain = vec![CertificateDer::from_pem_file(authority.path(&format!("{name}.pem"))).unwrap()];
    let key = PrivateKeyDer::from_pem_file(authority.path(&format!("{name}.key"))).unwrap();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    config
}

/// Returns the settings of a server with a new certificate for `host`.
fn server_for(authority: &Authority, host: &str, protocols: &[&str], clients: Option<&Authority>) -> ServerConfig {
    authority.sign("server", &[host]);
    server(authority, "server", protocols, clients)
}

/// A TLS origin that records handshakes.
#[derive(Clone)]
struct TlsOrigin {
    address: SocketAddr,
    handshakes: Arc<Mutex<Vec<Handshake>>>,
}

/// A recorded handshake.
struct Handshake {
    name: Option<String>,
    protocol: Option<Vec<u8>>,
    kind: Option<HandshakeKind>,
    has_client_certificate: bool,
}

impl TlsOrigin {
    async fn start<F>(config: ServerConfig, script: fn(TlsStream<TcpStream>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = Self { address: listener.local_addr().unwrap(), handshakes: Arc::default() };
        let (acceptor, handshakes) = (TlsAcceptor::from(Arc::new(config)), origin.handshakes.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, handshakes) = (acceptor.clone(), handshakes.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let state = stream.get_ref().1;
                    handshakes.lock().push(Handshake {
                        name: state.server_name().map(str::to_owned),
                        protocol: state.alpn_protocol().map(<[u8]>::to_vec),
                        kind: state.handshake_kind(),
                        has_client_certificate: state.peer_certificates().is_some(),
                    });
                    script(stream).await;
                });
            }
        });
        origin
    }

    fn connections(&self) -> usize {
        self.handshakes.lock().len()
    }

    /// Starts a gateway for this origin. `tls` and `protocol` are values of the rule file.
    fn gateway(&self, tls: &str, protocol: &str) -> Gateway {
        to(self.address, tls, protocol).start()
    }
}

/// Returns the settings of a gateway for a TLS origin.
fn to(address: SocketAddr, tls: &str, protocol: &str) -> Settings {
    let target = format!("https://localhost:{}", address.port());
    Settings::with_targets([target]).set("tls", tls).set("protocol", protocol)
}

/// Returns a value of `tls` that trusts this authority. `more` is appended to its keys.
fn trusting(authority: &Authority, more: &str) -> String {
    format!("{{ ca: '{}'{more} }}", authority.path("ca.pem"))
}

/// Reads the head of a request. Returns `false` at the end of the connection.
async fn head(stream: &mut TlsStream<TcpStream>) -> bool {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => bytes.push(byte),
            Err(_) => return false,
        }
    }
    true
}

/// Responds over the negotiated protocol.
async fn respond(mut stream: TlsStream<TcpStream>) {
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data(Bytes::from("h2"), true).unwrap();
        }
        return;
    }
    while head(&mut stream).await {
        stream.write_all(OK.as_bytes()).await.unwrap();
    }
}

/// Upgrades HTTP/1.1 requests, and responds to HTTP/2 requests.
async fn upgrade(mut stream: TlsStream<TcpStream>) {
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        return respond(stream).await;
    }
    assert!(head(&mut stream).await);
    stream.write_all(b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").await.unwrap();
    let (mut read, mut write) = tokio::io::split(stream);
    tokio::io::copy(&mut read, &mut write).await.ok();
}

async fn hello(gateway: &Gateway) -> (u16, String) {
    let response = gateway.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    let not_sent = response.field("x-not-sent").is_some();
    (response.status(), if not_sent { "not sent".to_owned() } else { response.text() })
}

#[tokio::test]
async fn protocol_is_negotiated_and_connections_are_reused() {
    let authority = Authority::new();
    let (both, one): (&[&str], &[&str]) = (&["h2", "http/1.1"], &["http/1.1"]);
    for (protocol, offered, text) in [
        ("auto", both, "h2"),
        ("auto", one, "ok"),
        ("auto", &[][..], "ok"),
        ("http1", both, "ok"),
        ("http1", &[][..], "ok"),
        ("http2", both, "h2"),
    ] {
        let origin = TlsOrigin::start(server_for(&authority, "localhost", offered, None), respond).await;
        let gateway = origin.gateway(&trusting(&authority, ""), protocol);
        for _ in 0..3 {
            assert_eq!(hello(&gateway).await, (200, text.to_owned()), "{protocol} {offered:?}");
        }
        assert_eq!(origin.connections(), 1, "{protocol} {offered:?}");
        let handshakes = origin.handshakes.lock();
        assert_eq!(handshakes[0].name.as_deref(), Some("localhost"));
        assert!(handshakes[0].protocol.as_deref().is_none_or(|protocol| (protocol == b"h2") == (text == "h2")));
    }
}

/// An HTTP/2 connection cannot be upgraded.
#[tokio::test]
async fn upgrade_uses_http1_with_an_http2_origin() {
    let authority = Authority::new();
    let origin = TlsOrigin::start(server_for(&authority, "localhost", &["h2", "http/1.1"], None), upgrade).await;
    let gateway = origin.gateway(&trusting(&authority, ""), "auto");
    for is_negotiated in [false, true] {
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").await;
        assert_eq!(client.head().await.unwrap().status(), 101, "{is_negotiated}");
        client.send("hello").await;
        assert_eq!(client.exactly(5).await.unwrap(), b"hello");
        assert_eq!(hello(&gateway).await, (200, "h2".to_owned()));
    }
    let handshakes = origin.handshakes.lock();
    let protocols: Vec<_> =
        handshakes.iter().map(|handshake| handshake.protocol.as_deref().unwrap_or_default()).collect();
    assert_eq!(protocols, [&b"http/1.1"[..], b"h2", b"http/1.1"]);
}

/// Regression test: the permits of such a request were returned, and the gateway negotiated the protocol again.
#[tokio::test]
async fn upgrade_that_the_target_cannot_serve_is_charged() {
    let authority = Authority::new();
    let origin = TlsOrigin::start(server_for(&authority, "localhost", &["h2"], None), respond).await;
    let gateway = origin.gateway(&trusting(&authority, ""), "auto");
    assert_eq!(hello(&gateway).await, (200, "h2".to_owned()));
    for _ in 0..2 {
        let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        let response = gateway.ask(upgrade).await;
        assert_eq!((response.status(), response.field("x-not-sent")), (502, None));
        assert_eq!(hello(&gateway).await, (200, "h2".to_owned()));
    }
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn untrusted_or_incompatible_origin_is_sent_nothing() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    authority.sign_expired("expired", &["localhost"]);
    authority.sign("other", &["other.example"]);
    authority.sign("valid", &["localhost"]);
    stranger.sign("valid", &["localhost"]);
    for (signer, certificate, offered, protocol) in [
        (&authority, "expired", "http/1.1", "http1"),
        (&authority, "other", "http/1.1", "auto"),
        (&stranger, "valid", "http/1.1", "http1"),
        (&stranger, "valid", "h2", "http2"),
        (&authority, "valid", "http/1.1", "http2"),
        (&authority, "valid", "h2", "http1"),
    ] {
        let origin = TlsOrigin::start(server(signer, certificate, &[offered], None), respond).await;
        let gateway = origin.gateway(&trusting(&authority, ""), protocol);
        assert_eq!(hello(&gateway).await, (502, "not sent".to_owned()));
    }
}

#[tokio::test]
async fn http2_needs_alpn_of_the_origin() {
    let authority = Authority::new();
    let origin = TlsOrigin::start(server_for(&authority, "localhost", &[], None), respond).await;
    let gateway = origin.gateway(&trusting(&authority, ""), "http2");
    assert_eq!(hello(&gateway).await, (502, "not sent".to_owned()));
}

#[tokio::test]
async fn origin_without_a_tls_handshake_is_sent_nothing() {
    let authority = Authority::new();
    let plain = Origin::start(|mut conn: OriginConnection| async move {
        conn.raw.send("HTTP/1.1 400 Bad Request\r\n\r\n").await;
        conn.raw.rest().await.ok();
    })
    .await;
    let silent = Origin::start(|mut conn: OriginConnection| async move {
        conn.raw.rest().await.ok();
    })
    .await;
    for (origin, protocol) in [(&plain, "auto"), (&plain, "http2"), (&silent, "http1"), (&silent, "auto")] {
        let settings = to(origin.address, &trusting(&authority, ""), protocol);
        let gateway = settings.timeout("connect", "300ms").start();
        assert_eq!(hello(&gateway).await, (502, "not sent".to_owned()));
    }
}

#[tokio::test]
async fn configured_server_name_is_sent_and_verified() {
    let authority = Authority::new();
    let origin = TlsOrigin::start(server_for(&authority, "api.internal", &["h2"], None), respond).await;
    let gateway = origin.gateway(&trusting(&authority, ", server_name: api.internal"), "auto");
    assert_eq!(hello(&gateway).await, (200, "h2".to_owned()));
    assert_eq!(origin.handshakes.lock()[0].name.as_deref(), Some("api.internal"));
}

#[tokio::test]
async fn any_certificate_is_accepted_only_without_verification() {
    let stranger = Authority::new();
    let origin = TlsOrigin::start(server_for(&stranger, "other.example", &[], None), respond).await;
    let gateway = origin.gateway("{}", "auto");
    assert_eq!(hello(&gateway).await, (502, "not sent".to_owned()));
    let gateway = origin.gateway("{ verify: false }", "auto");
    assert_eq!(hello(&gateway).await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn client_certificate_is_presented() {
    let authority = Authority::new();
    authority.sign("gateway", &["gateway"]);
    let (cert, key) = (authority.path("gateway.pem"), authority.path("gateway.key"));
    for protocol in ["http1", "http2"] {
        let config = server_for(&authority, "localhost", &["h2", "http/1.1"], Some(&authority));
        let origin = TlsOrigin::start(config, respond).await;
        let tls = trusting(&authority, &format!(", cert: '{cert}', key: '{key}'"));
        let gateway = origin.gateway(&tls, protocol);
        assert_eq!(hello(&gateway).await.0, 200);
        assert!(origin.handshakes.lock()[0].has_client_certificate);
        let gateway = origin.gateway(&trusting(&authority, ""), protocol);
        assert_eq!(hello(&gateway).await.0, 502);
    }
}

/// Responds once on each connection.
async fn respond_once(mut stream: TlsStream<TcpStream>) {
    if head(&mut stream).await {
        stream.write_all(OK.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.ok();
    }
}

#[tokio::test]
async fn closed_connection_is_replaced_and_resumes_the_session() {
    let authority = Authority::new();
    let origin = TlsOrigin::start(server_for(&authority, "localhost", &[], None), respond_once).await;
    let gateway = origin.gateway(&trusting(&authority, ""), "http1");
    for _ in 0..5 {
        assert_eq!(hello(&gateway).await, (200, "ok".to_owned()));
    }
    assert_eq!(origin.connections(), 5);
    let handshakes = origin.handshakes.lock();
    let resumed = handshakes.iter().filter(|handshake| handshake.kind == Some(HandshakeKind::Resumed)).count();
    assert_eq!(resumed, 4);
}

/// Responds with a body that ends with the connection, and closes the TCP connection without `close_notify`.
async fn respond_truncated(mut stream: TlsStream<TcpStream>) {
    if head(&mut stream).await {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf").await.unwrap();
        stream.flush().await.unwrap();
        stream.get_mut().0.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn response_without_close_notify_is_broken_off() {
    let authority = Authority::new();
    let origin = TlsOrigin::start(server_for(&authority, "localhost", &[], None), respond_truncated).await;
    let gateway = origin.gateway(&trusting(&authority, ""), "http1");
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    // A reset may overtake the response. If the client has received none of it, it gets a 502.
    let Some(head) = client.head().await.ok().filter(|head| head.status() != 502) else { return };
    assert_eq!(head.status(), 200);
    while let Ok(piece) = client.chunk().await {
        assert_eq!(piece, b"half", "the body must not end");
    }
}
