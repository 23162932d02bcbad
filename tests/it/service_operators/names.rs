//! Names of domains and of their limits can contain slashes, and look like names of routes.

use serde_json::{Value, json};

use super::{call, changes::created, post};
use crate::admin_api::Admin;

/// Two domains whose names and limits differ only in the place of a slash, and one with the name of a route.
const SLASHES: &str = "store: memory
service:
  http: 127.0.0.1:0
  domains:
    - name: a
      limits: [{ name: one, match: { key: '*' }, mode: PER_CLIENT, rate: 1, interval: 1h }]
    - name: a/b
      limits: [{ name: one, match: { key: '*' }, mode: PER_CLIENT, rate: 1, interval: 1h }]
    - name: rest
      limits: [{ name: own, match: { key: '*' }, mode: PER_CLIENT, rate: 1, interval: 1h }]
";

async fn passes(admin: &Admin, domain: &str) -> bool {
    post(admin, "/json", &call(domain, &["key=x"])).await.1["overallCode"] == "OK"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slashes_separate_a_domain_from_its_limit() {
    let admin = Admin::with_tokens(SLASHES);
    for domain in ["a", "a/b", "rest"] {
        assert!(passes(&admin, domain).await, "{domain}");
    }
    assert_eq!(admin.change("limits/%2Fa%2Fb/one/client?value=x").await.0, 200);
    assert_eq!((passes(&admin, "a").await, passes(&admin, "a/b").await), (false, true));
    // As a command splits `/a/b/one`.
    let (status, cleared) = admin.change("limits/%2Fa/b%2Fone/client?value=x").await;
    assert_eq!((status, &cleared["route"], &cleared["limit"]), (200, &json!("/a/b"), &json!("one")), "{cleared}");
    assert_eq!((passes(&admin, "a").await, passes(&admin, "a/b").await), (false, true));
    // As the scope of an override is shown.
    assert_eq!(admin.api("GET", "limits/%2Fa%252Fb/one/client?value=x", "").await.1["route"], "/a/b");
    let (_, state) = admin.api("GET", "limits/rest/own/client?value=x", "").await;
    assert_eq!(state["used"], 0, "the limit of the route");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn override_keeps_the_domain_of_its_scope() {
    let admin = Admin::with_tokens(SLASHES);
    let ban = |scope: &str| json!({ "action": "ban", "scope": scope, "target": { "client": ["x"] } });
    created(&admin, ban("/a/b/one")).await;
    let (_, overrides) = admin.api("GET", "overrides", "").await;
    assert_eq!(overrides[0]["scope"], "/a%2Fb/one");
    assert_eq!((passes(&admin, "a").await, passes(&admin, "a/b").await), (true, false));
    created(&admin, ban("/rest/own")).await;
    assert!(!passes(&admin, "rest").await);
    assert_eq!(admin.request("/", "X-Key: x\r\n").await.status(), 200, "the route is another one");
    let hash = overrides[0]["target"].clone();
    let exempt = json!({ "action": "exempt", "scope": "/a/b", "target": hash, "for": "1h", "reason": "a test" });
    let (status, exempted): (u16, Value) = admin
        .send(
            "POST",
            "overrides",
            &format!("Authorization: Bearer {}\r\n", crate::admin_api::TOKEN),
            &exempt.to_string(),
        )
        .await;
    assert_eq!((status, &exempted["scope"]), (201, &json!("/a%2Fb")), "{exempted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn value_of_a_client_is_shown_if_operators_may_see_it() {
    let admin = Admin::start("{ address: '127.0.0.1:0', show_clients: true }", SLASHES);
    assert_eq!((passes(&admin, "a").await, passes(&admin, "a").await), (true, false));
    let (_, list) = admin.api("GET", "rejected", "").await;
    assert_eq!((&list[0]["value"], &list[0]["route"]), (&json!("x"), &json!("/a")), "{list}");
}
