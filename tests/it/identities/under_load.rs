//! Clients with valid tokens while a tier, the key set and the state of its server change.

use std::time::Duration;

use crate::support::gateway::TestGateway;
use crate::support::issuer::{KeySetServer, SigningKey, claims, key_set};
use crate::support::redis::RedisServer;
use crate::support::tls::Authority;
use crate::support::wire::until;

use super::load::Load;
use super::with_token;

fn rules(store: &str, jwks: &str, ca: &str, audience: &str) -> String {
    format!(
        "store: {store}
identities: {{ jwt: {{ jwks: '{jwks}', ca: '{ca}', issuer: https://id.test/, audience: {audience} }} }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
tiers:
  free: {{ rate: 3, interval: 1h }}
  pro: {{ rate: 6, interval: 1h }}
  bulk: {{ rate: 1000000, interval: 1h }}
routes:
  - {{ name: all, match: {{ path: /** }}, upstream: echo, require: jwt,
      limits: [{{ name: plan, mode: PER_CLIENT, client: jwt:sub, tier: {{ by: jwt:plan, default: free }} }}] }}
"
    )
}

/// Returns a token of the issuer's key with this number.
fn token(keys: &[SigningKey], number: usize, subject: &str, plan: &str) -> String {
    let mut claims = claims(subject);
    claims["plan"] = plan.into();
    keys[number].token(&number.to_string(), &claims)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valid_tokens_pass_while_tiers_and_keys_change() {
    let Some(redis) = RedisServer::start() else { return };
    let authority = Authority::new();
    authority.sign("id", &["127.0.0.1"]);
    let keys = [SigningKey::ec(), SigningKey::ed(), SigningKey::ec()];
    let set =
        |count: usize| key_set(&(0..count).map(|number| keys[number].jwk(&number.to_string())).collect::<Vec<_>>());
    let server = KeySetServer::start_with_tls(&set(1), &authority, "id");
    let rules = |audience: &str| rules(&redis.rule(), &server.url, &authority.path("ca.pem"), audience);
    let gateway = TestGateway::start(&rules("api"));
    let loads = async |outcome: &str| {
        gateway.counter(&format!("tidegate_identity_loads_total{{kind=\"jwt\",outcome=\"{outcome}\"}}")).await
    };
    let mut load = Load::default();
    let add_clients = |load: &mut Load, number: usize| {
        for client in 0..2 {
            let token = token(&keys, number, &format!("load-{number}-{client}"), "bulk");
            load.add(gateway.address, format!("Authorization: Bearer {token}\r\n"));
        }
    };
    add_clients(&mut load, 0);
    load.wait_for_progress().await;

    // A client changes its tier, and keeps its permits in use.
    let mut statuses = Vec::new();
    for plan in ["free", "free", "pro", "pro", "pro", "pro", "pro", "free"] {
        statuses.push(with_token(&gateway, &token(&keys, 0, "ann", plan)).await.status());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 429, 429]);
    load.wait_for_progress().await;

    // The issuer signs with a new key, while tokens of the old key are in use.
    server.set(&set(2));
    add_clients(&mut load, 1);
    load.wait_for_progress().await;
    assert_eq!((server.requests(), loads("loaded").await), (2, 2));

    // The server closes each connection. A reload with other settings of tokens fetches the key set again.
    server.fail();
    gateway.reload(&rules("[web, api]"));
    assert_eq!(loads("failed").await, 1);
    assert_eq!(with_token(&gateway, &token(&keys, 2, "ann", "pro")).await.status(), 401);
    load.wait_for_progress().await;

    // The server accepts connections, but never responds.
    server.hang();
    until(|| server.silent_connections() > 0).await;
    load.wait_for_progress().await;

    // The server has recovered. The gateway tries again 5 s after a failure, which is a timeout of 5 s.
    server.set(&set(3));
    let recovered = async { while with_token(&gateway, &token(&keys, 2, "ben", "bulk")).await.status() != 200 {} };
    tokio::time::timeout(Duration::from_secs(60), recovered).await.expect("the new key within 60 s");
    add_clients(&mut load, 2);
    load.wait_for_progress().await;
    load.stop().await;
}
