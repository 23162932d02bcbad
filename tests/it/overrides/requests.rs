//! Requests for overrides that the API rejects, and the bounds.

use deadpool_redis::redis::{self, cmd};
use serde_json::{Value, json};

use super::{authorized, create, created};
use crate::admin_api::{Admin, RULES};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;

#[tokio::test]
async fn invalid_overrides_are_problems() {
    let admin = Admin::with_tokens("");
    let address = json!({ "address": "192.0.2.1" });
    let long = "x".repeat(257);
    for (body, expected, text) in [
        (json!({ "action": "block", "target": address }), 400, "unknown variant `block`"),
        (json!({ "action": "ban" }), 400, "missing field `target`"),
        (json!({ "action": "ban", "target": {} }), 400, "the body is not valid"),
        (json!({ "action": "ban", "target": { "ip": "192.0.2.1" } }), 400, "unknown variant `ip`"),
        (json!({ "action": "ban", "target": address, "colour": 1 }), 400, "unknown field `colour`"),
        (json!({ "action": "ban", "target": { "address": "192.0.2.1/33" } }), 400, "not an IP address"),
        (json!({ "action": "ban", "target": { "address": "0.0.0.0/0" } }), 422, "larger than /8: set `force`"),
        (json!({ "action": "ban", "target": { "address": "10.0.0.0/7" } }), 422, "10.0.0.0/7"),
        (json!({ "action": "ban", "target": { "address": "::ffff:0.0.0.0/96" } }), 422, "0.0.0.0/0"),
        (json!({ "action": "ban", "target": { "address": "2000::/18" } }), 422, "larger than /19"),
        (json!({ "action": "ban", "target": { "hash": "12" } }), 400, "32 hexadecimal digits"),
        (json!({ "action": "ban", "target": { "client": ["k"] } }), 400, "`--limit`"),
        (json!({ "action": "ban", "scope": "rest", "target": { "client": ["k"] } }), 400, "`--limit`"),
        (json!({ "action": "ban", "scope": "rest/own", "target": { "client": ["k", "l"] } }), 400, "1 value(s) needed"),
        (json!({ "action": "ban", "scope": "none", "target": address }), 404, "no route"),
        (json!({ "action": "ban", "scope": "rest/none", "target": address }), 404, "no limit"),
        (json!({ "action": "ban", "scope": "rest/own/x", "target": address }), 400, "ROUTE/LIMIT"),
        (json!({ "action": "ban", "target": address, "rate": 5 }), 400, "only to `adjust`"),
        (json!({ "action": "adjust", "target": address }), 400, "either `rate` or `multiply`"),
        (json!({ "action": "adjust", "target": address, "rate": 5 }), 400, "needs a limit"),
        (json!({ "action": "adjust", "target": address, "multiply": 0 }), 400, "0.001 to 1000000"),
        (json!({ "action": "adjust", "target": address, "multiply": "5" }), 400, "either `rate` or `multiply`"),
        (json!({ "action": "adjust", "scope": "rest/own", "target": address, "rate": 0 }), 400, "between 1 and"),
        (json!({ "action": "adjust", "scope": "rest/all", "target": address, "rate": 5 }), 422, "OVERALL"),
        (json!({ "action": "ban", "target": address, "for": "1 h" }), 400, "not a duration"),
        (json!({ "action": "ban", "target": address, "for": "0s" }), 400, "in the future"),
        (json!({ "action": "ban", "target": address, "for": "31d" }), 400, "at most 30 days"),
        (json!({ "action": "ban", "target": address, "until": "tomorrow" }), 400, "RFC 3339"),
        (json!({ "action": "ban", "target": address, "until": "2020-01-01T00:00:00Z" }), 400, "in the future"),
        (json!({ "action": "ban", "target": address, "for": "1h", "until": "2020-01-01T00:00:00Z" }), 400, "either"),
        (json!({ "action": "ban", "target": address, "reason": " " }), 400, "1 to 256 bytes"),
        (json!({ "action": "ban", "target": address, "reason": long }), 400, "1 to 256 bytes"),
    ] {
        let (status, problem) = create(&admin, body.clone()).await;
        assert_eq!((status, &problem["status"]), (expected, &json!(expected)), "{body}: {problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(text)), "{body}: {problem}");
    }
    let body = json!({ "action": "ban", "target": address, "reason": "a" });
    let (status, problem) = admin.send("POST", "overrides", &authorized(), &body.to_string()).await;
    assert_eq!((status, problem["detail"].as_str().is_some_and(|detail| detail.contains("end"))), (400, true));
    assert_eq!(admin.send("POST", "overrides", &authorized(), &" ".repeat(65 * 1024)).await.0, 413);
    assert_eq!(admin.api("GET", "overrides", "").await, (200, json!([])));
    assert_eq!(admin.api("GET", "audit", "").await.1, json!([]));
    assert_eq!(admin.change("overrides/none").await.0, 404);
    assert_eq!(admin.change("overrides/0123456789abcdef").await.0, 404);
}

#[tokio::test]
async fn ban_of_a_large_network_needs_force() {
    let admin = Admin::with_tokens("");
    for network in ["10.0.0.0/8", "2000::/19"] {
        drop(created(&admin, json!({ "action": "ban", "target": { "address": network } })).await);
    }
    let all =
        |action: &str, force: bool| json!({ "action": action, "target": { "address": "0.0.0.0/0" }, "force": force });
    assert_eq!(create(&admin, all("ban", false)).await.0, 422);
    assert_eq!(create(&admin, all("exempt", false)).await.0, 201, "an exemption rejects nothing");
    assert_eq!(admin.request("/", "").await.status(), 200);
    drop(created(&admin, all("ban", true)).await);
    assert_eq!(admin.request("/", "").await.status(), 403);
}

#[tokio::test]
async fn rate_of_a_shared_limiter_cannot_be_adjusted() {
    let Some(redis) = RedisServer::start() else { return };
    let admin = Admin::with_tokens("");
    let rules = format!(
        "store: {}\nupstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes: [{{ name: rest, match: {{}}, upstream: echo, limits: [
  {{ name: own, mode: PER_CLIENT, client: ip, key: java, rate: 1, interval: 1h }} ] }}]
",
        redis.rule()
    );
    admin.reload(&rules);
    let adjust = |scope: Value| json!({ "action": "adjust", "scope": scope, "target": { "address": "127.0.0.1" }, "multiply": 9 });
    let (status, problem) = create(&admin, adjust(json!("rest/own"))).await;
    assert_eq!(
        (status, problem["detail"].as_str().is_some_and(|text| text.contains("Redisson"))),
        (422, true),
        "{problem}"
    );
    drop(created(&admin, adjust(json!(null))).await);
    assert_eq!([admin.request("/", "").await.status(), admin.request("/", "").await.status()], [200, 429]);
    let rate: String = cmd("HGET").arg("java").arg("rate").query(&mut redis.connection()).expect("a rate");
    assert_eq!(rate, "1");
}

#[tokio::test]
async fn change_of_overrides_needs_a_token() {
    let body = json!({ "action": "ban", "target": { "address": "192.0.2.1" }, "for": "1h", "reason": "a" }).to_string();
    let admin = Admin::start("127.0.0.1:0", "");
    assert_eq!(admin.send("POST", "overrides", &authorized(), &body).await.0, 403);
    assert_eq!(admin.change("overrides/0123456789abcdef").await.0, 403);
    let admin = Admin::with_tokens("");
    assert_eq!(admin.send("POST", "overrides", "", &body).await.0, 401);
    assert_eq!(admin.send("POST", "overrides", "Authorization: Bearer no\r\n", &body).await.0, 401);
    let other_site = format!("{}Origin: http://evil.example\r\n", authorized());
    assert_eq!(admin.send("POST", "overrides", &other_site, &body).await.0, 403);
    assert_eq!(admin.api("GET", "overrides", "").await, (200, json!([])));
    assert_eq!(admin.send("POST", "overrides", &authorized(), &body).await.0, 201);
    assert_eq!(admin.api("GET", "overrides", "").await.1[0]["by"], "ann");
}

async fn replaces_only_if_asked(admin: &Admin) {
    let ban = |until: &str, replace: bool| json!({ "action": "ban", "target": { "address": "192.0.2.1" }, "for": until, "replace": replace });
    let id = created(admin, ban("1h", false)).await;
    let (status, problem) = create(admin, ban("2h", false)).await;
    assert_eq!((status, &problem["id"]), (409, &json!(id)), "{problem}");
    let (_, before) = admin.api("GET", &format!("overrides/{id}"), "").await;
    assert_eq!(created(admin, ban("2h", true)).await, id);
    let (_, after) = admin.api("GET", &format!("overrides/{id}"), "").await;
    assert!(after["until"].as_str() > before["until"].as_str(), "{before} {after}");
    let other = json!({ "action": "exempt", "target": { "address": "192.0.2.1" } });
    assert_ne!(created(admin, other).await, id, "another action is another override");
    assert_eq!(admin.api("GET", "overrides", "").await.1.as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn override_is_replaced_only_on_request_in_memory() {
    replaces_only_if_asked(&Admin::with_tokens("")).await;
}

#[tokio::test]
async fn override_is_replaced_only_on_request_in_redis() {
    let Some(redis) = RedisServer::start() else { return };
    replaces_only_if_asked(&Admin::with_tokens(&format!("store: {}\n", redis.rule()))).await;
}

/// Also entries that this version cannot read count, and ended ones are removed by the next write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn number_of_overrides_is_bounded() {
    let Some(redis) = RedisServer::start() else { return };
    let admin = Admin::with_tokens(&format!("store: {}\n", redis.rule()));
    let id = created(&admin, json!({ "action": "ban", "target": { "address": "192.0.2.1" } })).await;
    let mut connection = redis.connection();
    let (texts, ends) = ("{tidegate:@operators}:overrides", "{tidegate:@operators}:overrides:ends");
    let mut fill = redis::pipe();
    for number in 1..10_000 {
        fill.cmd("HSET").arg(texts).arg(number).arg("{}").ignore();
        fill.cmd("ZADD").arg(ends).arg("9999999999999").arg(number).ignore();
    }
    fill.exec(&mut connection).expect("filled");
    let another = json!({ "action": "ban", "target": { "address": "192.0.2.2" } });
    let (status, problem) = create(&admin, another.clone()).await;
    assert_eq!(
        (status, problem["detail"].as_str().is_some_and(|text| text.contains("10000"))),
        (422, true),
        "{problem}"
    );
    let replaced = json!({ "action": "ban", "target": { "address": "192.0.2.1" }, "replace": true });
    assert_eq!(created(&admin, replaced).await, id);
    cmd("ZADD").arg(ends).arg(1).arg("17").exec(&mut connection).expect("ended");
    drop(created(&admin, another).await);
    let is_kept: bool = cmd("HEXISTS").arg(texts).arg("17").query(&mut connection).expect("a reply");
    assert!(!is_kept);
    assert_eq!(admin.api("GET", "overrides", "").await.1.as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn bans_of_the_rule_file_answer_banned_clients() {
    let admin = Admin::with_tokens("bans: { status: 404, body: gone, headers: { X-Reason: policy } }\n");
    drop(created(&admin, json!({ "action": "ban", "target": { "address": "127.0.0.1" } })).await);
    let response = admin.request("/", "").await;
    assert_eq!((response.status(), response.text().as_str()), (404, "gone"));
    assert_eq!(response.field("x-reason").as_deref(), Some("policy"));
    assert_eq!(response.field("content-type").as_deref(), Some("text/plain; charset=utf-8"));
    let retry_after: u64 = response.field("retry-after").and_then(|value| value.parse().ok()).expect("a number");
    assert!((3_500..=3_600).contains(&retry_after), "{retry_after}");
    let mut client = Raw::connect(admin.gateway().addresses()[0].tcp().expect("an address")).await;
    let call = "POST /s/m HTTP/1.1\r\nHost: a.example\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n";
    let error = client.ask(call).await;
    assert!(error.status() == 200 && error.field("grpc-status").is_some(), "{error:?}");
    admin.reload(RULES);
    assert_eq!(admin.request("/", "").await.status(), 403);
}
