//! End-to-end tests of the gateway: forwarded and rejected requests, with limits in memory and in Redis.

use std::collections::BTreeMap;

use deadpool_redis::redis::Commands;
use tokio::task::JoinSet;

use crate::support::gateway::{TestGateway, get};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Message;
use crate::support::wire::soon;

/// Returns a rule file with one route to the built-in echo upstream, and these limits.
fn rules(store: &str, limits: &str) -> String {
    format!(
        "store: {store}
upstreams: {{ echo: {{ targets: [builtin:echo] }} }}
routes:
  - name: all
    match: {{ path: /** }}
    upstream: echo
    limits:
{limits}"
    )
}

const TOTAL: &str = "      - { name: total, mode: OVERALL, rate: 100, interval: 10s }\n";

fn retry_after(rejection: &Message) -> u64 {
    rejection.field("retry-after").expect("a Retry-After").parse().expect("whole seconds")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_grant_the_rate_exactly() {
    let Some(redis) = RedisServer::start() else { return };
    // A long deadline for busy machines: after a timeout a gateway would decide locally.
    let store = format!("{{ url: '{}', timeout: 10s }}", redis.url());
    let gateways = [TestGateway::start(&rules(&store, TOTAL)), TestGateway::start(&rules(&store, TOTAL))];
    let mut clients = JoinSet::new();
    for number in 0..100 {
        let address = gateways[number % 2].address;
        clients.spawn(async move {
            let mut client = crate::support::wire::raw::Raw::connect(address).await;
            let mut answers = Vec::new();
            for _ in 0..20 {
                answers.push(get(&mut client, "/", "").await);
            }
            answers
        });
    }
    let answers: Vec<Message> = soon(clients.join_all()).await.into_iter().flatten().collect();
    let mut statuses = BTreeMap::new();
    for answer in &answers {
        *statuses.entry(answer.status()).or_insert(0) += 1;
    }
    assert_eq!(statuses, [(200, 100), (429, 1900)].into());

    let last = gateways[0].get("/", "").await;
    let wait = retry_after(&last);
    assert!((1..=10).contains(&wait), "{wait} s");
    pass_time(&redis, wait * 1_000);
    // Time passed only in Redis. The gateway notices when its cached refusal expires, within a second.
    soon(async { while gateways[1].get("/", "").await.status() != 200 {} }).await;
}

/// Moves every permit in Redis back by `millis`, as if that time had passed. Deletes the counters, because otherwise
/// the store would trust the times inside the entries.
fn pass_time(redis: &RedisServer, millis: u64) {
    let mut redis = redis.connection();
    let logs: Vec<String> = redis.keys("*:permits*").expect("keys");
    for log in logs {
        let entries: Vec<(Vec<u8>, u64)> = redis.zrange_withscores(&log, 0, -1).expect("entries");
        for (member, score) in entries {
            redis.zadd::<_, _, _, ()>(&log, member, score - millis).expect("moved");
        }
        redis.del::<_, ()>(log.replace(":permits", ":value")).expect("deleted");
    }
}

#[tokio::test]
async fn refusal_by_one_limit_charges_no_other() {
    let own = "      - { name: own, mode: PER_CLIENT, client: 'header:X-Api-Key', rate: 2, interval: 1h }
      - { name: total, mode: OVERALL, rate: 3, interval: 1h }\n";
    let redis = RedisServer::start();
    let stores = ["memory".to_owned()].into_iter().chain(redis.as_ref().map(RedisServer::rule));
    for store in stores {
        let gateway = TestGateway::start(&rules(&store, own));
        let ask = async |key: &str| gateway.get("/", &format!("X-Api-Key: {key}\r\n")).await;
        assert_eq!([ask("a").await.status(), ask("a").await.status()], [200, 200], "{store}");
        let refused = ask("a").await;
        assert_eq!(refused.status(), 429, "{store}");
        assert!(refused.text().contains(r#""violated-policies":["own"]"#), "{}", refused.text());
        let other = ask("b").await;
        assert_eq!(other.status(), 200, "the refusal charged the overall limit in {store}");
        assert_eq!(other.field("ratelimit").as_deref(), Some("\"own\";r=1;t=3600"), "{store}");
        let refused = ask("b").await;
        assert!(refused.text().contains(r#""violated-policies":["total"]"#), "{}", refused.text());
        assert_eq!(refused.field("ratelimit").as_deref(), Some("\"own\";r=1;t=3600"), "{store}");
        assert_eq!(gateway.counter(r#"tidegate_decisions_total{route="all",limit="own",outcome="allowed"}"#).await, 3);
        assert_eq!(
            gateway.counter(r#"tidegate_decisions_total{route="all",limit="total",outcome="limited"}"#).await,
            1
        );
    }
}

#[tokio::test]
async fn forwarded_address_counts_only_from_a_trusted_proxy() {
    let limit = "      - { name: per-ip, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h }\n";
    let gateway = TestGateway::start(&rules("memory", limit));
    assert_eq!(gateway.get("/", "X-Forwarded-For: 192.0.2.1\r\n").await.status(), 200);
    assert_eq!(
        gateway.get("/", "X-Forwarded-For: 192.0.2.2\r\n").await.status(),
        429,
        "a spoofed address was accepted"
    );

    let trusting = format!("clients: {{ trusted_proxies: [127.0.0.0/8] }}\n{}", rules("memory", limit));
    let gateway = TestGateway::start(&trusting);
    assert_eq!(gateway.get("/", "X-Forwarded-For: 192.0.2.1\r\n").await.status(), 200);
    assert_eq!(gateway.get("/", "X-Forwarded-For: 192.0.2.2\r\n").await.status(), 200);
    assert_eq!(gateway.get("/", "X-Forwarded-For: 6.6.6.6, 192.0.2.2\r\n").await.status(), 429);
}

#[tokio::test]
async fn missing_client_is_denied_skipped_or_its_address() {
    let limit = |policy| {
        format!(
            "      - {{ name: l, mode: PER_CLIENT, client: 'header:X-Key', rate: 1, interval: 1h, on_missing_client: {policy} }}\n"
        )
    };
    let statuses = async |policy, headers: &str| {
        let gateway = TestGateway::start(&rules("memory", &limit(policy)));
        [gateway.get("/", headers).await.status(), gateway.get("/", headers).await.status()]
    };
    assert_eq!(statuses("deny", "").await, [400, 400]);
    assert_eq!(statuses("skip", "").await, [200, 200]);
    assert_eq!(statuses("ip", "").await, [200, 429]);
    assert_eq!(statuses("skip", "X-Key: a\r\nX-Key: b\r\n").await, [400, 400], "two values bypassed a limit");
}

#[tokio::test]
async fn cost_header_sets_the_permits_of_a_request() {
    let limit = "      - { name: l, mode: PER_CLIENT, client: ip, rate: 10, interval: 1h, permits: { header: X-Cost, default: 2 } }\n";
    let capped = limit.replace("default: 2", "default: 2, max: 5");
    let redis = RedisServer::start();
    let stores = ["memory".to_owned()].into_iter().chain(redis.as_ref().map(RedisServer::rule));
    for store in stores {
        let gateway = TestGateway::start(&rules(&store, limit));
        let left = async |header: &str| {
            let response = gateway.get("/", header).await;
            (response.status(), response.field("ratelimit").unwrap_or_default(), response.field("retry-after"))
        };
        let full = |status, left: &str| (status, format!("\"l\";r={left}"), None);
        assert_eq!(left("X-Cost: 0\r\n").await, full(200, "10;t=0"), "{store}");
        if let Some(redis) = redis.as_ref().filter(|_| store != "memory") {
            let keys: Vec<String> = redis.connection().keys("{tidegate:all}*").expect("keys");
            assert!(keys.is_empty(), "a request without cost wrote {keys:?}");
        }
        assert_eq!(left("").await, full(200, "8;t=3600"), "{store}");
        assert_eq!(left("X-Cost: 3\r\n").await, full(200, "5;t=3600"), "{store}");
        assert_eq!(left("X-Cost: 11\r\n").await, full(429, "5;t=3600"), "more than the capacity, in {store}");
        assert_eq!(left("X-Cost: 99999999999999\r\n").await, full(429, "5;t=3600"), "{store}");
        assert!(left("X-Cost: 6\r\n").await.2.is_some(), "no retry-after, in {store}");
        for garbage in ["X-Cost: -1\r\n", "X-Cost:\r\n", "X-Cost: 1.5\r\n", "X-Cost: 1\r\nX-Cost: 2\r\n"] {
            assert_eq!(left(garbage).await.0, 400, "{garbage} in {store}");
        }
        assert_eq!(left("X-Cost: 0\r\n").await.1, "\"l\";r=5;t=3600", "a rejected request was charged in {store}");
    }
    let gateway = TestGateway::start(&rules("memory", &capped));
    assert_eq!(gateway.get("/", "X-Cost: 5\r\n").await.status(), 200);
    let refused = gateway.get("/", "X-Cost: 6\r\n").await;
    assert_eq!(refused.status(), 400);
    assert!(refused.text().contains("the cost of the request for `l` is above 5"), "{}", refused.text());
}

#[tokio::test]
async fn shadow_limit_counts_and_never_rejects() {
    let limits = "      - { name: own, mode: PER_CLIENT, client: ip, rate: 3, interval: 1h, candidate: { rate: 2, interval: 1h } }
      - { name: total, mode: OVERALL, rate: 1, interval: 1h, shadow: true, on_store_failure: deny }
      - { name: key, mode: PER_CLIENT, client: 'header:X-Key', rate: 1, interval: 1h, shadow: true }\n";
    let redis = RedisServer::start();
    let stores = ["memory".to_owned()].into_iter().chain(redis.as_ref().map(RedisServer::rule));
    for store in stores {
        let gateway = TestGateway::start(&rules(&store, limits));
        let mut responses = Vec::new();
        for headers in ["X-Key: a\r\n", "X-Key: a\r\nX-Key: b\r\n", "", "X-Key: a\r\n"] {
            responses.push(gateway.get("/", headers).await);
        }
        let statuses: Vec<_> = responses.iter().map(Message::status).collect();
        assert_eq!(statuses, [200, 200, 200, 429], "{store}");
        let policies = responses[0].field("ratelimit-policy");
        assert_eq!(policies.as_deref(), Some("\"own\";q=3;w=3600"), "a shadow in the response");
        assert_eq!(responses[2].field("ratelimit").as_deref(), Some("\"own\";r=0;t=3600"), "{store}");
        assert!(responses[3].text().contains(r#""violated-policies":["own"]"#), "{}", responses[3].text());
        let counted = async |limit: &str| {
            let mut counts = Vec::new();
            for outcome in ["allowed", "shadow_limited", "limited"] {
                let series =
                    format!("tidegate_decisions_total{{route=\"all\",limit=\"{limit}\",outcome=\"{outcome}\"}}");
                counts.push(gateway.counter(&series).await);
            }
            counts
        };
        assert_eq!(counted("own").await, [3, 0, 1], "{store}");
        assert_eq!(counted("own.candidate").await, [2, 2, 0], "{store}");
        assert_eq!(counted("total").await, [1, 3, 0], "{store}");
        assert_eq!(counted("key").await, [1, 1, 0], "counted a request without a client in {store}");
    }
    let Some(redis) = redis else { return };
    let exists: bool = redis.connection().exists("{tidegate:all}:own.candidate:127.0.0.1").expect("a reply");
    assert!(exists, "a shadow has no separate bucket");
    let gateway = TestGateway::start(&rules(&redis.rule(), limits));
    drop(redis);
    assert_eq!(gateway.get("/", "").await.status(), 200, "a shadow rejected a request during an outage");
}

#[tokio::test]
async fn policy_lists_only_limits_that_count_the_request() {
    let limits = "      - { name: own, mode: PER_CLIENT, client: ip, rate: 9, interval: 1h }
      - { name: key, mode: PER_CLIENT, client: 'header:X-Key', on_missing_client: skip, rate: 5, interval: 1h }
      - { name: posts, mode: PER_CLIENT, client: ip, rate: 3, interval: 1h, when: { methods: [POST] } }\n";
    let gateway = TestGateway::start(&rules("memory", limits));
    let with_key = gateway.get("/", "X-Key: a\r\n").await;
    assert_eq!(with_key.field("ratelimit-policy").as_deref(), Some("\"own\";q=9;w=3600, \"key\";q=5;w=3600"));
    let without_key = gateway.get("/", "").await;
    assert_eq!(without_key.field("ratelimit-policy").as_deref(), Some("\"own\";q=9;w=3600"));
    assert_eq!(without_key.field("ratelimit").as_deref(), Some("\"own\";r=7;t=3600"));
}

#[tokio::test]
async fn route_selects_its_rate_limit_fields() {
    let limits = "      - { name: own, mode: PER_CLIENT, client: ip, rate: 1, interval: 1m }\n";
    let fields_with = async |headers: &str| {
        let rules = rules("memory", limits).replace("    upstream: echo\n", &format!("    upstream: echo\n{headers}"));
        let gateway = TestGateway::start(&rules);
        let (forwarded, rejected) = (gateway.get("/", "").await, gateway.get("/", "").await);
        assert_eq!((forwarded.status(), rejected.status()), (200, 429));
        let legacy = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
        let fields = |response: &Message| {
            let legacy: Vec<_> = legacy.iter().filter_map(|name| response.field(name)).collect();
            (response.field("ratelimit").is_some(), response.field("ratelimit-policy").is_some(), legacy.join(" "))
        };
        assert_eq!(fields(&forwarded), fields(&rejected));
        fields(&forwarded)
    };
    assert_eq!(fields_with("").await, (true, true, String::new()));
    assert_eq!(fields_with("    headers: [ietf, legacy]\n").await, (true, true, "1 0 60".to_owned()));
    assert_eq!(fields_with("    headers: [legacy]\n").await, (false, false, "1 0 60".to_owned()));
    assert_eq!(fields_with("    headers: []\n").await, (false, false, String::new()));
}

#[tokio::test]
async fn limit_applies_to_all_spellings_of_a_path() {
    let rules = "store: memory
upstreams: { echo: { targets: [builtin:echo] } }
routes:
  - { name: login, match: { path: /login }, upstream: echo, limits: [{ name: l, mode: OVERALL, rate: 1, interval: 1h }] }
  - { name: rest, match: { path: /** }, upstream: echo }\n";
    let gateway = TestGateway::start(rules);
    assert_eq!(gateway.get("/login", "").await.status(), 200);
    for path in ["/login", "//login", "/./login", "/x/../login", "/%6cogin", "/login/", "/login?a=1"] {
        assert_eq!(gateway.get(path, "").await.status(), 429, "{path}");
    }
    assert!(gateway.get("/x/../other?q=%2F", "").await.text().contains(r#""path": "/other?q=%2F""#));
    assert_eq!(gateway.get("/x/..%2flogin", "").await.status(), 400);
}

#[tokio::test]
async fn request_without_a_route_is_not_found() {
    let gateway = TestGateway::start(
        "store: memory
upstreams: { echo: { targets: [builtin:echo] } }
routes: [{ name: api, match: { host: api.example, methods: [GET] }, upstream: echo }]\n",
    );
    let answer = gateway.get("/", "").await;
    assert_eq!((answer.status(), answer.field("content-type").as_deref()), (404, Some("application/problem+json")));
    let mut client = gateway.client().await;
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: API.example:80\r\n\r\n").await.status(), 200);
    assert_eq!(client.ask("DELETE / HTTP/1.1\r\nHost: api.example\r\n\r\n").await.status(), 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_applies_on_store_failure_until_redis_is_back() {
    let Some(redis) = RedisServer::start() else { return };
    let limits =
        |policy| format!("      - {{ name: l, mode: OVERALL, rate: 1, interval: 1h, on_store_failure: {policy} }}\n");
    let allow = TestGateway::start(&rules(&redis.rule(), &limits("allow")));
    let deny = TestGateway::start(&rules(&redis.rule(), &limits("deny")));
    let both = async || [allow.get("/", "").await.status(), deny.get("/", "").await.status()];
    // Both limits have the same name and therefore the same bucket, so the second request is rejected.
    assert_eq!(both().await, [200, 429]);

    // A cached refusal expires within a second.
    redis.signal("STOP");
    soon(async { while both().await != [200, 503] {} }).await;
    redis.signal("CONT");
    soon(async { while both().await != [429, 429] {} }).await;

    let port = redis.port;
    drop(redis);
    soon(async { while both().await != [200, 503] {} }).await;
    let refused = deny.get("/", "").await;
    assert_eq!(refused.field("retry-after").as_deref(), Some("1"));
    let failed = r#"tidegate_decisions_total{route="all",limit="l",outcome="store_failed"}"#;
    assert!(allow.counter(failed).await >= 2);
    assert!(allow.admin_get("/readyz").await.text().contains("unreachable"));

    let redis = RedisServer::start_on(port).expect("Redis again");
    soon(async { while both().await[1] != 429 {} }).await;
    assert!(redis.connection().exists::<_, bool>("{tidegate:all}:l").expect("an answer"));
}

/// `on_store_failure` is `local` by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_decision_adds_no_rate_limit_fields() {
    let Some(redis) = RedisServer::start() else { return };
    let limits = "      - { name: l, mode: PER_CLIENT, client: header:k, rate: 3, interval: 1h }\n";
    let gateway = TestGateway::start(&rules(&redis.rule(), limits));
    let ask = async |key: &str| gateway.get("/", &format!("k: {key}\r\n")).await;
    assert!(ask("a").await.field("ratelimit").is_some(), "the store decides");
    drop(redis);
    soon(async { while ask("b").await.field("ratelimit").is_some() {} }).await;
    // The gateway does not know the grants of Redis, so it grants the whole limit.
    let local: Vec<_> = [ask("a").await, ask("a").await, ask("a").await, ask("a").await].into();
    assert_eq!(local.iter().map(Message::status).collect::<Vec<_>>(), [200, 200, 200, 429]);
    let has_fields = |one: &Message| one.field("ratelimit").is_some() || one.field("ratelimit-policy").is_some();
    assert!(!local.iter().any(has_fields));
    assert_eq!(local[3].field("retry-after").as_deref(), Some("3600"));
    assert!(local[3].text().contains("\"violated-policies\":[\"l\"]"), "{}", local[3].text());
    let outcome = |outcome| format!(r#"tidegate_decisions_total{{route="all",limit="l",outcome="{outcome}"}}"#);
    assert!(gateway.counter(&outcome("store_failed")).await >= 3);
    assert_eq!(gateway.counter(&outcome("limited")).await, 1);
}

/// The gateway serves requests at once, and counts them when Redis is reachable.
#[tokio::test]
async fn gateway_starts_without_redis() {
    let Some(redis) = RedisServer::start() else { return };
    let (port, url) = (redis.port, redis.rule());
    drop(redis);
    let limit = "      - { name: l, mode: OVERALL, rate: 1, interval: 1h, on_store_failure: allow }\n";
    let gateway = TestGateway::start(&rules(&url, limit));
    assert_eq!(gateway.get("/", "").await.status(), 200);
    let _redis = RedisServer::start_on(port).expect("Redis");
    soon(async { while gateway.get("/", "").await.status() != 429 {} }).await;
}

#[tokio::test]
async fn gateways_share_client_hashes_across_restarts() {
    let Some(redis) = RedisServer::start() else { return };
    let limit = "      - { name: l, mode: PER_CLIENT, client: 'cookie:sid', rate: 2, interval: 1h }\n";
    let rules = rules(&redis.rule(), limit);
    let ask = async |gateway: &TestGateway| gateway.get("/", "Cookie: a=b; sid=s3cret\r\n").await.status();
    let one = TestGateway::start(&rules);
    assert_eq!(ask(&one).await, 200);
    let other = TestGateway::start(&rules);
    assert_eq!(ask(&other).await, 200);
    drop(one);
    assert_eq!(ask(&TestGateway::start(&rules)).await, 429);
    let keys: Vec<String> = redis.connection().keys("*").expect("keys");
    assert!(keys.iter().all(|key| !key.contains("s3cret")), "{keys:?}");
}

#[tokio::test]
async fn admin_listener_shows_no_secrets() {
    let rules = rules("{ url: 'redis://user:hush-hush@127.0.0.1:1', key_secret: '0123456789abcdef-secret' }", TOTAL);
    let gateway = TestGateway::start(&rules);
    assert_eq!(gateway.admin_get("/healthz").await.text(), "ok\n");
    assert_eq!(gateway.admin_get("/readyz").await.status(), 200);
    assert_eq!(gateway.counter("tidegate_connections").await, 0);
    let mut admin = crate::support::wire::raw::Raw::connect(gateway.admin).await;
    let config = admin.ask("GET /api/v1/config HTTP/1.1\r\nHost: localhost:9901\r\n\r\n").await.text();
    assert!(config.contains("redis://***@127.0.0.1:1") && config.contains("{tidegate:all}:total"), "{config}");
    assert!(!config.contains("hush") && !config.contains("0123456789abcdef"), "{config}");
    let rebound = admin.ask("GET /api/v1/config HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    assert_eq!(rebound.status(), 403);
}

#[tokio::test]
async fn connection_metric_counts_open_connections() {
    let gateway = TestGateway::start(&rules("memory", TOTAL));
    let mut client = gateway.client().await;
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
    assert_eq!(gateway.counter("tidegate_connections").await, 1);
    drop(client);
    soon(async { while gateway.counter("tidegate_connections").await != 0 {} }).await;
}

#[tokio::test]
async fn request_that_was_not_sent_gets_its_permits_back() {
    let absent = crate::support::wire::upstream::Origin::closed_port();
    let redis = RedisServer::start();
    let stores = ["memory".to_owned()].into_iter().chain(redis.as_ref().map(RedisServer::rule));
    for store in stores {
        let limits = "      - { name: total, mode: OVERALL, rate: 1, interval: 1h }
      - { name: own, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h }
      - { name: shadow, mode: OVERALL, rate: 1, interval: 1h, shadow: true }\n";
        let gateway = TestGateway::start(&rules(&store, limits).replace("builtin:echo", &format!("'http://{absent}'")));
        for _ in 0..3 {
            assert_eq!(
                gateway.get("/", "").await.status(),
                502,
                "permits of an unsent request were not returned in {store}"
            );
        }
        let shadow = r#"tidegate_decisions_total{route="all",limit="shadow",outcome="shadow_limited"}"#;
        assert_eq!(gateway.counter(shadow).await, 0, "a shadow kept the returned permits in {store}");
    }
}
