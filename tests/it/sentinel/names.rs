//! Sentinels that tell names of hosts instead of addresses (`resolve-hostnames`, `announce-hostnames`).

use super::{ask, config, remaining, rules, shared_again};
use crate::support::gateway::TestGateway;
use crate::support::redis::{RedisServer, free_port};
use crate::support::sentinel::{BY_NAME, MASTER, Watched};
use crate::support::tls::Authority;
use crate::support::wire::soon;

/// A sentinel told of the master's name knows its replica by name, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_told_by_name_is_found_and_so_is_the_one_after_it() {
    let Some(mut watched) = Watched::start_by_name() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&watched.rule())));
    let both = [&gateways[0], &gateways[1]];
    shared_again(both, &watched.servers[0]).await;
    drop(watched.servers.remove(0));
    shared_again(both, &watched.servers[0]).await;
}

/// Its certificate has the name, and not the address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_held_against_the_name_that_a_sentinel_tells() {
    let ca = Authority::new();
    ca.sign("redis", &["localhost"]);
    let Some(server) = ca.server_settings("redis", "no") else { return };
    let port = free_port().to_string();
    let mut with = vec!["--tls-port", &port];
    with.extend(server.iter().map(String::as_str));
    let Some(redis) = RedisServer::start_with(None, &with) else { return };
    let watched = Watched::of(redis);
    let tls_port: u16 = port.parse().expect("a port");
    for (more, host, is_found) in [(BY_NAME, "localhost", true), ("", "127.0.0.1", false)] {
        let Some(sentinel) = watched.sentinel_at(host, host, tls_port, more) else { return };
        let at = format!("urls: ['{}'], master: {MASTER}", sentinel.url());
        let store = format!("{{ timeout: 2s, sentinel: {{ {at} }}, tls: {{ ca: '{}' }} }}", ca.path("ca.pem"));
        let gateway = TestGateway::start(&rules(&store));
        if is_found {
            soon(async { while remaining(&ask(&gateway).await).is_none() {} }).await;
            assert!(config(&gateway).await.contains(&format!(r#""master":"localhost:{port}""#)));
        } else {
            assert_eq!(ask(&gateway).await.status(), 200);
            gateway.until_config_has(&["not valid for name"]).await;
        }
    }
}
