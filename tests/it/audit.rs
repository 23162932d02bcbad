//! The audit list that gateways on one Redis share.

use serde_json::{Value, json};

use crate::admin_api::Admin;
use crate::support::redis::RedisServer;
use crate::support::wire::soon;

async fn entries(admin: &Admin) -> Vec<Value> {
    admin.api("GET", "audit", "").await.1.as_array().expect("a list").clone()
}

/// Returns the reasons of the entries, and whether they are shared.
async fn reasons(admin: &Admin) -> Vec<(String, bool)> {
    let reason = |entry: &Value| (entry["reason"].as_str().unwrap_or("-").to_owned(), entry["shared"] == true);
    entries(admin).await.iter().map(reason).collect()
}

fn shown(reasons: &[(&str, bool)]) -> Vec<(String, bool)> {
    reasons.iter().map(|(reason, is_shared)| ((*reason).to_owned(), *is_shared)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_share_the_audit_list_also_after_an_outage() {
    let Some(redis) = RedisServer::start() else { return };
    let store = format!("store: {}\n", redis.rule());
    let [one, other] = [Admin::with_tokens(&store), Admin::with_tokens(&store)];
    let reset = async |admin: &Admin, reason: &str| {
        let (status, said) = admin.change(&format!("limits/rest/own/client?value=k&reason={reason}")).await;
        assert!([200, 503].contains(&status), "{said}");
    };
    reset(&one, "first").await;
    reset(&other, "second").await;
    let both = shown(&[("second", true), ("first", true)]);
    soon(async { while reasons(&one).await != both || reasons(&other).await != both {} }).await;
    assert_eq!(entries(&one).await, entries(&other).await);

    redis.signal("STOP");
    reset(&one, "third").await;
    let own = shown(&[("third", false), ("second", false), ("first", false)]);
    soon(async { while reasons(&one).await != own {} }).await;
    redis.signal("CONT");
    let all = shown(&[("third", true), ("second", true), ("first", true)]);
    soon(async { while reasons(&other).await != all {} }).await;
    soon(async { while reasons(&one).await != all {} }).await;
    assert_ne!(entries(&other).await[0]["outcome"], json!("done"), "the store did not reply");

    // A new gateway shows what was changed before.
    drop(one);
    assert_eq!(reasons(&Admin::with_tokens(&store)).await, all);
}
