//! Origins of TLS.

mod renewed;

use std::path::PathBuf;

use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;
use crate::upstream::settings::TlsIdentity;

const SHORT: Duration = Duration::from_millis(300);

/// An authority, and a folder for its files; gone with its owner.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

/// A certificate and its key.
struct Certificate(rcgen::Certificate, KeyPair);

impl Authority {
    fn new() -> Self {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tidegate-to-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, format!("authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { issuer, folder };
        authority.write("ca.pem", &authority.issuer.pem());
        authority
    }

    fn write(&self, file: &str, text: &str) -> PathBuf {
        let path = self.folder.join(file);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn sign(&self, host: &str) -> Certificate {
        self.sign_params(&CertificateParams::new(vec![host.to_owned()]).unwrap())
    }

    fn sign_params(&self, params: &CertificateParams) -> Certificate {
        let key = KeyPair::generate().unwrap();
        Certificate(params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// What a gateway is told that trusts this authority.
    fn trusted(&self) -> UpstreamTls {
        UpstreamTls { ca: Some(self.folder.join("ca.pem")), ..UpstreamTls::default() }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        roots
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

impl Certificate {
    /// A server that shows it, and asks clients for one of this authority.
    fn server(&self, protocols: &[&str], clients: Option<&Authority>) -> ServerConfig {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            Some(authority) => {
                let provider = Arc::new(ring::default_provider());
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authority.roots()), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
            None => builder.with_no_client_auth(),
        };
        let chain = vec![CertificateDer::from(self.0.der().to_vec())];
        let key = PrivateKeyDer::try_from(self.1.serialize_der()).unwrap();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        config
    }
}

/// What an origin of TLS saw.
#[derive(Clone)]
struct Secure {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Handshake>>>,
}

/// One handshake, and how many requests came after it.
struct Handshake {
    name: Option<String>,
    protocol: Option<Vec<u8>>,
    kind: Option<HandshakeKind>,
    has_client: bool,
}

impl Secure {
    async fn start<F>(config: ServerConfig, script: fn(TlsStream<TcpStream>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let (acceptor, seen) = (TlsAcceptor::from(Arc::new(config)), origin.seen.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen) = (acceptor.clone(), seen.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let state = stream.get_ref().1;
                    seen.lock().push(Handshake {
                        name: state.server_name().map(str::to_owned),
                        protocol: state.alpn_protocol().map(<[u8]>::to_vec),
                        kind: state.handshake_kind(),
                        has_client: state.peer_certificates().is_some(),
                    });
                    script(stream).await;
                });
            }
        });
        origin
    }

    fn connections(&self) -> usize {
        self.seen.lock().len()
    }

    /// A gateway that is told this.
    fn gateway(&self, tls: UpstreamTls, protocol: Protocol) -> Gateway {
        secure(self.address, tls, protocol).start()
    }
}

fn secure(address: SocketAddr, tls: UpstreamTls, protocol: Protocol) -> Settings {
    let target = Target::Https(http::uri::Authority::try_from(format!("localhost:{}", address.port())).unwrap());
    Settings { spoken: Some((protocol, tls)), ..Settings::targets(vec![target]) }
}

/// Reads a head; false at the end.
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

/// Answers in HTTP/1, or in HTTP/2 if that was chosen.
async fn answer(mut stream: TlsStream<TcpStream>) {
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let mut to = respond.send_response(Response::new(()), false).unwrap();
            to.send_data(Bytes::from("h2"), true).unwrap();
        }
        return;
    }
    while head(&mut stream).await {
        stream.write_all(OK.as_bytes()).await.unwrap();
    }
}

/// Switches whoever speaks HTTP/1, and answers others in HTTP/2.
async fn switch(mut stream: TlsStream<TcpStream>) {
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        return answer(stream).await;
    }
    assert!(head(&mut stream).await);
    stream.write_all(b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").await.unwrap();
    let (mut read, mut write) = tokio::io::split(stream);
    tokio::io::copy(&mut read, &mut write).await.ok();
}

async fn hello(gateway: &Gateway) -> (u16, String) {
    let answer = gateway.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    let not_sent = answer.field("x-not-sent").is_some();
    (answer.status(), if not_sent { "not sent".to_owned() } else { answer.text() })
}

#[tokio::test]
async fn what_is_spoken_is_what_was_asked_for_or_what_the_origin_chooses_and_connections_are_kept() {
    let authority = Authority::new();
    let (both, one): (&[&str], &[&str]) = (&["h2", "http/1.1"], &["http/1.1"]);
    for (protocol, offered, text) in [
        (Protocol::Auto, both, "h2"),
        (Protocol::Auto, one, "ok"),
        (Protocol::Auto, &[][..], "ok"),
        (Protocol::Http1, both, "ok"),
        (Protocol::Http1, &[][..], "ok"),
        (Protocol::Http2, both, "h2"),
    ] {
        let origin = Secure::start(authority.sign("localhost").server(offered, None), answer).await;
        let gateway = origin.gateway(authority.trusted(), protocol);
        for _ in 0..3 {
            assert_eq!(hello(&gateway).await, (200, text.to_owned()), "{protocol:?} {offered:?}");
        }
        assert_eq!(origin.connections(), 1, "{protocol:?} {offered:?}");
        let seen = origin.seen.lock();
        assert_eq!(seen[0].name.as_deref(), Some("localhost"));
        assert!(seen[0].protocol.as_deref().is_none_or(|spoken| (spoken == b"h2") == (text == "h2")));
    }
}

/// A connection of HTTP/2 cannot be switched.
#[tokio::test]
async fn an_origin_that_chooses_http2_is_offered_another_protocol_over_http1_and_asked_on_over_http2() {
    let authority = Authority::new();
    let origin = Secure::start(authority.sign("localhost").server(&["h2", "http/1.1"], None), switch).await;
    let gateway = origin.gateway(authority.trusted(), Protocol::Auto);
    for knows in [false, true] {
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").await;
        assert_eq!(client.head().await.unwrap().status(), 101, "{knows}");
        client.send("hello").await;
        assert_eq!(client.exactly(5).await.unwrap(), b"hello");
        assert_eq!(hello(&gateway).await, (200, "h2".to_owned()));
    }
    let seen = origin.seen.lock();
    let spoken: Vec<_> = seen.iter().map(|seen| seen.protocol.as_deref().unwrap_or_default()).collect();
    assert_eq!(spoken, [&b"http/1.1"[..], b"h2", b"http/1.1"]);
}

/// Regression test: such a request had its permits back, and the gateway asked again which protocol the target serves.
#[tokio::test]
async fn upgrade_that_the_target_cannot_serve_is_charged() {
    let authority = Authority::new();
    let origin = Secure::start(authority.sign("localhost").server(&["h2"], None), answer).await;
    let gateway = origin.gateway(authority.trusted(), Protocol::Auto);
    assert_eq!(hello(&gateway).await, (200, "h2".to_owned()));
    for _ in 0..2 {
        let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        let answer = gateway.ask(upgrade).await;
        assert_eq!((answer.status(), answer.field("x-not-sent")), (502, None));
        assert_eq!(hello(&gateway).await, (200, "h2".to_owned()));
    }
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn an_origin_that_cannot_be_trusted_or_understood_is_sent_nothing() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let mut expired = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (expired.not_before, expired.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    for (certificate, offered, protocol) in [
        (authority.sign_params(&expired), &["http/1.1"], Protocol::Http1),
        (authority.sign("other.example"), &["http/1.1"], Protocol::Auto),
        (stranger.sign("localhost"), &["http/1.1"], Protocol::Http1),
        (stranger.sign("localhost"), &["h2"], Protocol::Http2),
        (authority.sign("localhost"), &["http/1.1"], Protocol::Http2),
        (authority.sign("localhost"), &["h2"], Protocol::Http1),
    ] {
        let origin = Secure::start(certificate.server(offered, None), answer).await;
        let gateway = origin.gateway(authority.trusted(), protocol);
        assert_eq!(hello(&gateway).await, (502, "not sent".to_owned()));
    }
}

#[tokio::test]
async fn http2_is_not_spoken_with_an_origin_that_has_no_word_for_it() {
    let authority = Authority::new();
    let origin = Secure::start(authority.sign("localhost").server(&[], None), answer).await;
    let gateway = origin.gateway(authority.trusted(), Protocol::Http2);
    assert_eq!(hello(&gateway).await, (502, "not sent".to_owned()));
}

#[tokio::test]
async fn what_is_not_tls_or_says_nothing_is_sent_nothing_and_not_waited_for_long() {
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
    for (origin, protocol) in
        [(&plain, Protocol::Auto), (&plain, Protocol::Http2), (&silent, Protocol::Http1), (&silent, Protocol::Auto)]
    {
        let settings = secure(origin.address, authority.trusted(), protocol);
        let gateway = Settings { adjust: |upstream| upstream.connect_timeout = SHORT, ..settings }.start();
        assert_eq!(hello(&gateway).await, (502, "not sent".to_owned()));
    }
}

#[tokio::test]
async fn a_name_of_the_rule_file_is_what_is_asked_for_and_verified() {
    let authority = Authority::new();
    let origin = Secure::start(authority.sign("api.internal").server(&["h2"], None), answer).await;
    let tls = UpstreamTls { server_name: Some("api.internal".to_owned()), ..authority.trusted() };
    let gateway = origin.gateway(tls, Protocol::Auto);
    assert_eq!(hello(&gateway).await, (200, "h2".to_owned()));
    assert_eq!(origin.seen.lock()[0].name.as_deref(), Some("api.internal"));
}

#[tokio::test]
async fn anybody_is_believed_only_where_that_is_written() {
    let stranger = Authority::new();
    let origin = Secure::start(stranger.sign("other.example").server(&[], None), answer).await;
    let gateway = origin.gateway(UpstreamTls::default(), Protocol::Auto);
    assert_eq!(hello(&gateway).await, (502, "not sent".to_owned()));
    let gateway = origin.gateway(UpstreamTls { verify: false, ..UpstreamTls::default() }, Protocol::Auto);
    assert_eq!(hello(&gateway).await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn a_certificate_is_shown_to_an_origin_that_asks_for_one() {
    let authority = Authority::new();
    let certificate = authority.sign("gateway");
    let cert = authority.write("me.pem", &certificate.0.pem());
    let key = authority.write("me.key", &certificate.1.serialize_pem());
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let config = authority.sign("localhost").server(&["h2", "http/1.1"], Some(&authority));
        let origin = Secure::start(config, answer).await;
        let identity = Some(TlsIdentity { cert: cert.clone(), key: key.clone() });
        let gateway = origin.gateway(UpstreamTls { identity, ..authority.trusted() }, protocol);
        assert_eq!(hello(&gateway).await.0, 200);
        assert!(origin.seen.lock()[0].has_client);
        let gateway = origin.gateway(authority.trusted(), protocol);
        assert_eq!(hello(&gateway).await.0, 502);
    }
}

/// Answers once on each connection.
async fn once(mut stream: TlsStream<TcpStream>) {
    if head(&mut stream).await {
        stream.write_all(OK.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.ok();
    }
}

#[tokio::test]
async fn a_connection_that_its_origin_has_ended_is_not_used_and_the_next_resumes_its_session() {
    let authority = Authority::new();
    let origin = Secure::start(authority.sign("localhost").server(&[], None), once).await;
    let gateway = origin.gateway(authority.trusted(), Protocol::Http1);
    for _ in 0..5 {
        assert_eq!(hello(&gateway).await, (200, "ok".to_owned()));
    }
    assert_eq!(origin.connections(), 5);
    let seen = origin.seen.lock();
    let resumed = seen.iter().filter(|seen| seen.kind == Some(HandshakeKind::Resumed)).count();
    assert_eq!(resumed, 4);
}

/// Answers with a body that ends with the connection, and ends it in clear.
async fn truncated(mut stream: TlsStream<TcpStream>) {
    if head(&mut stream).await {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf").await.unwrap();
        stream.flush().await.unwrap();
        stream.get_mut().0.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn an_answer_whose_end_was_not_told_by_tls_is_cut_off() {
    let authority = Authority::new();
    let origin = Secure::start(authority.sign("localhost").server(&[], None), truncated).await;
    let gateway = origin.gateway(authority.trusted(), Protocol::Http1);
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    // The reset that says so may overtake what came before it.
    let Ok(head) = client.head().await else { return };
    assert_eq!(head.status(), 200);
    while let Ok(piece) = client.chunk().await {
        assert_eq!(piece, b"half", "no end");
    }
}
