//! Certificates that are replaced under load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tidegate::internals::ConfigInternals;
use tidegate::{Gateway, ListenAddress};

use crate::support::gateway::get;
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::{TlsClient, connect};
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

/// The number of replacements.
const SWAPS: usize = 50;

/// An upstream that needs no server.
const ECHO: &str = "targets: ['builtin:echo']";

/// Starts a gateway with this listener and upstream that checks its files every 5 ms.
fn start(listen: &str, upstream: &str) -> Gateway {
    start_with_interval(Duration::from_millis(5), listen, upstream)
}

/// Starts a gateway that checks its files at this interval.
fn start_with_interval(interval: Duration, listen: &str, upstream: &str) -> Gateway {
    let text = format!(
        "listen: {listen}
admin: 127.0.0.1:0
store: memory
upstreams: {{ api: {{ {upstream} }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: api }}]"
    );
    let mut config = Gateway::parse_config(&text).unwrap_or_else(|problems| panic!("{problems}"));
    config.set_certificate_check_interval(interval);
    Gateway::start(config, 2).unwrap()
}

fn port(gateway: &Gateway) -> SocketAddr {
    gateway.addresses()[0].tcp().expect("a port")
}

async fn drain(gateway: Gateway) {
    tokio::task::spawn_blocking(|| gateway.drain(Duration::from_millis(10))).await.unwrap().unwrap();
}

/// Waits until the gateway presents the certificate in the file.
async fn wait_until_presented(authority: &Authority, client: &Arc<ClientConfig>, address: SocketAddr) {
    let new = CertificateDer::from_pem_file(authority.path("api.pem")).unwrap();
    soon(async {
        loop {
            let connection = connect(client, "api.example", address).await.expect("a handshake");
            if connection.stream.get_ref().1.peer_certificates().unwrap()[0] == new {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn certificate_reloads_fail_no_request() {
    let authority = Authority::new();
    authority.sign("api", &["api.example"]);
    let gateway = start(&listener(&authority, &["api"], ""), ECHO);
    let address = port(&gateway);
    let client = TlsClient { resumption: Resumption::disabled(), ..TlsClient::new(&authority) }.config();
    let (stop, handshakes, requests) = (Arc::new(AtomicBool::new(false)), Arc::default(), Arc::default());
    let mut load = tokio::task::JoinSet::new();
    // Half of the clients keep their connection, the others open one for every two requests.
    for number in 0..8 {
        let (client, stop) = (client.clone(), Arc::clone(&stop));
        let (handshakes, requests): (Arc<AtomicUsize>, Arc<AtomicUsize>) =
            (Arc::clone(&handshakes), Arc::clone(&requests));
        load.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let mut connection = connect(&client, "api.example", address).await.expect("a handshake");
                handshakes.fetch_add(1, Ordering::SeqCst);
                while !stop.load(Ordering::SeqCst) {
                    for _ in 0..2 {
                        assert_eq!(get(&mut connection, "/", "").await.status(), 200);
                        requests.fetch_add(1, Ordering::SeqCst);
                    }
                    if number % 2 == 0 {
                        break;
                    }
                }
            }
        });
    }
    for _ in 0..SWAPS {
        authority.sign("api", &["api.example"]);
        wait_until_presented(&authority, &client, address).await;
    }
    stop.store(true, Ordering::SeqCst);
    while let Some(ended) = load.join_next().await {
        ended.expect("no failure");
    }
    let (handshakes, requests) = (handshakes.load(Ordering::SeqCst), requests.load(Ordering::SeqCst));
    assert!(handshakes > SWAPS && requests > 2 * SWAPS, "{handshakes} handshakes, {requests} requests");
    drain(gateway).await;
}

/// The gateway reloads its client certificate without a restart, and exports the expiry of the certificate.
#[tokio::test]
async fn client_certificate_for_an_upstream_is_reloaded() {
    let (own, upstream_ca) = (Authority::new(), Authority::new());
    upstream_ca.sign("server", &["localhost"]);
    own.sign("me", &["gateway"]);
    let auth = format!(", client_auth: {{ ca: '{}', required: true }}", upstream_ca.path("ca.pem"));
    let upstream = start(&listener(&upstream_ca, &["server"], &auth), ECHO);
    let (ca, cert, key) = (upstream_ca.path("ca.pem"), own.path("me.pem"), own.path("me.key"));
    let tls = format!("tls: {{ ca: '{ca}', cert: '{cert}', key: '{key}' }}");
    let target = format!("targets: ['https://localhost:{}']", port(&upstream).port());
    let gateway = start("127.0.0.1:0", &format!("{target}, {tls}"));
    let mut client = Raw::connect(port(&gateway)).await;
    assert_eq!(get(&mut client, "/", "").await.status(), 502, "the upstream does not trust the authority");

    upstream_ca.sign("me", &["gateway"]);
    for file in ["me.key", "me.pem"] {
        own.write(file, &std::fs::read_to_string(upstream_ca.path(file)).unwrap());
    }
    soon(async { while get(&mut client, "/", "").await.status() != 200 {} }).await;
    let admin = gateway.admin_address().and_then(ListenAddress::tcp).expect("a port");
    let metrics = get(&mut Raw::connect(admin).await, "/metrics", "").await.text();
    let series = format!("tidegate_certificate_expiry_seconds{{certificate=\"{cert}\"}} ");
    assert!(metrics.contains(&series), "{metrics}");
    drain(gateway).await;
    drain(upstream).await;
}

#[tokio::test]
async fn certificates_are_reloaded_on_demand() {
    let authority = Authority::new();
    authority.sign("api", &["api.example"]);
    let gateway = start_with_interval(Duration::from_secs(3600), &listener(&authority, &["api"], ""), ECHO);
    let client = TlsClient { resumption: Resumption::disabled(), ..TlsClient::new(&authority) }.config();
    for _ in 0..3 {
        authority.sign("api", &["api.example"]);
        gateway.check_certificates();
        wait_until_presented(&authority, &client, port(&gateway)).await;
    }
    drain(gateway).await;
}
