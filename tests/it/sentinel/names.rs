//! Sentinels that announce host names instead of addresses (`resolve-hostnames`, `announce-hostnames`).

use super::{ask, config, remaining, rules, wait_until_shared};
use crate::support::gateway::TestGateway;
use crate::support::redis::{RedisServer, free_port};
use crate::support::sentinel::{MASTER, SentinelSetup, WITH_HOSTNAMES};
use crate::support::tls::Authority;
use crate::support::wire::soon;

/// A sentinel with the master's host name announces the replica's host name, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masters_announced_by_host_name_are_found() {
    let Some(mut setup) = SentinelSetup::start_by_name() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&setup.rule())));
    let both = [&gateways[0], &gateways[1]];
    wait_until_shared(both, &setup.servers[0]).await;
    drop(setup.servers.remove(0));
    wait_until_shared(both, &setup.servers[0]).await;
}

/// The certificate contains the host name but not the address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_is_checked_against_the_announced_name() {
    let ca = Authority::new();
    ca.sign("redis", &["localhost"]);
    let Some(server) = ca.redis_arguments("redis", "no") else { return };
    let port = free_port().to_string();
    let mut with = vec!["--tls-port", &port];
    with.extend(server.iter().map(String::as_str));
    let Some(redis) = RedisServer::start_with(None, &with) else { return };
    let setup = SentinelSetup::without_sentinels(redis);
    let tls_port: u16 = port.parse().expect("a port");
    for (more, host, is_found) in [(WITH_HOSTNAMES, "localhost", true), ("", "127.0.0.1", false)] {
        let Some(sentinel) = setup.start_sentinel_at(host, host, tls_port, more) else { return };
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
