//! Requests that a limit refuses anyway are rejected before the signature of their token is verified.

use crate::support::gateway::TestGateway;
use crate::support::issuer::{SigningKey, base64, claims, key_set};
use crate::support::redis::RedisServer;

use super::{jwt, key_set_file, with_token};

const BY_ADDRESS: &str = "{ name: each, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h }";
const BY_TOKEN: &str = "{ name: user, mode: PER_CLIENT, client: jwt:sub, rate: 1, interval: 1h }";

fn start(store: &str, identities: &str, route: &str) -> TestGateway {
    TestGateway::start(&format!(
        "store: {store}
identities: {{ {identities} }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: echo, require: jwt, {route} }}]
"
    ))
}

/// Returns how many tokens were verified, and how many of them had a wrong signature.
async fn verified(gateway: &TestGateway) -> (u64, u64) {
    let count = async |result: &str| {
        let name = format!("tidegate_identities_total{{kind=\"jwt\",result=\"{result}\"}}");
        gateway.counter(&name).await
    };
    let forged = count("signature").await;
    (count("valid").await + forged, forged)
}

/// Returns a token with a wrong signature.
fn forged(token: &str, number: u8) -> String {
    let (signed, _) = token.rsplit_once('.').expect("a signature");
    format!("{signed}.{}", base64(&[number; 64]))
}

async fn statuses(gateway: &TestGateway, tokens: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for token in tokens {
        statuses.push(with_token(gateway, token).await.status());
    }
    statuses
}

#[tokio::test]
async fn refused_address_verifies_no_signature() {
    let redis = RedisServer::start();
    let stores = ["memory".to_owned()].into_iter().chain(redis.iter().map(RedisServer::rule));
    let key = SigningKey::ec();
    let file = key_set_file("verification", &key_set(&[key.jwk("e")]));
    let valid = key.token("e", &claims("ann"));
    for store in stores {
        let gateway = start(&store, &jwt(file.path()), &format!("limits: [{BY_ADDRESS}]"));
        let guesses: Vec<String> = (0..5).map(|number| forged(&valid, number)).collect();
        let guesses: Vec<&str> = guesses.iter().map(String::as_str).collect();
        assert_eq!(statuses(&gateway, &guesses).await, [401, 401, 429, 429, 429], "{store}");
        // With Redis, the first request over the limit is verified: until then, no refusal is known.
        let known = u64::from(store != "memory");
        assert_eq!(verified(&gateway).await, (2 + known, 2 + known), "{store}");
        assert_eq!(statuses(&gateway, &[&valid]).await, [429]);
        assert_eq!(verified(&gateway).await, (2 + known, 2 + known), "{store}: a valid token over the limit");
    }
}

#[tokio::test]
async fn limit_by_token_decides_after_the_verification() {
    let key = SigningKey::ec();
    let file = key_set_file("verified-first", &key_set(&[key.jwk("e")]));
    let total = "{ name: total, mode: OVERALL, rate: 3, interval: 1h }";
    let gateway = start("memory", &jwt(file.path()), &format!("limits: [{BY_TOKEN}, {total}]"));
    let [ann, bob, eve] = ["ann", "bob", "eve"].map(|subject| key.token("e", &claims(subject)));
    assert_eq!(statuses(&gateway, &[&ann, &ann, &forged(&bob, 1), &bob]).await, [200, 429, 401, 200]);
    assert_eq!(verified(&gateway).await, (4, 1));
    // The OVERALL limit has one permit left, and then rejects forged tokens, too.
    assert_eq!(statuses(&gateway, &[&eve, &forged(&eve, 1), &eve]).await, [200, 429, 429]);
    assert_eq!(verified(&gateway).await, (5, 1));
}
