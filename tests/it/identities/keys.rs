//! API keys: what passes, what is rejected, and which limits count it.

use crate::support::gateway::TestGateway;
use crate::support::process::output;
use crate::support::wire::upstream::Origin;

use super::{key_file, rules, start};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

const KEYS: &str = "k-one: { id: one, tier: pro, attributes: { team: a } }
k-two: { id: two, attributes: { team: a } }
sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad: { id: three }
";

#[tokio::test]
async fn known_key_passes_and_other_keys_get_401() {
    let file = key_file("known", KEYS);
    let gateway = start(&format!("keys: {{ header: X-Api-Key, file: {} }}", file.path()), "require: keys");
    for key in ["k-one", "k-two", "abc"] {
        assert_eq!(gateway.get("/", &format!("X-Api-Key: {key}\r\n")).await.status(), 200, "{key}");
    }
    for (fields, detail) in [
        ("", "credentials are missing"),
        ("X-Api-Key: k-three\r\n", "the API key is not known"),
        ("X-Api-Key: sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\r\n", "not known"),
        ("X-Api-Key: k-one\r\nX-Api-Key: k-two\r\n", "malformed"),
    ] {
        let response = gateway.get("/", fields).await;
        assert_eq!(response.status(), 401, "{fields}");
        assert!(response.text().contains(detail), "{}", response.text());
        assert_eq!(response.field("www-authenticate").as_deref(), Some("ApiKey realm=\"api\""));
        assert_eq!(response.field("content-type").as_deref(), Some("application/problem+json"));
    }
    let count = async |result: &str| {
        gateway.counter(&format!("tidegate_identities_total{{kind=\"keys\",result=\"{result}\"}}")).await
    };
    let counts =
        [count("valid").await, count("missing").await, count("unknown_key").await, count("malformed_key").await];
    assert_eq!(counts, [3, 1, 2, 1]);
    assert_eq!(gateway.counter("tidegate_api_keys").await, 3);
}

#[tokio::test]
async fn keys_come_from_cookies_queries_and_bearer_credentials() {
    let file = key_file("sources", KEYS);
    for (source, target, fields) in [
        ("cookie: sid", "/", "Cookie: a=b; sid=k-one\r\n"),
        ("query: key", "/?a=b&key=k-one", ""),
        ("header: Authorization", "/", "Authorization: bearer k-one\r\n"),
    ] {
        let gateway = start(&format!("keys: {{ {source}, file: {} }}", file.path()), "require: keys");
        assert_eq!(gateway.get(target, fields).await.status(), 200, "{source}");
        assert_eq!(gateway.get("/", "Authorization: Basic azpr\r\n").await.status(), 401, "{source}");
    }
}

/// Regression test: keys were normalized like client names, and not found.
#[tokio::test]
async fn keys_are_compared_as_they_were_sent() {
    let keys = ["eyJrIjoiT0tTcG1pUlY2RnVKZTFVaDFsNFZXdE9ZWmNrMkZYbk==", "eyJ:no/base64+", "a+b/c==", "%41%zz"];
    let text: String = keys.iter().map(|key| format!("'{key}': {{ id: one }}\n")).collect();
    let file = key_file("unchanged", &text);
    for (source, start_of_field) in [
        ("header: X-Api-Key", "X-Api-Key: "),
        ("header: Authorization", "Authorization: Bearer "),
        ("cookie: k", "Cookie: k="),
    ] {
        let gateway = start(&format!("keys: {{ {source}, file: {} }}", file.path()), "require: keys");
        for key in keys {
            let response = gateway.get("/", &format!("{start_of_field}{key}\r\n")).await;
            assert_eq!(response.status(), 200, "{start_of_field}{key}");
        }
        for key in ["A%zz", "a b/c==", "a+b/c", "a-b_c"] {
            assert_eq!(gateway.get("/", &format!("{start_of_field}{key}\r\n")).await.status(), 401, "{key}");
        }
    }
    let gateway = start(&format!("keys: {{ query: k, file: {} }}", file.path()), "require: keys");
    assert_eq!(gateway.get("/?k=a%2Bb/c==", "").await.status(), 200);
}

#[tokio::test]
async fn limits_count_by_the_owner_of_a_key() {
    let file = key_file("owner", &format!("{KEYS}k-one-b: {{ id: one }}\n"));
    let identities = format!("keys: {{ header: X-Api-Key, file: {} }}", file.path());
    let limits = "limits: [{ name: a, mode: PER_CLIENT, client: key:id, rate: 2, interval: 1h },
                           { name: b, mode: PER_CLIENT, client: [key:team, path], rate: 3, interval: 1h,
                             on_missing_client: skip }]";
    let gateway = start(&identities, limits);
    let mut statuses = Vec::new();
    for key in ["k-one", "k-one-b", "k-one", "abc", "k-two", "k-two", "k-two"] {
        statuses.push(gateway.get("/", &format!("X-Api-Key: {key}\r\n")).await.status());
    }
    // `one` has two keys and two permits; team `a` has three permits.
    assert_eq!(statuses, [200, 200, 429, 200, 200, 200, 429]);
    // Without a key, `on_missing_client` of the limit decides.
    assert_eq!(gateway.get("/", "").await.status(), 400);
}

#[tokio::test]
async fn guesses_are_charged_to_limits_by_address_only() {
    let file = key_file("guesses", KEYS);
    let identities = format!("keys: {{ header: X-Api-Key, file: {} }}", file.path());
    let limits = "require: keys, limits: [
        { name: owner, mode: PER_CLIENT, client: key:id, rate: 1, interval: 1h },
        { name: total, mode: OVERALL, rate: 1, interval: 1h },
        { name: address, mode: PER_CLIENT, client: ip, rate: 3, interval: 1h }]";
    let gateway = start(&identities, limits);
    for guess in ["", "X-Api-Key: a\r\n"] {
        assert_eq!(gateway.get("/", guess).await.status(), 401);
    }
    assert_eq!(gateway.get("/", "X-Api-Key: k-one\r\n").await.status(), 200);
    let rejected = gateway.get("/", "X-Api-Key: b\r\n").await;
    assert_eq!(rejected.status(), 429);
    assert!(rejected.field("retry-after").is_some());
}

/// A limit of failed logins counts the gateway's own 401, too.
#[tokio::test]
async fn guesses_are_charged_to_limits_by_outcome() {
    let file = key_file("outcomes", KEYS);
    let identities = format!("keys: {{ header: X-Api-Key, file: {} }}", file.path());
    let limits = "require: keys, quota: /quota, limits: [
        { name: failed, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h, charge_on: [401] }]";
    let gateway = start(&identities, limits);
    let status = async |key: &str| gateway.get("/", &format!("X-Api-Key: {key}\r\n")).await.status();
    let statuses =
        [status("k-one").await, status("a").await, status("k-one").await, status("b").await, status("k-one").await];
    assert_eq!(statuses, [200, 401, 200, 401, 429]);
    assert_eq!(gateway.get("/quota", "X-Api-Key: a\r\n").await.status(), 401);
    assert_eq!(gateway.get("/quota", "X-Api-Key: k-one\r\n").await.status(), 200);
}

#[tokio::test]
async fn routes_without_identities_ignore_keys() {
    let file = key_file("ignored", KEYS);
    let gateway = start(&format!("keys: {{ header: X-Api-Key, file: {} }}", file.path()), "limits: []");
    assert_eq!(gateway.get("/", "X-Api-Key: wrong\r\n").await.status(), 200);
}

#[tokio::test]
async fn upstream_learns_the_owner_of_a_key() {
    let (file, origin) = (key_file("templates", KEYS), Origin::with_response(OK).await);
    let rules = rules(
        &format!("keys: {{ header: X-Api-Key, file: {} }}", file.path()),
        "request_headers: { set: { x-user: '{key:id} of {key:team}' } }",
    );
    let gateway = TestGateway::start(&rules.replace("builtin:echo", &format!("http://{}", origin.address)));
    // A client cannot send the field itself.
    for (key, user) in [("k-one", Some("one of a")), ("abc", None)] {
        assert_eq!(gateway.get("/", &format!("X-Api-Key: {key}\r\nX-User: admin\r\n")).await.status(), 200);
        assert_eq!(origin.last_request().field("x-user").as_deref(), user, "{key}");
    }
    assert_eq!(gateway.get("/", "X-User: admin\r\n").await.status(), 200);
    assert_eq!(origin.last_request().field("x-user"), None);
}

/// A proxy that only asks for an authorization gets the answer that the client would get.
#[tokio::test]
async fn authorize_verifies_the_credentials_of_the_original_request() {
    let file = key_file("authorize", KEYS);
    let gateway = TestGateway::start(&format!(
        "clients: {{ trusted_proxies: [127.0.0.1] }}
identities: {{ keys: {{ header: X-Api-Key, file: {} }} }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes:
  - {{ name: auth, match: {{ path: /_authorize }}, authorize: {{}} }}
  - {{ name: all, match: {{ path: /** }}, upstream: echo, require: keys }}\n",
        file.path()
    ));
    for (fields, status) in [("X-Api-Key: k-one\r\n", 200), ("X-Api-Key: wrong\r\n", 401), ("", 401)] {
        let fields = format!("X-Original-Method: GET\r\nX-Original-URI: /a\r\nX-Forwarded-For: 192.0.2.1\r\n{fields}");
        assert_eq!(gateway.get("/_authorize", &fields).await.status(), status, "{fields}");
    }
}

#[tokio::test]
async fn grpc_call_without_a_key_is_unauthenticated() {
    let file = key_file("grpc", KEYS);
    let gateway = start(&format!("keys: {{ header: X-Api-Key, file: {} }}", file.path()), "require: keys");
    let call = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n";
    let response = gateway.client().await.ask(call).await;
    assert_eq!((response.status(), response.field("grpc-status").as_deref()), (200, Some("16")));
}

#[test]
fn errors_in_rules_and_key_files_are_reported_together() {
    let file = key_file("errors", "hunter2-1: {}\nhunter2-2: { id: a }\nhunter2-2: { id: b }\n");
    let identities = format!("keys: {{ header: X-Api-Key, cookie: sid, file: {} }}", file.path());
    let route = "require: [keys, jwt], limits: [{ name: a, mode: PER_CLIENT, client: jwt:sub, rate: 2, interval: 1h }]";
    let rules = crate::support::process::RuleFile::new(
        "identity-errors",
        &format!("listen: 127.0.0.1:0\n{}", rules(&identities, route)),
    );
    let output = output(&["check", "-c", rules.path()]);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    for part in [
        "line 1: an entry needs `id`; line 3: the key occurs twice",
        "`keys` needs exactly one of `header`, `cookie` and `query`",
        "`identities.jwt`, which is not configured",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn explain_shows_the_owner_and_no_key() {
    let file = key_file("explain", KEYS);
    let identities = format!("keys: {{ header: X-Api-Key, file: {} }}", file.path());
    let limits = "require: keys, limits: [{ name: a, mode: PER_CLIENT, client: key:id, rate: 2, interval: 1h }]";
    let rules = crate::support::process::RuleFile::new(
        "identity-explain",
        &format!("listen: 127.0.0.1:0\n{}", rules(&identities, limits)),
    );
    let explain = |key: &str| {
        let output = output(&["explain", "-c", rules.path(), "GET", "http://a/", "-H", &format!("X-Api-Key: {key}")]);
        String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
    };
    let text = explain("k-one");
    assert!(text.contains("  the API key of `one`\n  key:id is `one`\n") && !text.contains("k-one"), "{text}");
    let text = explain("hunter2");
    assert!(text.contains("answered with 401: the API key is not known") && !text.contains("hunter2"), "{text}");
}
