//! Several issuers of tokens, and claims that tokens need instead of an audience.

use serde_json::{Value, json};

use crate::support::gateway::TestGateway;
use crate::support::issuer::{KeySetServer, SigningKey, base64, claims, key_set};

use super::{key_set_file, start, with_token};

/// The settings of two issuers with these key sets.
fn two(customers: &str, staff: &str) -> String {
    format!(
        "jwt: [{{ name: customers, jwks: '{customers}', issuer: https://id.test/, audience: api }},
               {{ name: staff, jwks: '{staff}', issuer: https://staff.test/, claims: {{ client_id: [intranet, wiki] }} }}]"
    )
}

fn staff_claims(client_id: Value) -> Value {
    let mut claims = claims("eve");
    claims["iss"] = "https://staff.test/".into();
    claims["client_id"] = client_id;
    claims
}

#[tokio::test]
async fn issuer_selects_the_keys_of_a_token() {
    let (customers, staff) = (SigningKey::ec(), SigningKey::ec());
    // Both issuers use the same `kid`.
    let first = key_set_file("customers", &key_set(&[customers.jwk("1")]));
    let second = key_set_file("staff", &key_set(&[staff.jwk("1")]));
    let gateway = start(&two(first.path(), second.path()), "require: jwt");
    let ours = || staff_claims("wiki".into());
    for (token, status, reason) in [
        (customers.token("1", &claims("ann")), 200, ""),
        (staff.token("1", &ours()), 200, ""),
        // The key of one issuer must not sign for the other.
        (customers.token("1", &ours()), 401, "signature"),
        (staff.token("1", &claims("ann")), 401, "signature"),
        (staff.token("1", &staff_claims("web".into())), 401, "a required claim of the token"),
        (staff.token("1", &staff_claims(Value::Null)), 401, "a required claim of the token"),
        (staff.token("1", &json!({ "iss": "https://other.test/", "exp": 9_999_999_999_u64 })), 401, "another issuer"),
        (staff.token("1", &json!({ "exp": 9_999_999_999_u64 })), 401, "another issuer"),
        (staff.token("1", &json!({ "iss": 1, "exp": 9_999_999_999_u64 })), 401, "malformed"),
        (format!("{}..", base64(b"{}")), 401, "malformed"),
        ("a.b.c".to_owned(), 401, "malformed"),
        ("a".to_owned(), 401, "malformed"),
    ] {
        let response = with_token(&gateway, &token).await;
        assert_eq!(response.status(), status, "{reason}: {}", response.text());
        assert!(response.text().contains(reason), "{reason}: {}", response.text());
    }
}

/// Servers read a JSON member that occurs twice in different ways.
#[tokio::test]
async fn token_that_names_two_issuers_is_malformed() {
    let (customers, staff) = (SigningKey::ec(), SigningKey::ec());
    let first = key_set_file("twice-1", &key_set(&[customers.jwk("1")]));
    let second = key_set_file("twice-2", &key_set(&[staff.jwk("1")]));
    let gateway = start(&two(first.path(), second.path()), "require: jwt");
    let valid = customers.token("1", &claims("ann"));
    let [header, payload, signature] = valid.split('.').collect::<Vec<_>>()[..] else { panic!("no token") };
    let claims = String::from_utf8(
        base64::prelude::Engine::decode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, payload).expect("base64"),
    )
    .expect("text");
    let twice = claims.replacen('{', "{\"iss\":\"https://staff.test/\",", 1);
    let response = with_token(&gateway, &format!("{header}.{}.{signature}", base64(twice.as_bytes()))).await;
    assert!(response.status() == 401 && response.text().contains("malformed"), "{}", response.text());
}

/// The issuer of customers may grant them any role.
#[tokio::test]
async fn condition_on_the_issuer_separates_roles() {
    let (customers, staff) = (SigningKey::ec(), SigningKey::ec());
    let first = key_set_file("roles-1", &key_set(&[customers.jwk("1")]));
    let second = key_set_file("roles-2", &key_set(&[staff.jwk("1")]));
    let require = "require: { jwt: { iss: https://staff.test/, role: admin } }";
    let gateway = start(&two(first.path(), second.path()), require);
    let admin = |mut claims: Value| {
        claims["role"] = "admin".into();
        claims
    };
    assert_eq!(with_token(&gateway, &customers.token("1", &admin(claims("ann")))).await.status(), 403);
    assert_eq!(with_token(&gateway, &staff.token("1", &admin(staff_claims("wiki".into())))).await.status(), 200);
}

#[tokio::test]
async fn issuers_are_fetched_and_fail_separately() {
    let (customers, staff) = (SigningKey::ec(), SigningKey::ec());
    let first = KeySetServer::start(&key_set(&[customers.jwk("1")]));
    let second = KeySetServer::start("");
    second.fail();
    let identities = two(&first.url, &second.url);
    let gateway = tokio::task::spawn_blocking(move || TestGateway::start(&super::rules(&identities, "require: jwt")));
    let gateway = gateway.await.expect("a gateway");
    assert_eq!(with_token(&gateway, &customers.token("1", &claims("ann"))).await.status(), 200);
    assert_eq!(with_token(&gateway, &staff.token("1", &staff_claims("wiki".into()))).await.status(), 503);
    // A token with an unknown key makes the gateway fetch only the set of its issuer.
    first.set(&key_set(&[customers.jwk("1"), customers.jwk("2")]));
    let requests = second.requests();
    assert_eq!(with_token(&gateway, &customers.token("2", &claims("ann"))).await.status(), 200);
    assert_eq!((first.requests(), second.requests()), (2, requests));
}

/// AWS Cognito's access tokens have `client_id` instead of `aud`.
#[tokio::test]
async fn claim_replaces_the_audience() {
    let key = SigningKey::ec();
    let file = key_set_file("client-id", &key_set(&[key.jwk("e")]));
    let identities = format!(
        "jwt: {{ jwks: '{}', issuer: https://id.test/, claims: {{ client_id: web, token_use: access }} }}",
        file.path()
    );
    let gateway = start(&identities, "require: jwt");
    for (client_id, token_use, status) in [("web", "access", 200), ("web", "id", 401), ("app", "access", 401)] {
        let mut claims = claims("ann");
        claims.as_object_mut().expect("an object").remove("aud");
        (claims["client_id"], claims["token_use"]) = (client_id.into(), token_use.into());
        assert_eq!(with_token(&gateway, &key.token("e", &claims)).await.status(), status, "{client_id} {token_use}");
    }
}
