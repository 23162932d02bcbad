//! Certificates that are not valid any more: expired ones of the gateway, and revoked ones of clients.

use std::sync::Arc;
use std::time::Duration;

use rcgen::date_time_ymd;
use rustls::ClientConfig;
use rustls::client::Resumption;
use tidegate::internals::ConfigInternals;
use tidegate::{Gateway, ListenAddress};

use crate::support::gateway::{TestGateway, get};
use crate::support::process::{RuleFile, tidegate};
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::{TlsClient, connect};
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

const ECHO: &str = "store: memory
upstreams: { echo: { targets: [builtin:echo] } }
routes: [{ name: all, match: { path: /** }, upstream: echo }]";

/// Creates an authority with a certificate of the gateway, and certificates of two clients with the serial numbers 7 and 8.
fn authority() -> Authority {
    let authority = Authority::new();
    authority.sign("api", &["api.example"]);
    for (name, serial) in [("alice", 7_u64), ("bob", 8)] {
        authority.sign_with(name, &[name], |params| params.serial_number = Some(serial.into()));
    }
    authority
}

/// Sends a request with this client certificate on a new connection. Returns the status, or the error of the handshake.
async fn status(authority: &Authority, gateway: &Gateway, certificate: &'static str) -> Result<u16, String> {
    let resumption = Resumption::disabled();
    let client = TlsClient { certificate: Some(certificate), resumption, ..TlsClient::new(authority) };
    ask(&client.config(), gateway).await
}

async fn ask(config: &Arc<ClientConfig>, gateway: &Gateway) -> Result<u16, String> {
    let address = gateway.addresses()[0].tcp().expect("a port");
    let mut connection = connect(config, "api.example", address).await.map_err(|error| error.to_string())?;
    // In TLS 1.3, a rejected client gets the alert only after its handshake.
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    connection.try_message(false, true).await.map(|response| response.status()).map_err(|error| error.to_string())
}

/// Starts a gateway with the revocation lists in `clients.crl`, which checks its files every 5 ms.
fn start(authority: &Authority) -> Gateway {
    let auth =
        format!(", client_auth: {{ ca: '{}', crl: '{}' }}", authority.path("ca.pem"), authority.path("clients.crl"));
    let text = format!("listen: {}\nadmin: 127.0.0.1:0\n{ECHO}", listener(authority, &["api"], &auth));
    let mut config = Gateway::parse_config(&text).unwrap_or_else(|problems| panic!("{problems}"));
    config.set_certificate_check_interval(Duration::from_millis(5));
    Gateway::start(config, 1).expect("a gateway")
}

async fn drain(gateway: Gateway) {
    tokio::task::spawn_blocking(|| gateway.drain(Duration::from_millis(10))).await.expect("joined").expect("drained");
}

async fn metrics(gateway: &Gateway) -> String {
    let admin = gateway.admin_address().and_then(ListenAddress::tcp).expect("a port");
    get(&mut Raw::connect(admin).await, "/metrics", "").await.text()
}

/// Regression test: a gateway with an expired certificate did not start, and a reload of its rules failed.
#[tokio::test]
async fn expired_certificate_warns_and_is_served() {
    let authority = Authority::new();
    authority.sign_expired("api", &["api.example"]);
    authority.sign("web", &["web.example"]);
    let gateway = TestGateway::start_at(&listener(&authority, &["api", "web"], ""), ECHO);
    let client = TlsClient { server_name: "web.example", ..TlsClient::new(&authority) };
    let mut connection = client.connect(gateway.address).await.expect("a handshake");
    assert_eq!(get(&mut connection, "/", "").await.status(), 200, "other certificates are served");
    let error = TlsClient::new(&authority).connect(gateway.address).await.expect_err("an expired certificate");
    assert!(error.to_string().to_lowercase().contains("expired"), "the client rejects the certificate: {error}");
    let series = format!("tidegate_certificate_expiry_seconds{{certificate=\"{}\"}}", authority.path("api.pem"));
    assert_eq!(gateway.counter(&series).await, 1_009_843_200);

    gateway.reload(&ECHO.replace("name: all", "name: changed"));
    let file = RuleFile::new("expired", &format!("listen: {}\n{ECHO}", listener(&authority, &["api"], "")));
    let checked = tidegate(&["check", file.path()]).output().expect("tidegate runs");
    let out = String::from_utf8_lossy(&checked.stdout);
    let message = "has expired on 2002-01-01T00:00:00Z, so clients reject it";
    assert!(checked.status.success() && out.contains("warning: the certificate in") && out.contains(message), "{out}");
}

#[tokio::test]
async fn certificate_of_the_future_warns() {
    let authority = Authority::new();
    authority.sign_with("api", &["api.example"], |params| {
        (params.not_before, params.not_after) = (date_time_ymd(2901, 1, 1), date_time_ymd(2902, 1, 1));
    });
    let text = format!("listen: {}\n{ECHO}", listener(&authority, &["api"], ""));
    let config = Gateway::parse_config(&text).unwrap_or_else(|problems| panic!("{problems}"));
    let warnings: Vec<_> = config.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("is not valid before 2901-01-01T00:00:00Z, so clients reject it"), "{warnings:?}");
}

#[tokio::test]
async fn revoked_client_certificate_is_rejected() {
    let authority = authority();
    authority.revoke("clients.crl", &[7], 2900);
    let gateway = start(&authority);
    let error = status(&authority, &gateway, "alice").await.expect_err("a revoked certificate");
    assert!(error.contains("CertificateRevoked"), "{error}");
    assert_eq!(status(&authority, &gateway, "bob").await, Ok(200));
    let series = format!("tidegate_crl_expiry_seconds{{crl=\"{}\"}} 29348006400", authority.path("clients.crl"));
    let metrics = metrics(&gateway).await;
    assert!(metrics.contains(&series), "{metrics}");
    drain(gateway).await;
}

/// A session from before the change is not resumed either.
#[tokio::test]
async fn changed_revocation_list_is_reloaded() {
    let authority = authority();
    authority.revoke("clients.crl", &[], 2900);
    let gateway = start(&authority);
    let config = TlsClient { certificate: Some("alice"), ..TlsClient::new(&authority) }.config();
    assert_eq!(ask(&config, &gateway).await, Ok(200));
    authority.write("clients.crl", "no revocation list");
    assert_eq!(status(&authority, &gateway, "bob").await, Ok(200), "the previous list stays in use");
    authority.revoke("clients.crl", &[7], 2900);
    soon(async { while ask(&config, &gateway).await.is_ok() {} }).await;
    assert_eq!(status(&authority, &gateway, "bob").await, Ok(200));
    drain(gateway).await;
}

#[tokio::test]
async fn expired_revocation_list_stays_in_use() {
    let authority = authority();
    authority.revoke("clients.crl", &[7], 2002);
    let gateway = start(&authority);
    assert!(status(&authority, &gateway, "alice").await.is_err());
    assert_eq!(status(&authority, &gateway, "bob").await, Ok(200));
    drain(gateway).await;
}

#[tokio::test]
async fn client_without_a_list_of_its_issuer_is_rejected() {
    let (authority, other) = (authority(), Authority::new());
    other.revoke("clients.crl", &[], 2900);
    let list = std::fs::read_to_string(other.path("clients.crl")).expect("a list");
    authority.write("clients.crl", &list);
    let gateway = start(&authority);
    assert!(status(&authority, &gateway, "bob").await.is_err());
    drain(gateway).await;
}
