//! Overrides on two gateways with one Redis: they are in force on both, and survive restarts, outages and reloads.

use serde_json::json;

use super::{created, remove, statuses, with_key};
use crate::admin_api::{Admin, RULES};
use crate::support::cluster::RedisCluster;
use crate::support::redis::{RedisServer, free_port};
use crate::support::wire::soon;

fn gateway(redis: &RedisServer) -> Admin {
    let url = redis.url();
    // Longer than usual, so that a slow machine reads the overrides before the gateway serves.
    Admin::with_tokens(&format!("store: {{ url: '{url}', timeout: 2s }}\n"))
}

/// Waits until requests are rejected by a ban, or are not. They may be rejected by limits.
async fn until_banned(admin: &Admin, is_banned: bool) {
    soon(async { while (with_key(admin, "k").await.status() == 403) != is_banned {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ban_holds_on_all_gateways_and_survives_restarts() {
    let Some(redis) = RedisServer::start() else { return };
    let [one, other] = [(); 2].map(|()| gateway(&redis));
    let ban = json!({ "action": "ban", "scope": "rest/own", "target": { "client": ["k"] } });
    let id = created(&one, ban).await;
    assert_eq!(with_key(&one, "k").await.status(), 403, "in force at once where it was made");
    until_banned(&other, true).await;
    assert_eq!(other.api("GET", &format!("overrides/{id}"), "").await.1["by"], "ann");
    assert_eq!(with_key(&other, "free").await.status(), 200);

    drop((one, other));
    let [one, other] = [(); 2].map(|()| gateway(&redis));
    assert_eq!([with_key(&one, "k").await.status(), with_key(&other, "k").await.status()], [403; 2]);
    remove(&other, &id).await;
    until_banned(&one, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_overrides_stay_in_force_during_an_outage() {
    let Some(redis) = RedisServer::start() else { return };
    let admin = Admin::with_tokens(&format!("store: {}\n", redis.rule()));
    let client = json!({ "client": ["k"] });
    let id = created(&admin, json!({ "action": "ban", "scope": "rest/own", "target": client })).await;
    redis.signal("STOP");
    assert_eq!(statuses(&admin, "k", 2).await, [403; 2]);
    assert_eq!(with_key(&admin, "free").await.status(), 200, "by the local share");
    redis.signal("CONT");
    soon(async { while admin.change(&format!("overrides/{id}")).await.0 != 200 {} }).await;
    until_banned(&admin, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overrides_are_read_when_redis_returns() {
    let Some(redis) = RedisServer::start() else { return };
    let one = gateway(&redis);
    drop(created(&one, json!({ "action": "ban", "target": { "address": "127.0.0.1" } })).await);
    redis.signal("STOP");
    let late = Admin::with_tokens(&format!("store: {}\n", redis.rule()));
    assert_eq!(with_key(&late, "k").await.status(), 200, "serves without overrides");
    assert_eq!(late.api("GET", "overrides", "").await.0, 503, "not an empty list");
    redis.signal("CONT");
    until_banned(&late, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ban_ends_on_time_on_both_gateways() {
    let Some(redis) = RedisServer::start() else { return };
    let [one, other] = [(); 2].map(|()| gateway(&redis));
    let ban = json!({ "action": "ban", "target": { "address": "127.0.0.1" }, "for": "6s" });
    let id = created(&one, ban).await;
    until_banned(&other, true).await;
    assert_eq!(with_key(&other, "k").await.field("retry-after").as_deref().map(|left| left <= "6"), Some(true));
    for admin in [&one, &other] {
        until_banned(admin, false).await;
        assert_eq!(admin.api("GET", "overrides", "").await.1, json!([]));
        assert_eq!(admin.api("GET", &format!("overrides/{id}"), "").await.0, 404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_keeps_overrides_and_a_new_store_has_its_own() {
    let Some(redis) = RedisServer::start() else { return };
    let Some(second) = RedisServer::start_on(free_port()) else { return };
    let (admin, owner) = (gateway(&redis), gateway(&second));
    let adjust = json!({ "action": "adjust", "scope": "rest/own", "target": { "client": ["k"] }, "rate": 3 });
    drop(created(&admin, adjust).await);
    let ban = json!({ "action": "ban", "target": { "address": "127.0.0.1" } });
    drop(created(&owner, ban).await);
    assert_eq!(statuses(&admin, "k", 2).await, [200; 2]);
    let store = |redis: &RedisServer| format!("store: {{ url: '{}', timeout: 2s }}\n", redis.url());
    admin.reload(&format!("{}{}", store(&redis), RULES.replace("rate: 2", "rate: 1")));
    assert_eq!(statuses(&admin, "k", 2).await, [200, 429], "the third and the fourth of three");
    assert_eq!(statuses(&admin, "other", 2).await, [200, 429]);
    admin.reload(&format!("{}{RULES}", store(&second)));
    until_banned(&admin, true).await;
    assert_eq!(admin.api("GET", "overrides", "").await.1.as_array().map(Vec::len), Some(1));
}

/// All keys of overrides are in one hash slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overrides_of_a_cluster_are_on_one_node() {
    let Some(cluster) = RedisCluster::start() else { return };
    let nodes: Vec<String> = cluster.ports().iter().map(|port| format!("'redis://127.0.0.1:{port}'")).collect();
    let store = format!("store: {{ cluster: [{}], timeout: 2s }}\n", nodes.join(", "));
    let [one, other] = [(); 2].map(|()| Admin::with_tokens(&store));
    let id = created(&one, json!({ "action": "ban", "target": { "address": "127.0.0.1" } })).await;
    until_banned(&other, true).await;
    remove(&other, &id).await;
    until_banned(&one, false).await;
}
