//! Clients that show a certificate, and limits that know them by it.

use crate::support::gateway::{TestGateway, get};
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::TlsClient;

/// A gateway that knows clients of this authority by `client`, of which each has two permits.
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

/// The status of a request of this client on a connection of its own.
async fn status(
    authority: &Authority,
    gateway: &TestGateway,
    certificate: Option<&'static str>,
) -> std::io::Result<u16> {
    let client = TlsClient { certificate, ..TlsClient::new(authority) };
    let mut connection = client.connect(gateway.address).await?;
    // In TLS 1.3 a client that is turned away has taken the handshake for done.
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    connection.try_message(false, true).await.map(|answer| answer.status())
}

#[tokio::test]
async fn a_limit_knows_clients_by_the_names_in_their_certificates() {
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
async fn a_resumed_session_is_the_same_client() {
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
async fn a_client_without_a_certificate_is_turned_away_where_one_is_required() {
    let authority = authority();
    let gateway = start(&authority, "tls:subject", "");
    let error = status(&authority, &gateway, None).await.unwrap_err().to_string();
    assert!(error.contains("CertificateRequired"), "{error}");
    assert_eq!(gateway.counter("tidegate_rejected_total{cause=\"bad_handshake\"}").await, 1);
}

#[tokio::test]
async fn a_client_of_another_authority_is_turned_away() {
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
async fn where_a_certificate_may_be_shown_one_who_shows_none_has_no_name() {
    let authority = authority();
    let gateway = start(&authority, "tls:subject", ", required: false");
    assert_eq!(status(&authority, &gateway, Some("alice")).await.unwrap(), 200);
    assert_eq!(status(&authority, &gateway, None).await.unwrap(), 400);
}
