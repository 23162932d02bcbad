//! TLS sessions of clients with certificates, and the limit of handshakes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use crate::support::gateway::TestGateway;
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::{TlsClient, connect};
use crate::support::wire::soon;

const ECHO: &str = "store: memory
upstreams: { echo: { targets: [builtin:echo] } }
routes: [{ name: all, match: { path: /** }, upstream: echo }]";

fn authority() -> Authority {
    let authority = Authority::new();
    authority.sign("api", &["api.example"]);
    authority
}

/// Connects and sends a request. Returns the kind of the handshake.
async fn ask(config: &Arc<ClientConfig>, address: SocketAddr) -> io::Result<HandshakeKind> {
    let mut client = connect(config, "api.example", address).await?;
    client.stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
    assert_eq!(soon(client.try_message(false, true)).await?.status(), 200);
    Ok(client.stream.get_ref().1.handshake_kind().expect("a handshake"))
}

/// Regression test: a session was resumed up to 12 h after the certificate had expired.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a certificate expires by the wall clock")]
async fn session_ends_with_the_client_certificate() {
    let authority = authority();
    let expiry = SystemTime::now() + Duration::from_secs(5);
    authority.sign_with("client", &["client.example"], |params| params.not_after = expiry.into());
    let auth = format!(", client_auth: {{ ca: '{}' }}", authority.path("ca.pem"));
    let gateway = TestGateway::start_at(&listener(&authority, &["api"], &auth), ECHO);
    let configs = [&TLS12, &TLS13].map(|version| {
        let client = TlsClient::new(&authority);
        TlsClient { versions: vec![version], certificate: Some("client"), ..client }.config()
    });
    for config in &configs {
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
            assert_eq!(ask(config, gateway.address).await.expect("a response"), expected);
        }
    }
    for config in &configs {
        let error = soon(async {
            loop {
                match ask(config, gateway.address).await {
                    Ok(kind) => assert_eq!(kind, HandshakeKind::Resumed),
                    Err(error) => return error.to_string(),
                }
            }
        });
        // The error proves that the gateway has verified the certificate again.
        let error = error.await;
        assert!(error.contains("CertificateExpired"), "{error}");
    }
}

/// Connects from this address of loopback, sends these bytes, and begins TLS.
async fn handshake(config: &Arc<ClientConfig>, source: &str, first: &str, address: SocketAddr) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(source.parse().expect("an address"), 0))?;
    let mut stream: TcpStream = soon(socket.connect(address)).await?;
    stream.write_all(first.as_bytes()).await?;
    let name = ServerName::try_from("api.example").expect("a name");
    soon(TlsConnector::from(Arc::clone(config)).connect(name, stream)).await.map(drop)
}

/// Begins sessions until one is rejected, at a rate of one a second.
async fn assert_limited(begin_session: impl AsyncFn() -> io::Result<()>) {
    let (begin, mut count) = (tokio::time::Instant::now(), 0);
    while count < 500 && begin_session().await.is_ok() {
        count += 1;
    }
    let allowed = 10 + begin.elapsed().as_secs();
    assert!((10..=allowed).contains(&count), "{count} of {allowed}");
}

const REJECTED: &str = "tidegate_rejected_total{cause=\"handshake_rate\"}";

#[tokio::test]
async fn handshake_rate_is_limited_for_each_address() {
    let authority = authority();
    let gateway = TestGateway::start_at(&listener(&authority, &["api"], ", max_handshake_rate: 1"), ECHO);
    let config = TlsClient::new(&authority).config();
    assert_limited(async || handshake(&config, "127.0.0.1", "", gateway.address).await).await;
    assert_eq!(gateway.counter(REJECTED).await, 1);
    handshake(&config, "127.0.0.2", "", gateway.address).await.expect("another client");
}

#[tokio::test]
async fn handshake_rate_counts_clients_behind_proxies() {
    let authority = authority();
    let listen = listener(&authority, &["api"], ", max_handshake_rate: 1");
    let listen = listen.replace("tls:", "proxy_protocol: true, tls:");
    let rules = format!("clients: {{ trusted_proxies: [127.0.0.0/8] }}\n{ECHO}");
    let gateway = TestGateway::start_at(&listen, &rules);
    let config = TlsClient::new(&authority).config();
    let of_client = async |client: &str| {
        let header = format!("PROXY TCP4 {client} 10.0.0.1 1 1\r\n");
        handshake(&config, "127.0.0.1", &header, gateway.address).await
    };
    assert_limited(async || of_client("192.0.2.1").await).await;
    of_client("192.0.2.2").await.expect("another client");
    // Health checks of the load balancer.
    for _ in 0..30 {
        handshake(&config, "127.0.0.1", "PROXY UNKNOWN\r\n", gateway.address).await.expect("a proxy");
    }
}

#[tokio::test]
async fn handshakes_of_trusted_proxies_are_not_limited() {
    let authority = authority();
    let rules = format!("clients: {{ trusted_proxies: [127.0.0.0/8] }}\n{ECHO}");
    let gateway = TestGateway::start_at(&listener(&authority, &["api"], ", max_handshake_rate: 1"), &rules);
    let config = TlsClient::new(&authority).config();
    for _ in 0..30 {
        handshake(&config, "127.0.0.1", "", gateway.address).await.expect("a proxy");
    }
    assert_eq!(gateway.counter(REJECTED).await, 0);
}
