//! The permits of clients whose rate depends on the request: with their tier and override, or with all rates.

use serde_json::{Value, json};

use crate::admin_api::{Admin, TOKEN};
use crate::support::process::RuleFile;
use crate::support::redis::RedisServer;

const TIERS: &str = "tiers: { free: { rate: 2, interval: 1h }, pro: { rate: 100000, interval: 1h } }";

/// Returns rules with a limit `all/plan` with these keys.
fn rules(more: &str, keys: &str) -> String {
    format!(
        "{more}
clients: {{ trusted_proxies: [127.0.0.1] }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
{TIERS}
routes:
  - {{ name: all, match: {{ path: /** }}, upstream: echo, limits: [{{ name: plan, mode: PER_CLIENT, {keys} }}] }}
"
    )
}

const BY_HEADER: &str = "client: 'header:x-key', tier: { by: 'header:x-plan', default: free }";

/// Starts a gateway with these rules.
fn start(rules: &str) -> Admin {
    let admin = Admin::with_tokens("");
    admin.reload(rules);
    admin
}

async fn send(admin: &Admin, fields: &str, expected: &[u16]) {
    for status in expected {
        assert_eq!(admin.request("/", fields).await.status(), *status, "{fields}");
    }
}

async fn state(admin: &Admin, query: &str) -> Value {
    let (status, state) = admin.api("GET", &format!("limits/all/plan/client?{query}"), "").await;
    assert_eq!(status, 200, "{state}");
    state
}

/// Creates an override of the client `k`.
async fn adjust(admin: &Admin, change: (&str, u32)) -> String {
    let mut body = json!({ "action": "adjust", "scope": "all/plan", "target": { "client": ["k"] }, "for": "1h", "reason": "a test" });
    body[change.0] = json!(change.1);
    let fields = format!("Authorization: Bearer {TOKEN}\r\n");
    let (status, created) = admin.send("POST", "overrides", &fields, &body.to_string()).await;
    assert_eq!(status, 201, "{created}");
    created["id"].as_str().expect("an id").to_owned()
}

/// Returns the tier, its source, the rate and the remaining permits.
fn figures(state: &Value) -> [Value; 4] {
    ["tier", "rate_from", "rate", "remaining"].map(|key| state[key].clone())
}

/// The tier is in a header field, so that no figure is the client's before the operator names the tier.
async fn shows_all_tiers_until_one_is_named(admin: &Admin) {
    send(admin, "X-Key: k\r\nX-Plan: pro\r\n", &[200; 4]).await;
    let unknown = state(admin, "value=k").await;
    assert_eq!(figures(&unknown), [Value::Null, json!("unknown"), Value::Null, Value::Null]);
    assert_eq!((&unknown["used"], &unknown["granted"]), (&Value::Null, &json!(false)));
    let rates: Vec<_> = unknown["rates"]
        .as_array()
        .expect("rates")
        .iter()
        .map(|rate| ["tier", "default", "rate", "interval_ms", "remaining", "used"].map(|key| rate[key].clone()))
        .collect();
    let hour = json!(3_600_000);
    let free = [json!("free"), json!(true), json!(2), hour.clone(), json!(0), json!(4)];
    let pro = [json!("pro"), json!(false), json!(100_000), hour, json!(99_996), json!(4)];
    assert_eq!(rates, [free, pro]);
    let named = state(admin, "value=k&tier=pro").await;
    assert_eq!(figures(&named), [json!("pro"), json!("parameter"), json!(100_000), json!(99_996)]);
    assert_eq!((&named["used"], &named["granted"]), (&json!(4), &json!(true)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_in_memory_has_the_figures_of_each_tier() {
    shows_all_tiers_until_one_is_named(&start(&rules("store: memory", BY_HEADER))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_in_redis_has_the_figures_of_each_tier() {
    let Some(redis) = RedisServer::start() else { return };
    shows_all_tiers_until_one_is_named(&start(&rules(&format!("store: {}", redis.rule()), BY_HEADER))).await;
}

/// Regression test: the answer had the rate of the default tier, so 0 permits remained where 99,914 remained.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn override_applies_to_the_tier_of_the_client() {
    let Some(redis) = RedisServer::start() else { return };
    let admin = start(&rules(&format!("store: {}", redis.rule()), BY_HEADER));
    send(&admin, "X-Key: k\r\nX-Plan: pro\r\n", &[200; 3]).await;
    let doubled = adjust(&admin, ("multiply", 2)).await;
    let named = state(&admin, "value=k&tier=pro").await;
    assert_eq!(figures(&named), [json!("pro"), json!("parameter"), json!(200_000), json!(199_997)]);
    assert_eq!(named["override"]["id"], json!(doubled));
    assert_eq!(state(&admin, "value=k").await["rates"][0]["rate"], json!(4));
    assert_eq!(admin.change(&format!("overrides/{doubled}")).await.0, 200);
    // A fixed rate is the rate of all tiers.
    adjust(&admin, ("rate", 100_000)).await;
    let any = state(&admin, "value=k").await;
    assert_eq!(figures(&any), [Value::Null, json!("override"), json!(100_000), json!(99_997)]);
    let (code, out, errors) = admin.run(&["client", "all/plan", "k"], None).await;
    assert_eq!((code, out.contains("\nremaining    99997\n")), (0, true), "{out}{errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn banned_client_is_granted_nothing() {
    let admin = start(&rules("store: memory", "client: 'header:x-key', rate: 5, interval: 1h"));
    for (action, granted, code, next) in [("ban", false, 1, "the client is banned"), ("exempt", true, 0, "now: ")] {
        let body = json!({ "action": action, "scope": "all/plan", "target": { "client": [action] }, "for": "1h", "reason": "a test" });
        let fields = format!("Authorization: Bearer {TOKEN}\r\n");
        assert_eq!(admin.send("POST", "overrides", &fields, &body.to_string()).await.0, 201);
        assert_eq!(state(&admin, &format!("value={action}")).await["granted"], json!(granted));
        let (status, out, _) = admin.run(&["client", "all/plan", action], None).await;
        assert_eq!((status, out.contains(&format!("\nnext permit  {next}"))), (code, true), "{out}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_key_of_the_client_has_its_tier() {
    let keys = RuleFile::new(
        "client-rates",
        "k-one: { id: one, tier: pro }\nk-two: { id: two }\nk-three: { id: three, tier: pro }\nk-3: { id: three, tier: free }\n",
    );
    let identities = format!("identities: {{ keys: {{ header: X-Api-Key, file: {} }} }}", keys.path());
    let limit = "client: 'key:id', on_missing_client: ip, tier: { by: 'key:tier', default: free }";
    let admin = start(&rules(&identities, limit));
    send(&admin, "X-Api-Key: k-one\r\n", &[200; 3]).await;
    send(&admin, "X-Api-Key: k-two\r\n", &[200, 200, 429]).await;
    let one = state(&admin, "value=one").await;
    assert_eq!(figures(&one), [json!("pro"), json!("api_key"), json!(100_000), json!(99_997)]);
    // The list of rejected clients and the access log have only the hash.
    let hash = one["client"].as_str().expect("a hash");
    assert_eq!(figures(&state(&admin, &format!("hash={hash}")).await), figures(&one));
    let two = state(&admin, "value=two").await;
    assert_eq!(figures(&two), [json!("free"), json!("api_key"), json!(2), json!(0)]);
    assert_eq!(state(&admin, "value=three").await["rate_from"], "unknown", "its keys have two tiers");
    assert_eq!(state(&admin, "value=four").await["rate_from"], "unknown", "it has no key");
    let address = state(&admin, "address=192.0.2.1").await;
    assert_eq!(figures(&address), [json!("free"), json!("client"), json!(2), json!(2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn number_of_the_request_can_be_named() {
    let limit = "client: 'header:x-key', rate: { by: 'header:x-rate', default: 2, max: 50 }, interval: 1h";
    let admin = start(&rules("store: memory", limit));
    send(&admin, "X-Key: k\r\nX-Rate: 40\r\n", &[200; 3]).await;
    let unknown = state(&admin, "value=k").await;
    let remaining: Vec<_> = unknown["rates"].as_array().expect("rates").iter().map(|rate| &rate["remaining"]).collect();
    assert_eq!((&unknown["remaining"], remaining), (&Value::Null, vec![&json!(0), &json!(47)]));
    assert_eq!(
        figures(&state(&admin, "value=k&rate=40").await),
        [Value::Null, json!("parameter"), json!(40), json!(37)]
    );
    assert_eq!(state(&admin, "value=k&rate=900").await["rate"], 50);
    for (query, detail) in [("tier=pro", "no tiers"), ("rate=0", "whole number"), ("rate=1&tier=pro", "no tiers")] {
        let (status, problem) = admin.api("GET", &format!("limits/all/plan/client?value=k&{query}"), "").await;
        assert_eq!((status, problem["detail"].as_str().expect("a text").contains(detail)), (400, true), "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_tier_of_a_request_is_an_error() {
    let admin = start(&rules("store: memory", BY_HEADER));
    for (query, detail) in [("tier=gold", "it has free, pro"), ("rate=5", "set `tier`")] {
        let (status, problem) = admin.api("GET", &format!("limits/all/plan/client?value=k&{query}"), "").await;
        assert_eq!((status, problem["detail"].as_str().expect("a text").contains(detail)), (400, true), "{problem}");
    }
    admin.reload(&rules("store: memory", "client: 'header:x-key', rate: 5, interval: 1h"));
    assert_eq!(admin.api("GET", "limits/all/plan/client?value=k&tier=pro", "").await.0, 400);
}

/// The figures of all tiers are known, so that `granted` depends on all of them.
async fn knows_the_figures_of_many_tiers(store: &str) {
    let tiers: Vec<_> =
        (0..40).map(|number| format!("t{number:02}: {{ rate: {}, interval: 1h }}", 50 - number)).collect();
    let many = format!("tiers: {{ free: {{ rate: 60, interval: 1h }}, {} }}", tiers.join(", "));
    let admin = start(&rules(store, BY_HEADER).replace(TIERS, &many));
    let grants = async || {
        let shown = state(&admin, "value=k").await;
        let remaining = shown["rates"].as_array().expect("rates").iter().map(|rate| rate["remaining"].as_u64());
        (shown["granted"].clone(), remaining.collect::<Option<Vec<_>>>().expect("all figures"))
    };
    assert_eq!(
        (state(&admin, "value=k").await["rates"].as_array().map(Vec::len), grants().await.0),
        (Some(41), json!(true))
    );
    // The last tier has 11 permits, and each other tier has more.
    send(&admin, "X-Key: k\r\n", &[200; 11]).await;
    let (granted, remaining) = grants().await;
    let rejecting = remaining.iter().filter(|remaining| **remaining == 0).count();
    assert_eq!((granted, rejecting, remaining.last()), (json!(false), 1, Some(&0)), "{remaining:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_in_memory_is_granted_by_all_tiers() {
    knows_the_figures_of_many_tiers("store: memory").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_in_redis_is_granted_by_all_tiers() {
    let Some(redis) = RedisServer::start() else { return };
    knows_the_figures_of_many_tiers(&format!("store: {}", redis.rule())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_show_the_tiers_of_a_limit() {
    let admin = start(&rules("store: memory", BY_HEADER));
    send(&admin, "X-Key: k\r\nX-Plan: pro\r\n", &[200; 4]).await;
    let (code, out, _) = admin.run(&["client", "all/plan", "k"], None).await;
    assert_eq!((code, out.contains("\nremaining ")), (1, false), "no figure without a tier: {out}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let line = out.lines().find(|line| line.starts_with("pro ")).expect("a tier");
    assert_eq!(words(line)[..5], ["pro", "100000", "1h", "99996", "4"], "{out}");
    let (code, out, _) = admin.run(&["client", "all/plan", "k", "--tier", "pro"], None).await;
    assert_eq!((code, out.contains("\ntier         pro (as requested)\n")), (0, true), "{out}");
    assert!(out.contains("\nrate         100000 per 1h\nremaining    99996\n"), "{out}");
    let (_, out, _) = admin.run(&["limits"], None).await;
    let tiers: Vec<_> = out.lines().skip(1).map(|line| words(line)[4..].join(" ")).collect();
    assert_eq!(tiers, ["2 1h token_bucket no 1 free (default)", "100000 1h token_bucket no 1 pro"], "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_limit_names_its_routes() {
    let admin = start(
        "upstreams: { echo: { targets: ['builtin:echo'] } }
limits: { daily: { mode: OVERALL, rate: 9, interval: 1h } }
routes:
  - { name: one, match: { path: /one }, upstream: echo, limits: [daily] }
  - { name: two, match: { path: /two }, upstream: echo, limits: [daily, { name: own, mode: OVERALL, rate: 5, interval: 1h }] }
",
    );
    assert_eq!(admin.request("/two", "").await.status(), 200);
    let (_, limits) = admin.api("GET", "limits", "").await;
    let shown: Vec<_> = limits
        .as_array()
        .expect("limits")
        .iter()
        .map(|limit| json!([limit["route"], limit["limit"], limit["routes"], limit["rates"]]))
        .collect();
    assert_eq!(shown, [json!(["@", "daily", ["one", "two"], null]), json!(["two", "own", ["two"], null])]);
    let (status, state) = admin.api("GET", "limits/@/daily/client", "").await;
    assert_eq!((status, &state["remaining"], &state["rate_from"]), (200, &json!(8), &json!("limit")));
}
