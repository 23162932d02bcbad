//! Client certificates, and limits that identify clients by them.

use crate::support::gateway::{TestGateway, get};
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::TlsClient;

/// Starts a gateway that accepts clients of this authority. Each `client` has two permits.
fn start(authority: &Authority, client: &str, more: &str) -> TestGateway {
    let auth = format!(", client_auth: {{ ca: '{}'{more} }}", authority.path("ca.pem"));
    let rules = format!(
        "store: memory
upstreams: {{ echo: {{ targets: [builtin:echo] }} }}
routes:
  - name: all
    match: {{ path: /** }}
    upstream: echo
    limits: [{{ name: l, mode: PER_CLIENT, client: '{client}', rate: 2, interval: 1h }}]"
    );
    TestGateway::start_at(&listener(authority, &["api"], &auth), &rules)
}

fn authority() -> Authority {
    let authority = Authority::new();
    for (name, hosts) in [("api", ["api.example"]), ("alice", ["alice.example"]), ("bob", ["bob.example"])] {
        authority.sign(name, &hosts);
    }
    authority
}

/// Sends a request with this client certificate on a new connection. Returns the status.
async fn status(
    authority: &Authority,
    gateway: &TestGateway,
    certificate: Option<&'static str>,
) -> std::io::Result<u16> {
    let client = TlsClient { certificate, ..TlsClient::new(authority) };
    let mut connection = client.connect(gateway.address).await?;
    // In TLS 1.3 a rejected client learns of the rejection only after its handshake.
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    connection.try_message(false, true).await.map(|response| response.status())
}

#[tokio::test]
async fn limit_counts_clients_by_certificate_names() {
    let authority = authority();
    for client in ["tls:subject", "tls:san"] {
        let gateway = start(&authority, client, "");
        for (certificate, expected) in
            [("alice", 200), ("alice", 200), ("alice", 429), ("bob", 200), ("bob", 200), ("bob", 429)]
        {
            assert_eq!(status(&authority, &gateway, Some(certificate)).await.unwrap(), expected, "{client}");
        }
    }
}

#[tokio::test]
async fn resumed_session_keeps_the_client() {
    let authority = authority();
    let gateway = start(&authority, "tls:subject", "");
    let config = TlsClient { certificate: Some("alice"), ..TlsClient::new(&authority) }.config();
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let mut connection =
            crate::support::tls_client::connect(&config, "api.example", gateway.address).await.unwrap();
        statuses.push(get(&mut connection, "/", "").await.status());
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn missing_required_certificate_fails_the_handshake() {
    let authority = authority();
    let gateway = start(&authority, "tls:subject", "");
    let error = status(&authority, &gateway, None).await.unwrap_err().to_string();
    assert!(error.contains("CertificateRequired"), "{error}");
    // The gateway sends the alert before it counts the handshake.
    while gateway.counter("tidegate_rejected_total{cause=\"bad_handshake\"}").await != 1 {}
}

#[tokio::test]
async fn certificate_of_another_authority_is_rejected() {
    let (authority, other) = (authority(), Authority::new());
    other.sign("mallory", &["alice.example"]);
    for kind in ["pem", "key"] {
        let stolen = std::fs::read_to_string(other.path(&format!("mallory.{kind}"))).unwrap();
        authority.write(&format!("mallory.{kind}"), &stolen);
    }
    for more in ["", ", required: false"] {
        let gateway = start(&authority, "tls:san", more);
        let error = status(&authority, &gateway, Some("mallory")).await.unwrap_err().to_string();
        assert!(error.contains("UnknownCA"), "{error}");
    }
}

#[tokio::test]
async fn missing_optional_certificate_is_a_missing_client() {
    let authority = authority();
    let gateway = start(&authority, "tls:subject", ", required: false");
    assert_eq!(status(&authority, &gateway, Some("alice")).await.unwrap(), 200);
    assert_eq!(status(&authority, &gateway, None).await.unwrap(), 400);
}
