//! The gateways that share a Redis: what they announce about themselves, and commands for all of them.

mod commands;
mod member;

use std::time::Duration;

use deadpool_redis::redis::cmd;
use serde_json::{Value, json};

use self::member::Member;
use crate::admin_api::{Admin, TOKEN};
use crate::support::cluster::RedisCluster;
use crate::support::redis::RedisServer;
use crate::support::wire::{soon, until_within};

/// Returns a property of each gateway, by name.
fn each(fleet: &Value, key: &str) -> Vec<Value> {
    fleet["gateways"].as_array().expect("a list").iter().map(|gateway| gateway[key].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_lists_gateways_with_their_rules() {
    let Some(redis) = RedisServer::start() else { return };
    let [one, two] = ["fleet-a", "fleet-b"].map(|name| Member::start(&redis, name, TOKEN, ""));
    let fleet = one.until_lists(2).await;
    assert_eq!(each(&fleet, "name"), ["fleet-a", "fleet-b"]);
    assert_eq!(each(&fleet, "self"), [true, false]);
    assert_eq!(each(&fleet, "version"), [env!("CARGO_PKG_VERSION"); 2]);
    assert_eq!(each(&fleet, "ready"), [true; 2]);
    soon(async { while !one.get("fleet").await["differences"].as_array().expect("a list").is_empty() {} }).await;
    let (code, out) = one.run(&["fleet"]);
    assert_eq!((code, out.contains("fleet-a (this)  0."), out.contains("hash")), (0, true, false), "{out}");

    let third = Member::start(&redis, "fleet-c", TOKEN, "# changed\n");
    two.until_lists(3).await;
    let own = third.get("status").await;
    let expected = [json!([]), json!([]), json!(["hash"])];
    soon(async { while each(&two.get("fleet").await, "differs") != expected {} }).await;
    let fleet = two.get("fleet").await;
    assert_eq!(each(&fleet, "hash")[2], own["config"]["hash"]);
    assert_eq!(each(&fleet, "applied_at")[2], own["config"]["applied_at"]);
    let (code, out) = one.run(&["fleet"]);
    let line = out.lines().find(|line| line.starts_with("fleet-c")).unwrap_or_else(|| panic!("no gateway in {out}"));
    assert_eq!((code, line.ends_with("  hash")), (1, true), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_gateway_disappears_from_the_fleet() {
    let Some(redis) = RedisServer::start() else { return };
    let one = Member::start(&redis, "ends-a", TOKEN, "");
    let other = Member::start(&redis, "ends-b", TOKEN, "# changed\n");
    one.until_lists(2).await;
    one.until_metric("tidegate_fleet_rule_hashes", "2").await;
    drop(other);
    let lists_other = || one.run(&["fleet"]).1.contains("ends-b");
    assert!(lists_other(), "it was seen a moment ago");
    until_within(Duration::from_secs(60), || !lists_other()).await;
    one.until_metric("tidegate_fleet_rule_hashes", "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_without_details_is_unknown() {
    let Some(redis) = RedisServer::start() else { return };
    let one = Member::start(&redis, "old-a", TOKEN, "");
    one.until_lists(1).await;
    let mut connection = redis.connection();
    let (seconds, _): (u64, u64) = cmd("TIME").query(&mut connection).expect("a time");
    let mut add = |key: &str, member: &str| {
        cmd("ZADD").arg(key).arg(seconds * 1_000).arg(member).exec(&mut connection).expect("added");
    };
    // An older version is only a member; another program wrote something else.
    add("{tidegate:gateways}", "older");
    add("{tidegate:@operators}:fleet:seen", "broken");
    let fleet = "{tidegate:@operators}:fleet";
    cmd("HSET").arg(&[fleet, "broken", "{\"name\":\"\u{1b}[m\"}"]).exec(&mut redis.connection()).expect("written");
    let fleet = one.get("fleet").await;
    assert_eq!(each(&fleet, "id").len(), 3, "{fleet}");
    for gateway in fleet["gateways"].as_array().expect("a list") {
        let is_known = gateway["self"] == true;
        assert_eq!((gateway["name"].is_null(), gateway["version"].is_null()), (!is_known, !is_known), "{gateway}");
        assert_eq!(gateway["differs"], if is_known { json!([]) } else { json!(["version"]) });
    }
    let (code, out) = one.run(&["fleet"]);
    let unknown = |line: &&str| line.split_whitespace().filter(|cell| *cell == "unknown").count() == 5;
    assert_eq!((code, out.lines().filter(unknown).count()), (1, 2), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_with_embedded_store_lists_itself() {
    let admin = Admin::with_tokens("");
    let (_, fleet) = admin.api("GET", "fleet", "").await;
    assert_eq!((&fleet["shared"], each(&fleet, "self")), (&json!(false), vec![json!(true)]));
    assert!(each(&fleet, "name")[0].is_string() && each(&fleet, "id")[0].is_null(), "{fleet}");
    let (code, out, _) = admin.run(&["fleet"], None).await;
    assert_eq!((code, out.contains("no file"), out.contains("no other gateway shares it")), (0, true, true), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_of_a_cluster_executes_commands() {
    let Some(cluster) = RedisCluster::start() else { return };
    let store = format!("store: {}\n", cluster.rule("2s"));
    let [one, _other] = [Admin::with_tokens(&store), Admin::with_tokens(&store)];
    let is_known = async || each(&one.api("GET", "fleet", "").await.1, "version").iter().all(Value::is_string);
    let count = async || each(&one.api("GET", "fleet", "").await.1, "version").len();
    soon(async { while count().await < 2 || !is_known().await {} }).await;
    let fields = format!("Authorization: Bearer {TOKEN}\r\n");
    let (status, result) = one.send("POST", "fleet/commands", &fields, r#"{ "action": "reload" }"#).await;
    assert_eq!((status, each(&result, "detail")), (200, vec![json!("the gateway has no rule file"); 2]), "{result}");
}
