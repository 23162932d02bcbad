//! Overrides of the clients of domains: for calls, for programs, and on all gateways.

use serde_json::{Value, json};

use super::{DOMAIN, ask, field, passes, post, service, start};
use crate::admin_api::{Admin, RULES, TOKEN};
use crate::support::redis::RedisServer;
use crate::support::wire::soon;

/// Creates an override that lasts an hour. Returns the status and the JSON.
pub(super) async fn create(admin: &Admin, mut body: Value) -> (u16, Value) {
    (body["for"], body["reason"]) = (json!("1h"), json!("a test"));
    admin.send("POST", "overrides", &format!("Authorization: Bearer {TOKEN}\r\n"), &body.to_string()).await
}

/// Creates an override. Returns its id.
pub(super) async fn created(admin: &Admin, body: Value) -> String {
    let (status, created) = create(admin, body).await;
    assert_eq!(status, 201, "{created}");
    created["id"].as_str().expect("an id").to_owned()
}

async fn remove(admin: &Admin, id: &str) {
    assert_eq!(admin.change(&format!("overrides/{id}")).await.0, 200);
}

/// Waits until a gateway has read this number of overrides.
async fn until_known(admin: &Admin, count: usize) {
    let known = async || admin.api("GET", "overrides", "").await.1.as_array().map(Vec::len);
    soon(async { while known().await != Some(count) {} }).await;
}

/// Adjusts, exempts and bans the client `ann` of the limit `per-user`, whose rate is 2.
async fn changes_one_client(store: &str) {
    let (admin, client) = (&start(store, ""), json!({ "client": ["ann"] }));
    assert_eq!(passes(admin, "user=ann", 3).await, [true, true, false]);
    let adjust = json!({ "action": "adjust", "scope": "/edge/per-user", "target": client, "multiply": 2 });
    let (status, adjusted) = create(admin, adjust).await;
    assert_eq!((status, &adjusted["scope"]), (201, &json!("/edge/per-user")), "{adjusted}");
    let answer = ask(admin, &["user=ann"]).await;
    let status = &answer["statuses"][0];
    assert_eq!((&status["currentLimit"]["requestsPerUnit"], &status["limitRemaining"]), (&json!(4), &json!(1)));
    assert_eq!(field(&answer, "ratelimit-policy"), Some("\"per-user\";q=4;w=3600"));
    assert!(field(&answer, "ratelimit").is_some_and(|value| value.starts_with("\"per-user\";r=1;")), "{answer}");
    assert_eq!(passes(admin, "user=ann", 2).await, [true, false]);
    assert_eq!(passes(admin, "user=bob", 3).await, [true, true, false], "another client");
    let (_, state) = admin.api("GET", "limits/%2Fedge/per-user/client?value=ann", "").await;
    assert_eq!((&state["used"], &state["rate"], &state["override"]["id"]), (&json!(4), &json!(4), &adjusted["id"]));

    let hash = json!({ "hash": state["client"] });
    let exempted = created(admin, json!({ "action": "exempt", "scope": "/edge", "target": hash })).await;
    assert_eq!(passes(admin, "user=ann", 3).await, [true; 3]);
    for _ in 0..6 {
        let answer = ask(admin, &["user=ann", "generic_key=all"]).await;
        assert_eq!(answer["overallCode"], "OK", "no limit of the domain counts the call: {answer}");
    }
    let ban = json!({ "action": "ban", "scope": "/edge/per-user", "target": client });
    let banned = created(admin, ban).await;
    let answer = ask(admin, &["generic_key=all", "user=ann"]).await;
    assert_eq!((&answer["overallCode"], &answer["statuses"][0]["code"]), (&json!("OVER_LIMIT"), &json!("OK")));
    assert_eq!(answer["statuses"][1]["code"], "OVER_LIMIT");
    let retry_after: u64 = field(&answer, "retry-after").and_then(|value| value.parse().ok()).expect("a number");
    assert!((3_500..=3_600).contains(&retry_after), "{retry_after}");
    let (_, all) = admin.api("GET", "limits/%2Fedge/all/client", "").await;
    assert_eq!(all["used"], 0, "a banned client takes no permits");
    let take = json!({ "limits": [{ "limit": "edge/per-user", "client": "ann" }] });
    assert_eq!(post(admin, "/v1/take", &take).await.0, 403);
    assert!(admin.metrics().await.contains("tidegate_rejected_total{cause=\"banned\"} 1"));

    remove(admin, &banned).await;
    assert_eq!(post(admin, "/v1/take", &take).await.0, 200, "the client is exempt");
    remove(admin, &exempted).await;
    assert_eq!(passes(admin, "user=ann", 1).await, [false], "no permit returned");
    assert_eq!(post(admin, "/v1/take", &take).await.0, 429);
    let (_, audit) = admin.api("GET", "audit", "").await;
    let actions: Vec<_> = audit.as_array().expect("a list").iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions, ["remove_override", "remove_override", "ban", "exempt", "adjust"]);
    assert_eq!((&audit[2]["target"], &audit[2]["client"]), (&json!("/edge/per-user"), &state["client"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_changes_a_client_of_a_domain_in_memory() {
    changes_one_client("memory").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_changes_a_client_of_a_domain_in_redis() {
    let Some(redis) = RedisServer::start() else { return };
    changes_one_client(&redis.rule()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ban_of_a_domain_holds_on_all_gateways() {
    let Some(redis) = RedisServer::start() else { return };
    let store = format!("{{ url: '{}', timeout: 2s }}", redis.url());
    let [one, other] = [(); 2].map(|()| start(&store, ""));
    let ban = json!({ "action": "ban", "scope": "/edge/per-user", "target": { "client": ["ann"] } });
    let id = created(&one, ban).await;
    assert_eq!(passes(&one, "user=ann", 1).await, [false], "in force at once where it was made");
    until_known(&other, 1).await;
    assert_eq!(passes(&other, "user=ann", 1).await, [false]);
    assert_eq!(passes(&other, "user=bob", 1).await, [true]);
    let rules = format!("{}{RULES}", service(&store, "").replace("rate: 2,", "rate: 3,"));
    other.reload(&rules);
    assert_eq!(passes(&other, "user=ann", 1).await, [false], "a reload keeps it");
    assert_eq!(passes(&other, "user=bob", 3).await, [true, true, false]);
    drop((one, other));
    let late = start(&store, "");
    assert_eq!(passes(&late, "user=ann", 1).await, [false], "a restart keeps it");
    remove(&late, &id).await;
    assert_eq!(passes(&late, "user=ann", 1).await, [true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn override_of_a_hash_needs_no_scope() {
    let admin = start("memory", "");
    let (_, state) = admin.api("GET", "limits/%2Fedge/per-user/client?value=ann", "").await;
    let target = json!({ "hash": state["client"] });
    created(&admin, json!({ "action": "adjust", "target": target, "multiply": 2 })).await;
    assert_eq!(passes(&admin, "user=ann", 5).await, [true, true, true, true, false]);
    created(&admin, json!({ "action": "ban", "target": target })).await;
    let answer = ask(&admin, &["user=ann"]).await;
    assert!(answer["statuses"][0]["currentLimit"]["requestsPerUnit"] == 2 && field(&answer, "retry-after").is_some());
    assert_eq!(field(&answer, "ratelimit"), None, "the ban decides, and not the limit: {answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adjusted_rate_follows_a_reload() {
    let admin = start("memory", "");
    let target = json!({ "client": ["ann"] });
    created(&admin, json!({ "action": "adjust", "scope": "/edge/per-user", "target": target, "multiply": 2 })).await;
    assert_eq!(passes(&admin, "user=ann", 5).await, [true, true, true, true, false]);
    admin.reload(&format!("{}{RULES}", service("memory", "").replace("rate: 2,", "rate: 3,")));
    assert_eq!(passes(&admin, "user=ann", 3).await, [true, true, false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ban_rejects_calls_in_shadow_mode() {
    let admin = start("memory", "  shadow: true\n");
    assert_eq!(passes(&admin, "user=ann", 3).await, [true; 3]);
    let client = json!({ "client": ["ann"] });
    created(&admin, json!({ "action": "ban", "scope": "/edge/per-user", "target": client })).await;
    created(&admin, json!({ "action": "ban", "scope": "/edge/watched", "target": client })).await;
    assert_eq!(passes(&admin, "user=ann", 1).await, [false]);
    assert_eq!(passes(&admin, "watched=ann", 1).await, [false]);
    assert_eq!(passes(&admin, "watched=bob", 2).await, [true; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overrides_of_addresses_concern_no_calls() {
    let admin = start("memory", "");
    created(&admin, json!({ "action": "ban", "target": { "address": "127.0.0.1" } })).await;
    assert_eq!(admin.request("/", "X-Key: k\r\n").await.status(), 403);
    assert_eq!(passes(&admin, "user=127.0.0.1", 1).await, [true]);
    let ban = json!({ "action": "ban", "scope": "/edge/per-user", "target": { "address": "127.0.0.1" } });
    assert_eq!(create(&admin, ban).await.0, 422);
    let ban = json!({ "action": "ban", "scope": "/edge/per-user", "target": { "client": ["127.0.0.1"] } });
    created(&admin, ban).await;
    assert_eq!(passes(&admin, "user=127.0.0.1", 1).await, [false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_overrides_of_domains_are_rejected() {
    let admin = start("memory", "");
    assert!(DOMAIN.contains("name: all"));
    let client = json!({ "client": ["ann"] });
    for (scope, target, status) in [
        ("/edge/none", &client, 404),
        ("/none/per-user", &client, 404),
        ("/none", &client, 404),
        ("/edge/all", &client, 400),
        ("/edge/pair", &client, 400),
        ("/edge", &client, 400),
        ("/", &client, 400),
        ("/edge/", &client, 400),
    ] {
        let (found, problem) = create(&admin, json!({ "action": "ban", "scope": scope, "target": target })).await;
        assert_eq!(found, status, "{scope}: {problem}");
    }
    let hash = json!({ "hash": "0".repeat(32) });
    let adjust = json!({ "action": "adjust", "scope": "/edge/all", "target": hash, "rate": 2 });
    assert_eq!(create(&admin, adjust).await.0, 422);
    let adjust = json!({ "action": "adjust", "scope": "/edge", "target": hash, "multiply": 2 });
    assert_eq!(create(&admin, adjust).await.1["skipped"], json!(["/edge/all"]));
}
