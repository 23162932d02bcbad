//! Checks that the permissions in `docs/redis.md` suffice for a Redis user.

use std::time::Duration;

use deadpool_redis::redis::{Connection, Value, cmd};
use tidegate::redisson::{Mode, RateConfig, RateLimiter, TrySetRate};
use tidegate_limit::AlgorithmName;

use crate::admin_api::{Admin, TOKEN};
use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::{adopted, per_client};

/// Creates the user with the commands of the page.
fn create_user(redis: &mut Connection) {
    let has_functions = cmd("FUNCTION").arg("LIST").exec(redis).is_ok();
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md")).expect("the page");
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("ACL SETUSER")).collect();
    assert_eq!(lines.len(), 2);
    for line in lines {
        let is_known = |word: &&str| has_functions || !["+fcall", "+function|load"].contains(word);
        let words: Vec<&str> = line.split(' ').skip(1).filter(is_known).collect();
        cmd("ACL").arg(&words).exec(redis).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

/// Returns the commands that Redis denied to the user, except `CLIENT SETINFO`, which the client library can do
/// without.
fn denied(redis: &mut Connection) -> Vec<String> {
    let log: Vec<Value> = cmd("ACL").arg("LOG").query(redis).expect("a log");
    let log = log.iter().map(|entry| format!("{entry:?}"));
    log.filter(|entry| !entry.contains("client|setinfo") && !entry.contains("\"client\"")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_acl_suffices_for_all_algorithms() {
    let Some(server) = RedisServer::start() else { return };
    let mut redis = server.connection();
    create_user(&mut redis);
    cmd("HSET").arg(&["mails", "rate", "1", "interval", "3600000", "type", "0"]).exec(&mut redis).expect("a limiter");
    let own = |algorithm: &AlgorithmName| {
        let interval = if *algorithm == AlgorithmName::FixedWindow { "month" } else { "1h" };
        let name = algorithm.name();
        let limit = format!(
            "name: l, mode: PER_CLIENT, client: 'query:k', rate: 1, interval: {interval}, on_store_failure: deny, \
             algorithm: {name}"
        );
        (name.to_owned(), limit)
    };
    let mut limits: Vec<(String, String)> = AlgorithmName::ALL.iter().map(own).collect();
    limits.push(("shared".into(), "name: l, key: mails, adopt: true, on_store_failure: deny".into()));
    let routes: String = limits
        .iter()
        .map(|(name, limit)| {
            format!("  - {{ name: {name}, match: {{ path: /{name} }}, upstream: echo, limits: [{{ {limit} }}] }}\n")
        })
        .collect();
    let url = format!("redis://tidegate:SECRET@127.0.0.1:{}", server.port);
    let gateway = TestGateway::start(&format!(
        "store: {{ url: '{url}', timeout: 5s }}\n\
         upstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes:\n{routes}"
    ));
    for (name, _) in &limits {
        let path = format!("/{name}?k=1");
        let first = gateway.get(&path, "").await;
        assert_eq!(first.status(), 200, "{name}: {}, {:?}", first.text(), denied(&mut redis));
        if name != "leaky_bucket" {
            assert_eq!(gateway.get(&path, "").await.status(), 429, "{name}");
        }
    }
    let store =
        RedisServer::store_at(format!("redis://tidegate:SECRET@127.0.0.1:{}", server.port), Duration::from_secs(10));
    for charge in [per_client("{tidegate:fixed_window}:l", b"1", 1, 1_000, 1), adopted("mails", None, Some("1"), 1)] {
        store.inspect(&charge).await.unwrap_or_else(|error| panic!("{error}, {:?}", denied(&mut redis)));
        store.reset(&charge).await.expect("a reset");
        store.reset_limit(&charge.limiter).await.expect("a reset");
    }
    let admin = Admin::with_tokens(&format!("store: {{ url: '{url}', timeout: 5s }}\n"));
    let ban = r#"{ "action": "ban", "target": { "address": "192.0.2.1" }, "for": "1h", "reason": "a test" }"#;
    let (status, banned) = admin.send("POST", "overrides", &format!("Authorization: Bearer {TOKEN}\r\n"), ban).await;
    assert_eq!(status, 201, "{banned}, {:?}", denied(&mut redis));
    let id = banned["id"].as_str().expect("an id");
    assert_eq!(admin.change(&format!("overrides/{id}")).await.0, 200, "{:?}", denied(&mut redis));
    let fields = format!("Authorization: Bearer {TOKEN}\r\n");
    let (status, fleet) = admin.api("GET", "fleet", "").await;
    assert_eq!((status, &fleet["shared"]), (200, &true.into()), "{fleet}, {:?}", denied(&mut redis));
    let (status, result) = admin.send("POST", "fleet/commands", &fields, r#"{ "action": "reload" }"#).await;
    let is_own = |one: &serde_json::Value| one["detail"] == "the gateway has no rule file";
    let gateways = result["gateways"].as_array();
    assert!(status == 200 && gateways.is_some_and(|all| all.iter().any(is_own)), "{result}, {:?}", denied(&mut redis));
    assert_eq!(denied(&mut redis), [""; 0]);
}

#[tokio::test]
async fn documented_acl_suffices_for_the_library() {
    let Some(server) = RedisServer::start() else { return };
    let mut redis = server.connection();
    create_user(&mut redis);
    let url = format!("redis://tidegate:SECRET@127.0.0.1:{}", server.port);
    let mails = RateLimiter::new(RedisServer::store_at(url, Duration::from_secs(10)), "mails").expect("a limiter");
    let rate = RateConfig::new(Mode::Overall, 3, Duration::from_secs(3_600)).expect("a rate");
    assert_eq!(mails.try_set_rate(&rate).await.expect("set"), TrySetRate::Set);
    assert!(mails.try_acquire(2).await.expect("acquired").granted);
    assert_eq!(mails.release(1).await.expect("released"), 1);
    assert_eq!(mails.available_permits().await.expect("a number"), 2);
    mails.ensure_rate(&rate).await.expect("ensured");
    assert!(mails.expire(Duration::from_secs(60)).await.expect("expires"));
    assert!(mails.clear_expire().await.expect("stays"));
    mails.set_rate(&rate).await.expect("set again");
    assert!(mails.time_to_live().await.expect("a reply").is_none());
    assert!(mails.delete().await.expect("deleted"));
    assert_eq!(denied(&mut redis), [""; 0]);
}
