//! Certificates that are replaced while clients connect and ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tidegate::{Config, Gateway};

use crate::support::gateway::get;
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::{TlsClient, connect};
use crate::support::wire::soon;

/// How often certificates are replaced.
const SWAPS: usize = 50;

fn start(authority: &Authority) -> Gateway {
    let text = format!(
        "listen: {}
admin: off
store: memory
upstreams: {{ echo: {{ targets: [builtin:echo] }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: echo }}]",
        listener(authority, &["api"], "")
    );
    let mut config = Config::parse_for_gateway(&text).unwrap_or_else(|problems| panic!("{problems}"));
    config.listen[0].tls.as_mut().unwrap().look_every = Duration::from_millis(5);
    Gateway::start(config, 2).unwrap()
}

#[tokio::test]
async fn certificates_are_replaced_50_times_under_load_and_nobody_notices() {
    let authority = Authority::new();
    authority.sign("api", &["api.example"]);
    let gateway = start(&authority);
    let address = gateway.addresses()[0].tcp().expect("a port");
    let client = TlsClient { resumption: Resumption::disabled(), ..TlsClient::new(&authority) }.config();
    let (stop, handshakes, requests) = (Arc::new(AtomicBool::new(false)), Arc::default(), Arc::default());
    let mut load = tokio::task::JoinSet::new();
    // Half of them keep their connection, the others open one for every two requests.
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
        let new = CertificateDer::from_pem_file(authority.path("api.pem")).unwrap();
        soon(async {
            loop {
                let connection = connect(&client, "api.example", address).await.expect("a handshake");
                if connection.stream.get_ref().1.peer_certificates().unwrap()[0] == new {
                    break;
                }
            }
        })
        .await;
    }
    stop.store(true, Ordering::SeqCst);
    while let Some(ended) = load.join_next().await {
        ended.expect("no failure");
    }
    let (handshakes, requests) = (handshakes.load(Ordering::SeqCst), requests.load(Ordering::SeqCst));
    assert!(handshakes > SWAPS && requests > 2 * SWAPS, "{handshakes} handshakes, {requests} requests");
    tokio::task::spawn_blocking(|| gateway.drain(Duration::from_millis(10))).await.unwrap().unwrap();
}
