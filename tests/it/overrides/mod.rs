//! Overrides: operators ban, exempt and adjust clients of running gateways.

mod commands;
mod disconnect;
mod laws;
mod lost;
mod passed_on;
mod requests;
mod shared;
mod shown;
mod slots;

use serde_json::{Value, json};

use crate::admin_api::{Admin, TOKEN};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Message;

/// The fields of a request of an operator.
fn authorized() -> String {
    format!("Authorization: Bearer {TOKEN}\r\n")
}

/// Creates an override that lasts an hour, unless `body` has another end.
async fn create(admin: &Admin, mut body: Value) -> (u16, Value) {
    if body["until"].is_null() && body["for"].is_null() {
        body["for"] = json!("1h");
    }
    if body["reason"].is_null() {
        body["reason"] = json!("a test");
    }
    admin.send("POST", "overrides", &authorized(), &body.to_string()).await
}

/// Creates an override. Returns its id.
async fn created(admin: &Admin, body: Value) -> String {
    let (status, created) = create(admin, body).await;
    assert_eq!(status, 201, "{created}");
    created["id"].as_str().expect("an id").to_owned()
}

async fn remove(admin: &Admin, id: &str) {
    assert_eq!(admin.change(&format!("overrides/{id}")).await.0, 200);
}

async fn with_key(admin: &Admin, key: &str) -> Message {
    admin.request("/", &format!("X-Key: {key}\r\n")).await
}

/// Sends requests with this key. Returns their statuses.
async fn statuses(admin: &Admin, key: &str, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(with_key(admin, key).await.status());
    }
    statuses
}

/// Adjusts, exempts and bans the client `k` of the limit `own`, whose rate is 2.
async fn changes_one_client(admin: &Admin, stored: &str) {
    let client = json!({ "client": ["k"] });
    assert_eq!(statuses(admin, "k", 3).await, [200, 200, 429]);
    let adjust = json!({ "action": "adjust", "scope": "rest/own", "target": client, "multiply": 2 });
    let (status, adjusted) = create(admin, adjust).await;
    assert_eq!((status, &adjusted["stored"], &adjusted["multiply"]), (201, &json!(stored), &json!(2)), "{adjusted}");
    assert_eq!((&adjusted["by"], &adjusted["scope"]), (&json!("ann"), &json!("rest/own")));
    let first = with_key(admin, "k").await;
    assert_eq!(first.status(), 200, "two permits of four are in use");
    let field = |name: &str| first.field(name).expect("a field");
    assert!(field("ratelimit-policy").contains("\"own\";q=4"), "{}", field("ratelimit-policy"));
    assert!(field("ratelimit").contains("\"own\";r=1"), "{}", field("ratelimit"));
    assert_eq!(statuses(admin, "k", 3).await, [200, 429, 429]);
    assert_eq!(statuses(admin, "other", 3).await, [200, 200, 429]);
    let (_, state) = admin.api("GET", "limits/rest/own/client?value=k", "").await;
    assert_eq!((&state["used"], &state["override"]["id"]), (&json!(4), &adjusted["id"]), "{state}");

    let exempted = created(admin, json!({ "action": "exempt", "scope": "rest", "target": client_hash(&state) })).await;
    assert_eq!(statuses(admin, "k", 3).await, [200; 3]);
    let banned = created(admin, json!({ "action": "ban", "scope": "rest/own", "target": client })).await;
    let response = with_key(admin, "k").await;
    assert_eq!((response.status(), response.field("content-type")), (403, Some("application/problem+json".to_owned())));
    let retry_after: u64 = response.field("retry-after").and_then(|value| value.parse().ok()).expect("a number");
    assert!((3_500..=3_600).contains(&retry_after), "{retry_after}");
    assert_eq!(with_key(admin, "other").await.status(), 429);
    assert!(admin.metrics().await.contains("tidegate_rejected_total{cause=\"banned\"} 1"));

    remove(admin, &banned).await;
    assert_eq!(with_key(admin, "k").await.status(), 200);
    remove(admin, &exempted).await;
    assert_eq!(with_key(admin, "k").await.status(), 429, "no permit returned");
    let (_, state) = admin.api("GET", "limits/rest/own/client?value=k", "").await;
    assert_eq!(state["used"], 4, "{state}");

    let (_, audit) = admin.api("GET", "audit", "").await;
    let actions: Vec<_> = audit.as_array().expect("a list").iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions, ["remove_override", "remove_override", "ban", "exempt", "adjust"]);
    assert_eq!((&audit[4]["operator"], &audit[4]["reason"]), (&json!("ann"), &json!("a test")));
    assert_eq!((&audit[4]["target"], &audit[4]["client"]), (&json!("rest/own"), &state["client"]));
}

fn client_hash(state: &Value) -> Value {
    json!({ "hash": state["client"] })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_changes_one_client_in_memory() {
    changes_one_client(&Admin::with_tokens(""), "memory").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_changes_one_client_in_redis() {
    let Some(redis) = RedisServer::start() else { return };
    changes_one_client(&Admin::with_tokens(&format!("store: {}\n", redis.rule())), "redis").await;
}

/// The peer of the test is the proxy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ban_of_a_network_finds_clients_behind_proxies() {
    let admin = Admin::with_tokens("clients: { trusted_proxies: [127.0.0.0/8] }\n");
    let from = async |address: &str| {
        let fields = format!("X-Forwarded-For: {address}\r\nX-Key: {address}\r\n");
        admin.request("/", &fields).await.status()
    };
    drop(created(&admin, json!({ "action": "ban", "target": { "address": "203.0.113.77/24" } })).await);
    drop(created(&admin, json!({ "action": "ban", "target": { "address": "2001:db8::1" } })).await);
    assert_eq!([from("203.0.113.9").await, from("203.0.112.9").await], [403, 200]);
    assert_eq!([from("2001:db8::ff").await, from("2001:db8:0:1::1").await], [403, 200], "a client is a /64");
    assert_eq!(from("198.51.100.1, 203.0.113.9").await, 403);
    assert_eq!(from("203.0.113.9, 198.51.100.1").await, 200, "the client forged the first address");
    assert_eq!(admin.request("/", "").await.status(), 200, "the proxy itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exempt_address_needs_no_client_value() {
    let rules = "upstreams: { echo: { targets: ['builtin:echo'] } }
routes: [{ name: rest, match: {}, upstream: echo, limits: [
  { name: own, mode: PER_CLIENT, client: 'header:x-key', rate: 1, interval: 1h },
  { name: all, mode: OVERALL, rate: 2, interval: 1h } ] }]
";
    let admin = Admin::with_tokens("");
    admin.reload(rules);
    assert_eq!(admin.request("/", "").await.status(), 400);
    let exempt = json!({ "action": "exempt", "scope": "rest/own", "target": { "address": "127.0.0.1" } });
    let id = created(&admin, exempt).await;
    assert_eq!(admin.request("/", "").await.status(), 200);
    assert_eq!(statuses(&admin, "k", 2).await, [200, 429], "the other limit counts");
    remove(&admin, &id).await;
    assert_eq!(admin.request("/", "").await.status(), 400);
}
