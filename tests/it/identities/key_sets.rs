//! Key sets from a server: rotation, failures, and floods of tokens with unknown keys.

use futures_util::future::join_all;

use crate::support::issuer::{KeySetServer, SigningKey, claims, key_set};
use crate::support::process::{RuleFile, output};
use crate::support::tls::Authority;

use super::{jwt, start, with_token};
use crate::support::gateway::TestGateway;

#[tokio::test]
async fn rotated_key_fails_no_request() {
    let (old, new) = (SigningKey::ec(), SigningKey::ed());
    let server = KeySetServer::start(&key_set(&[old.jwk("1")]));
    let gateway = start(&jwt(&server.url), "require: jwt");
    assert_eq!((with_token(&gateway, &old.token("1", &claims("ann"))).await.status(), server.requests()), (200, 1));
    server.set(&key_set(&[old.jwk("1"), new.jwk("2")]));
    let token = new.token("2", &claims("ann"));
    let responses = join_all((0..20).map(|_| with_token(&gateway, &token))).await;
    assert!(responses.iter().all(|response| response.status() == 200), "{responses:?}");
    // All requests shared one fetch.
    assert_eq!(server.requests(), 2);
    assert_eq!(gateway.counter("tidegate_identity_loads_total{kind=\"jwt\",outcome=\"loaded\"}").await, 2);
}

#[tokio::test]
async fn flood_of_unknown_keys_causes_one_fetch() {
    let key = SigningKey::ec();
    let server = KeySetServer::start(&key_set(&[key.jwk("1")]));
    let gateway = start(&jwt(&server.url), "require: jwt");
    for number in 0..50 {
        let token = key.token(&format!("unknown-{number}"), &claims("eve"));
        assert_eq!(with_token(&gateway, &token).await.status(), 401);
    }
    assert_eq!(server.requests(), 2);
    assert_eq!(with_token(&gateway, &key.token("1", &claims("ann"))).await.status(), 200);
}

#[tokio::test]
async fn failed_fetches_keep_the_previous_keys() {
    let key = SigningKey::ec();
    for failure in [
        "",
        "HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"keys\":[]}",
    ] {
        let server = KeySetServer::start(&key_set(&[key.jwk("1")]));
        let gateway = start(&jwt(&server.url), "require: jwt");
        match failure {
            "" => server.fail(),
            failure => server.respond(failure),
        }
        assert_eq!(with_token(&gateway, &key.token("2", &claims("ann"))).await.status(), 401, "{failure}");
        assert_eq!(server.requests(), 2);
        assert_eq!(with_token(&gateway, &key.token("1", &claims("ann"))).await.status(), 200, "{failure}");
        assert_eq!(gateway.counter("tidegate_identity_loads_total{kind=\"jwt\",outcome=\"failed\"}").await, 1);
    }
}

#[tokio::test]
async fn tokens_get_503_until_a_key_set_is_loaded() {
    let key = SigningKey::ec();
    let server = KeySetServer::start("");
    server.respond(&format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(2 << 20))); // longer than allowed
    let gateway = start(&jwt(&server.url), "require: jwt");
    let token = key.token("1", &claims("ann"));
    let response = with_token(&gateway, &token).await;
    assert_eq!((response.status(), response.field("retry-after").as_deref()), (503, Some("1")));
    assert_eq!(response.field("www-authenticate"), None);
    assert_eq!(gateway.get("/", "").await.status(), 401);
    assert_eq!(gateway.counter("tidegate_identities_total{kind=\"jwt\",result=\"unavailable\"}").await, 1);
    server.set(&key_set(&[key.jwk("1")]));
    // The gateway tries again after 5 s.
    crate::support::wire::until(|| server.requests() == 2).await;
    crate::support::wire::soon(async { while with_token(&gateway, &token).await.status() != 200 {} }).await;
}

#[tokio::test]
async fn reload_keeps_the_key_set() {
    let key = SigningKey::ec();
    let server = KeySetServer::start(&key_set(&[key.jwk("1")]));
    let gateway = start(&jwt(&server.url), "require: jwt");
    server.fail();
    let report = gateway.reload(&super::rules(&jwt(&server.url), "require: jwt, max_body: 1MiB"));
    assert!(!report.is_unchanged());
    assert_eq!((with_token(&gateway, &key.token("1", &claims("ann"))).await.status(), server.requests()), (200, 1));
}

/// Regression test: after a reload with another audience, tokens got 503 until the issuer was reachable.
#[tokio::test]
async fn reload_of_token_settings_keeps_the_key_set() {
    let key = SigningKey::ec();
    let server = KeySetServer::start(&key_set(&[key.jwk("1")]));
    let gateway = start(&jwt(&server.url), "require: jwt");
    server.fail();
    gateway.reload(&super::rules(&jwt(&server.url).replace("audience: api", "audience: [web, api]"), "require: jwt"));
    assert_eq!(with_token(&gateway, &key.token("1", &claims("ann"))).await.status(), 200);
}

#[tokio::test]
async fn key_set_server_must_be_signed_by_ca() {
    let (key, [trusted, other]) = (SigningKey::ec(), [Authority::new(), Authority::new()]);
    trusted.sign("id", &["127.0.0.1"]);
    let server = KeySetServer::start_with_tls(&key_set(&[key.jwk("1")]), &trusted, "id");
    for (ca, status) in [(Some(&trusted), 200), (Some(&other), 503), (None, 503)] {
        let ca = ca.map(|ca| format!(", ca: '{}' }}", ca.path("ca.pem")));
        let gateway = start(&jwt(&server.url).replace(" }", &ca.unwrap_or(" }".to_owned())), "require: jwt");
        assert_eq!(with_token(&gateway, &key.token("1", &claims("ann"))).await.status(), status);
    }
}

#[test]
fn ca_without_an_https_server_is_an_error() {
    let authority = Authority::new();
    let ca = authority.path("ca.pem");
    authority.write("broken.pem", "text");
    for (jwks, ca, fault) in [
        ("https://id.test/", ca.clone(), None),
        ("http://127.0.0.1/", ca.clone(), Some("`ca` has no effect")),
        ("keys.json", ca, Some("`ca` has no effect")),
        ("https://id.test/", authority.path("broken.pem"), Some("is not PEM")),
    ] {
        let identities = jwt(jwks).replace(" }", &format!(", ca: '{ca}' }}"));
        let text = format!("listen: 127.0.0.1:0\n{}", super::rules(&identities, "require: jwt"));
        let rules = RuleFile::new("key-set-ca", &text);
        let output = output(&["check", "-c", rules.path()]);
        let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        assert_eq!(output.status.code(), Some(i32::from(fault.is_some())), "{text}");
        assert!(text.contains(fault.unwrap_or_default()), "{text}");
    }
}

#[tokio::test]
async fn key_set_server_is_found_with_the_dns_servers() {
    let (key, dns) = (SigningKey::ec(), crate::support::dns::DnsServer::start());
    dns.set("id.test", 60, &["127.0.0.1"]);
    let server = KeySetServer::start(&key_set(&[key.jwk("e")]));
    let jwks = server.url.replace("127.0.0.1", "id.test");
    let rules = format!("{}\n{}", dns.key(), super::rules(&jwt(&jwks), "require: jwt"));
    let gateway = tokio::task::spawn_blocking(move || TestGateway::start(&rules)).await.expect("a gateway");
    assert_eq!(with_token(&gateway, &key.token("e", &claims("ann"))).await.status(), 200);
}
