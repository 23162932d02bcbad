//! Operators list the clients that limits reject most.

use deadpool_redis::redis;
use serde_json::{Value, json};

use crate::admin_api::{Admin, TOKEN};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

/// Sends requests of a client with this key. Returns the number of rejected ones.
async fn reject(admin: &Admin, key: &str, requests: usize) -> u64 {
    let mut rejected = 0;
    for _ in 0..requests {
        let field = if key.is_empty() { String::new() } else { format!("X-Key: {key}\r\n") };
        rejected += u64::from(admin.request("/", &field).await.status() == 429);
    }
    rejected
}

async fn list(admin: &Admin, path: &str) -> Vec<Value> {
    let (status, list) = admin.api("GET", path, "").await;
    assert_eq!(status, 200, "{list}");
    list.as_array().expect("a list").clone()
}

fn counts(list: &[Value]) -> Vec<(u64, u64)> {
    let number = |one: &Value, key: &str| one[key].as_u64().expect("a number");
    list.iter().map(|one| (number(one, "count"), number(one, "error"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_clients_are_listed_with_their_lines() {
    let admin = Admin::with_tokens("");
    assert!(list(&admin, "rejected").await.is_empty());
    assert_eq!(reject(&admin, "secret-1", 5).await, 3);
    assert_eq!(reject(&admin, "secret-2", 4).await, 2);
    assert_eq!(reject(&admin, "", 3).await, 1);
    let all = list(&admin, "rejected").await;
    assert_eq!(counts(&all), [(3, 0), (2, 0), (1, 0)]);
    assert_eq!(all[2]["client"], "127.0.0.1");
    let hash = all[0]["client"].as_str().expect("a hash");
    assert!(hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
    let (_, limits) = admin.api("GET", "limits", "").await;
    let names = ["route", "limit"].map(|key| all[0][key].clone());
    assert_eq!((names, &all[0]["location"]), ([json!("rest"), json!("own")], &limits[0]["location"]));
    assert!(all[0]["since"].as_str() <= all[0]["last"].as_str(), "{}", all[0]);
    assert!(!json!(all).to_string().contains("secret-"), "{all:?}");
    // The hash finds the client.
    let (_, client) = admin.api("GET", &format!("limits/rest/own/client?hash={hash}"), "").await;
    assert_eq!(client["used"], 2, "{client}");
    assert_eq!(list(&admin, "limits/rest/own/rejected?minutes=1").await, all);
    assert!(list(&admin, "limits/rest/all/rejected?minutes=5").await.is_empty());
    assert_eq!(list(&admin, "rejected?all=1").await, all, "no other gateway shares the store");
    for (path, status) in [("rejected?minutes=2", 400), ("rejected?all=yes", 400), ("limits/rest/x/rejected", 404)] {
        assert_eq!(admin.api("GET", path, "").await.0, status, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_names_clients_and_the_line_of_their_limit() {
    let admin = Admin::with_tokens("");
    let (_, text, _) = admin.run(&["top"], None).await;
    assert_eq!(text, "no client was rejected in the last 15 minutes\n");
    assert_eq!(reject(&admin, "secret-1", 5).await, 3);
    reject(&admin, "", 3).await;
    let (_, limits) = admin.api("GET", "limits", "").await;
    let line = format!("<text>:{}", limits[0]["location"]["line"]);
    for arguments in [vec!["top"], vec!["top", "rest/own", "--minutes", "5", "--all"]] {
        let (code, text, _) = admin.run(&arguments, None).await;
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!((code, lines[0][0], lines[1].len()), (0, "CLIENT", 7), "{text}");
        assert_eq!(lines[1][1..5], ["3", "exact", "rest/own", &line], "{text}");
        assert_eq!(lines[2][..2], ["127.0.0.1", "1"], "{text}");
        assert!(!text.contains("secret-"), "{text}");
    }
    let (code, text, _) = admin.run(&["top", "--json"], None).await;
    let listed: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &listed[0]["count"]), (0, &json!(3)));
    let (code, _, error) = admin.run(&["top", "rest/other"], None).await;
    assert!(code == 1 && error.contains("no limit"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_shown_only_with_show_clients() {
    let admin = Admin::start("{ address: '127.0.0.1:0', show_clients: true }", "");
    reject(&admin, "K-1", 4).await;
    let long = "k".repeat(1_000);
    reject(&admin, &long, 3).await;
    let all = list(&admin, "rejected").await;
    let values: Vec<_> = all.iter().map(|one| one["value"].as_str()).collect();
    assert_eq!(values, [Some("K-1"), Some(&*("k".repeat(128) + "..."))]);
    let (_, text, _) = admin.run(&["top"], None).await;
    assert!(text.contains(&format!("K-1 ({})", all[0]["client"].as_str().expect("a hash"))), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejections_by_the_cache_and_by_local_buckets_are_counted() {
    let Some(redis) = RedisServer::start() else { return };
    let admin = Admin::with_tokens(&format!("store: {}\n", redis.rule()));
    let by_store = reject(&admin, "a", 6).await;
    assert_eq!(by_store, 4, "the first comes from Redis, the others from the cache");
    redis.signal("STOP");
    let mut locally = 0;
    soon(async {
        while locally < 3 {
            locally += reject(&admin, "b", 1).await;
        }
    })
    .await;
    let all = list(&admin, "rejected").await;
    assert_eq!(counts(&all), [(by_store, 0), (locally, 0)]);
    assert_eq!(admin.api("GET", "rejected?all=1", "").await.0, 503);
    redis.signal("CONT");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejections_of_two_gateways_are_merged() {
    let Some(redis) = RedisServer::start() else { return };
    let store = format!("store: {}\n", redis.rule());
    let [one, other] = [Admin::with_tokens(&store), Admin::with_tokens(&store)];
    let a = reject(&one, "a", 5).await + reject(&other, "a", 3).await;
    let b = reject(&other, "b", 4).await;
    assert_eq!((a, b), (6, 2));
    assert_eq!(counts(&list(&one, "rejected").await).len(), 1);
    // Gateways also share rejections that a request of an operator has collected.
    assert_eq!(counts(&list(&other, "rejected").await).len(), 2);
    soon(async { while counts(&list(&one, "rejected?all=1").await) != [(a, 0), (b, 0)] {} }).await;
    let (_, text, _) = one.run(&["top", "--all"], None).await;
    assert!(text.lines().nth(2).is_some_and(|line| line.contains("  2  ")), "{text}");
    let limit = list(&other, "limits/rest/own/rejected?all=1&minutes=1").await;
    assert_eq!(counts(&limit), [(a, 0), (b, 0)]);
    let mut connection = redis.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*@operators}:rejected*").query(&mut connection).expect("keys");
    assert_eq!(keys.len(), 2, "{keys:?}");
    for key in keys {
        let ttl: i64 = redis::cmd("TTL").arg(&key).query(&mut connection).expect("a time");
        assert!((1..=17 * 60).contains(&ttl), "{key}: {ttl}");
    }
}

/// A gateway whose clock is ahead does not remove what other gateways share.
#[test]
fn gateways_remove_their_own_minutes_and_old_ones() {
    let Some(server) = RedisServer::start() else { return };
    let mut connection = server.connection();
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection).expect("a time");
    let now = seconds / 60;
    let mut eval = |arguments: &[&str]| -> Option<Vec<String>> {
        let mut script = redis::cmd("EVAL");
        script.arg(include_str!("../../lua/rejected.lua")).arg(2).arg("texts").arg("minutes").arg(arguments);
        script.query(&mut connection).expect("a reply")
    };
    // Gateway, minute of the gateway, first minute.
    let mut put = |gateway: &str, minute: u64| {
        let (field, minute, first) = (format!("{gateway}:{minute}"), minute.to_string(), (minute - 15).to_string());
        eval(&["put", &field, &minute, &field, &first, "60000"]);
        eval(&["read", "0"]).expect("texts")
    };
    let text = |gateway: &str, minute: u64| format!("{gateway}:{minute}");
    assert_eq!(put("behind", now - 30), [text("behind", now - 30)]);
    assert_eq!(put("own", now), [text("own", now)]);
    assert_eq!(put("ahead", now + 30), [text("own", now), text("ahead", now + 30)]);
    assert_eq!(put("ahead", now + 46), [text("own", now), text("ahead", now + 46)]);
    assert_eq!(put("ahead", now + 1), [text("own", now), text("ahead", now + 1)]);
}

const OTHER_CAUSES: &str = "upstreams: { echo: { targets: ['builtin:echo'] } }
identities: { keys: { header: x-api-key, file: FOLDER/keys } }
routes:
  - { name: private, match: { path: /private }, require: { keys: { tier: partner } }, upstream: echo }
  - { name: busy, match: { path: /busy }, concurrency: { max: 9, per_client: 1, client: 'header:x-key' }, upstream: echo }
  - { name: rest, match: {}, upstream: echo }
";

/// Starts a gateway with routes that reject requests without limits.
fn without_limits(store: &str) -> Admin {
    let admin = Admin::with_tokens(store);
    std::fs::write(admin.folder.join("keys"), "k-basic: { id: basic, tier: basic }\n").expect("written");
    std::fs::write(admin.folder.join("token"), format!("{TOKEN}\n")).expect("written");
    let folder = admin.folder.to_str().expect("a path in UTF-8").to_owned();
    admin.reload(&(store.to_owned() + &OTHER_CAUSES.replace("FOLDER", &folder)));
    admin
}

/// Sends requests that all get this status.
async fn refuse(admin: &Admin, path: &str, fields: &str, (status, requests): (u16, usize)) {
    for _ in 0..requests {
        assert_eq!(admin.request(path, fields).await.status(), status, "{path} {fields}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_causes_are_listed_by_route() {
    let admin = without_limits("");
    refuse(&admin, "/private", "X-Api-Key: secret-1\r\n", (401, 3)).await;
    refuse(&admin, "/private", "X-Api-Key: k-basic\r\n", (403, 2)).await;
    let address = admin.gateway().addresses()[0].tcp().expect("an address");
    let mut held = Raw::connect(address).await;
    held.send("POST /busy HTTP/1.1\r\nHost: a\r\nX-Key: secret-2\r\nContent-Length: 2\r\n\r\na").await;
    soon(held.head()).await.expect("a response that has begun");
    refuse(&admin, "/busy", "X-Key: secret-2\r\n", (429, 4)).await;
    refuse(&admin, "/busy", "X-Key: secret-3\r\n", (200, 1)).await;
    let ban = ["ban", "--address", "127.0.0.0/8", "--for", "1h", "--reason", "a test"];
    let (code, _, errors) = admin.run(&ban, Some(&admin.folder.join("token"))).await;
    assert_eq!(code, 0, "{errors}");
    refuse(&admin, "/", "", (403, 5)).await;

    let all = list(&admin, "rejected").await;
    assert_eq!(counts(&all), [(5, 0), (4, 0), (3, 0), (2, 0)]);
    let by: Vec<_> = all.iter().map(|one| [&one["route"], &one["cause"]].map(|name| name.as_str())).collect();
    let expected =
        [("rest", "banned"), ("busy", "concurrency"), ("private", "not_identified"), ("private", "not_allowed")];
    assert_eq!(by, expected.map(|(route, cause)| [Some(route), Some(cause)]));
    assert!(all.iter().all(|one| one["limit"].is_null() && one["location"].is_null()), "{all:?}");
    let clients: Vec<_> = all.iter().map(|one| one["client"].as_str().expect("a client")).collect();
    assert_eq!((clients[0], clients[1].len(), clients[2], clients[3]), ("127.0.0.1", 32, "127.0.0.1", "127.0.0.1"));
    assert!(!json!(all).to_string().contains("secret-"), "{all:?}");
    let (_, text, _) = admin.run(&["top"], None).await;
    assert!(text.contains("rest (banned)") && text.contains("busy (concurrency)"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_route_is_listed_for_all_clients() {
    let admin = Admin::with_tokens("");
    admin.reload(
        "upstreams: { echo: { targets: ['builtin:echo'] } }
routes: [{ name: busy, match: {}, concurrency: { max: 1 }, upstream: echo }]\n",
    );
    let mut held = Raw::connect(admin.gateway().addresses()[0].tcp().expect("an address")).await;
    held.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na").await;
    soon(held.head()).await.expect("a response that has begun");
    refuse(&admin, "/", "", (503, 2)).await;
    let all = list(&admin, "rejected").await;
    assert_eq!((counts(&all), &all[0]["client"]), (vec![(2, 0)], &Value::Null));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_causes_of_two_gateways_are_merged() {
    let Some(redis) = RedisServer::start() else { return };
    let store = format!("store: {}\n", redis.rule());
    let [one, other] = [without_limits(&store), without_limits(&store)];
    refuse(&one, "/private", "", (401, 3)).await;
    refuse(&other, "/private", "", (401, 2)).await;
    list(&other, "rejected").await;
    soon(async { while counts(&list(&one, "rejected?all=1").await) != [(5, 0)] {} }).await;
    let all = list(&one, "rejected?all=1").await;
    assert_eq!((&all[0]["cause"], &all[0]["limit"]), (&json!("not_identified"), &Value::Null));
}
