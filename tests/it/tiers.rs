//! Rates that depend on the request: `tier`, and `rate` with `by`. And `when`, the conditions of a limit.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use tidegate_limit::{Algorithm, Quota};

use crate::admin_api::{Admin, TOKEN};
use crate::laws::{START, Stores};
use crate::support::cluster::RedisCluster;
use crate::support::gateway::TestGateway;
use crate::support::process::{RuleFile, output};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;
use crate::support::{case_count, charge_of};

const PLAN: &str = "tier: { by: 'header:x-plan', default: free }";
const RATE: &str = "rate: { by: 'header:x-rate', default: 2, max: 4 }, interval: 1h";

/// Returns a rule file with the limit `plan`.
fn rules(store: &str, keys: &str) -> String {
    format!(
        "store: {store}
clients: {{ trusted_proxies: [127.0.0.1] }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
tiers: {{ free: {{ rate: 2, interval: 1h }}, pro: {{ rate: 5, interval: 1h, burst: 7 }} }}
routes:
  - {{ name: all, match: {{}}, upstream: echo,
      limits: [{{ name: plan, mode: PER_CLIENT, client: 'header:x-key', {keys} }}] }}
"
    )
}

/// Sends requests of a client with this field. Returns the statuses.
async fn statuses(gateway: &TestGateway, key: &str, field: &str, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(gateway.get("/", &format!("X-Key: {key}\r\n{field}\r\n")).await.status());
    }
    statuses
}

/// Returns the policy of a response to a client with this field.
async fn policy(gateway: &TestGateway, key: &str, field: &str) -> String {
    let response = gateway.get("/", &format!("X-Key: {key}\r\n{field}\r\n")).await;
    response.field("ratelimit-policy").expect("a policy")
}

async fn keeps_permits(store: &str) {
    for (number, more) in ["", ", algorithm: sliding_window"].into_iter().enumerate() {
        let gateway =
            TestGateway::start(&rules(&store.replace("PREFIX", &number.to_string()), &format!("{PLAN}{more}")));
        assert_eq!(statuses(&gateway, "up", "X-Plan: free", 3).await, [200, 200, 429]);
        assert!(policy(&gateway, "up", "X-Plan: free").await.starts_with("\"plan\";q=2;w=3"));
        assert_eq!(statuses(&gateway, "up", "X-Plan: pro", 4).await, [200, 200, 200, 429]);
        assert!(policy(&gateway, "up", "X-Plan: pro").await.starts_with("\"plan\";q=5;w=3"));
        assert_eq!(statuses(&gateway, "down", "X-Plan: pro", 3).await, [200; 3]);
        assert_eq!(statuses(&gateway, "down", "X-Plan: free", 1).await, [429]);
        assert_eq!(statuses(&gateway, "down", "X-Plan: pro", 3).await, [200, 200, 429]);
        // Unknown tiers, and requests without a tier, have the default.
        assert_eq!(statuses(&gateway, "unknown", "X-Plan: gold", 3).await, [200, 200, 429]);
        assert_eq!(statuses(&gateway, "none", "X-Other: 1", 3).await, [200, 200, 429]);
        assert!(policy(&gateway, "none", "X-Plan: gold").await.starts_with("\"plan\";q=2;w=3"));
        assert_eq!(gateway.counter("tidegate_unknown_tiers_total{route=\"all\",limit=\"plan\"}").await, 4);
        let mut other = Raw::connect_from("127.0.0.9", gateway.address).await;
        let request = "GET / HTTP/1.1\r\nHost: a.example\r\nX-Key: spoof\r\nX-Plan: pro\r\n\r\n";
        let response = other.ask(request).await;
        let policy = response.field("ratelimit-policy").expect("a policy");
        assert!(policy.starts_with("\"plan\";q=2;"), "of an untrusted peer: {policy}");
    }
}

#[tokio::test]
async fn client_keeps_permits_when_its_tier_changes_in_memory() {
    keeps_permits("memory").await;
}

#[tokio::test]
async fn client_keeps_permits_when_its_tier_changes_in_redis() {
    let Some(redis) = RedisServer::start() else { return };
    keeps_permits(&format!("{{ url: '{}', timeout: 10s, prefix: pPREFIX }}", redis.url())).await;
}

/// All tiers of a client are in one partition.
#[tokio::test]
async fn client_keeps_permits_when_its_tier_changes_in_a_cluster() {
    let Some(cluster) = RedisCluster::start() else { return };
    keeps_permits(&cluster.rule("10s").replace("timeout", "prefix: pPREFIX, timeout")).await;
}

#[tokio::test]
async fn tier_sets_the_burst_of_gcra() {
    let gateway = TestGateway::start(&rules("memory", &format!("{PLAN}, algorithm: gcra")));
    assert!(policy(&gateway, "pro", "X-Plan: pro").await.starts_with("\"plan\";q=7;"));
    assert!(policy(&gateway, "free", "X-Plan: free").await.starts_with("\"plan\";q=2;"));
}

#[tokio::test]
async fn number_of_a_request_sets_the_rate() {
    let gateway = TestGateway::start(&rules("memory", RATE));
    assert_eq!(statuses(&gateway, "k", "X-Rate: 3", 4).await, [200, 200, 200, 429]);
    assert_eq!(statuses(&gateway, "k", "X-Rate: 1000000", 2).await, [200, 429]);
    assert_eq!(policy(&gateway, "k", "X-Rate: 5").await, "\"plan\";q=4;w=3600");
    for (number, invalid) in
        ["X-Rate: 0", "X-Rate: many", "X-Other: 1", "X-Rate: 3\r\nX-Rate: 4"].into_iter().enumerate()
    {
        assert_eq!(statuses(&gateway, &number.to_string(), invalid, 3).await, [200, 200, 429], "{invalid}");
    }
}

#[tokio::test]
async fn limit_counts_only_requests_that_meet_its_conditions() {
    let keys = format!("{PLAN}, when: {{ tier: [free], headers: {{ x-test: '1' }}, methods: [GET] }}");
    let gateway = TestGateway::start(&rules("memory", &keys));
    assert_eq!(statuses(&gateway, "k", "X-Test: 1", 3).await, [200, 200, 429]);
    for field in ["X-Test: 2", "X-Other: 1", "X-Test: 1\r\nX-Plan: pro"] {
        let response = gateway.get("/", &format!("X-Key: k\r\n{field}\r\n")).await;
        assert_eq!((response.status(), response.field("ratelimit-policy")), (200, None), "{field}");
    }
    // Upstreams may read either value.
    assert_eq!(statuses(&gateway, "k", "X-Test: 2\r\nX-Test: 1", 1).await, [400]);
}

#[tokio::test]
async fn policy_omits_limits_that_do_not_count_the_request() {
    let other = "when: { headers: { x-anonymous: '1' } }, rate: 9, interval: 1h }, { name: each, mode: PER_CLIENT, client: ip, rate: 8, interval: 1h";
    let gateway = TestGateway::start(&rules("memory", other));
    assert_eq!(policy(&gateway, "k", "X-Other: 1").await, "\"each\";q=8;w=3600");
    assert_eq!(policy(&gateway, "k", "X-Anonymous: 1").await, "\"plan\";q=9;w=3600, \"each\";q=8;w=3600");
}

#[tokio::test]
async fn overrides_change_the_rate_of_the_request() {
    let admin = Admin::with_tokens("");
    admin.reload(&rules("memory", PLAN));
    let create = async |action: &str, change: (&str, u32)| {
        let mut body = json!({ "action": action, "scope": "all/plan", "target": { "client": ["k"] }, "for": "1h", "reason": "a test" });
        if change.1 > 0 {
            body[change.0] = json!(change.1);
        }
        let fields = format!("Authorization: Bearer {TOKEN}\r\n");
        let (status, created) = admin.send("POST", "overrides", &fields, &body.to_string()).await;
        assert_eq!(status, 201, "{created}");
        created["id"].as_str().expect("an id").to_owned()
    };
    let policy = async |plan: &str| {
        let response = admin.request("/", &format!("X-Key: k\r\nX-Plan: {plan}\r\n")).await;
        response.field("ratelimit-policy")
    };
    let doubled = create("adjust", ("multiply", 2)).await;
    assert_eq!(policy("pro").await.as_deref(), Some("\"plan\";q=10;w=3600"));
    assert_eq!(policy("free").await.as_deref(), Some("\"plan\";q=4;w=3600"));
    assert_eq!(admin.change(&format!("overrides/{doubled}")).await.0, 200);
    let fixed = create("adjust", ("rate", 3)).await;
    assert_eq!(policy("pro").await.as_deref(), Some("\"plan\";q=3;w=3600"));
    assert_eq!(admin.change(&format!("overrides/{fixed}")).await.0, 200);
    create("exempt", ("", 0)).await;
    assert_eq!(policy("pro").await, None);
    admin.reload(&rules("memory", RATE));
    create("adjust", ("multiply", 3)).await;
}

#[test]
fn explain_names_the_source_of_the_rate() {
    let text = |keys: &str| format!("listen: 127.0.0.1:0\nadmin: off\n{}", rules("memory", keys));
    let explained = |keys: &str, field: &str| {
        let file = RuleFile::new("tiers", &text(keys));
        let fields = ["-H", "x-key: k", "-H", field, "--peer", "127.0.0.1"];
        let output = output(&[&["explain", "-c", file.path(), "GET", "http://a.example/"], &fields[..]].concat());
        String::from_utf8(output.stdout).expect("text")
    };
    for (keys, field, expected) in [
        (PLAN, "x-plan: pro", "tier          `pro`, from header:x-plan"),
        (PLAN, "x-plan: secret", "tier          `free`, the default, because header:x-plan is not a tier"),
        (PLAN, "x-a: b", "tier          `free`, the default, because header:x-plan is missing"),
        (RATE, "x-rate: 3", "rate          3, from header:x-rate"),
        (RATE, "x-rate: 30", "rate          4, the `max`, because header:x-rate is larger"),
        (RATE, "x-rate: secret", "rate          2, the default, because header:x-rate is not a number from 1"),
        ("rate: 2, interval: 1h, when: { headers: { x-a: c } }", "x-a: b", "because header x-a does not match"),
        (&format!("{PLAN}, when: {{ tier: pro }}"), "x-a: b", "because the tier is not pro"),
    ] {
        let text = explained(keys, field);
        assert!(text.contains(expected) && !text.contains("secret,"), "{field}: {text}");
    }
    assert!(explained(PLAN, "x-plan: pro").contains("RateLimit-Policy: \"plan\";q=5;w=3600"));
}

/// Checks that no window of the shorter interval has more grants than the larger rate.
#[test]
fn no_window_exceeds_the_larger_rate_when_tiers_change() {
    let quota = |(rate, interval)| Quota::new(rate, interval, Algorithm::TokenBucket).expect("a quota");
    let tier = || (1..20_u64, 50..2_000_u64);
    let trace = prop::collection::vec((any::<bool>(), 0..300_u64, 1..4_u32), 1..80);
    let number = Cell::new(0);
    Stores::start().each(|name, take| {
        let mut runner =
            TestRunner::new(Config { cases: case_count(24), failure_persistence: None, ..Config::default() });
        let checked = runner.run(&(tier(), tier(), trace.clone()), |(one, other, trace)| {
            number.set(number.get() + 1);
            let (name, mut now, mut grants) = (format!("{name}:{}", number.get()), START, Vec::new());
            for (is_one, pause, permits) in trace {
                now += pause;
                let tier = if is_one { one } else { other };
                if take(&[charge_of(&name, Some(b"client"), quota(tier), permits)], now).granted() {
                    grants.push((now, u64::from(permits)));
                }
            }
            let window = one.1.min(other.1);
            for (start, _) in &grants {
                let sum: u64 =
                    grants.iter().filter(|(at, _)| (*start..start + window).contains(at)).map(|(_, n)| n).sum();
                prop_assert!(sum <= one.0.max(other.0), "{sum} permits in {window} ms from {start}");
            }
            Ok(())
        });
        checked.expect("the law");
    });
}

/// More rates than the gateway keeps limiters for.
#[tokio::test]
async fn refusals_of_all_numbers_need_no_redis_call() {
    let Some(redis) = RedisServer::start() else { return };
    let rate = "rate: { by: 'header:x-rate', default: 3000, max: 9000 }, interval: 1h";
    let keys = format!("{rate}, permits: {{ header: x-cost, default: 1, max: 3000 }}");
    let gateway = TestGateway::start_with_one_worker(&rules(&redis.rule(), &keys));
    for number in 0..1_100 {
        let response = gateway.get("/", &format!("X-Key: many\r\nX-Rate: {}\r\n", 4_000 + number)).await;
        assert_eq!(response.status(), 200);
    }
    let field = "X-Rate: 5900\r\nX-Cost: 3000";
    assert_eq!(statuses(&gateway, "last", field, 2).await, [200, 429]);
    let before = redis.decision_calls();
    assert_eq!(statuses(&gateway, "last", field, 20).await, [429; 20]);
    let calls = redis.decision_calls() - before;
    assert!(calls <= 2, "{calls} calls, instead of one a second");
}
