//! Shared limits: the top-level `limits`, which several routes use.

use serde_json::{Value, json};
use tidegate_limit::AlgorithmName;

use crate::admin_api::{Admin, TOKEN};
use crate::support::cluster::RedisCluster;
use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;

/// Returns a rule file with two routes that use the shared limit `daily`, and have an own limit.
fn rules(store: &str, daily: &str) -> String {
    format!(
        "store: {store}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
limits: {{ daily: {{ {daily} }} }}
routes:
  - {{ name: a, match: {{ path: /a }}, upstream: echo,
      limits: [daily, {{ name: own, mode: PER_CLIENT, client: 'header:x-key', rate: 9, interval: 1h }}] }}
  - {{ name: b, match: {{ path: /b }}, upstream: echo,
      limits: [{{ name: own, mode: PER_CLIENT, client: 'header:x-key', rate: 1, interval: 1h }}, daily] }}
"
    )
}

const PER_KEY: &str = "mode: PER_CLIENT, client: 'header:x-key', rate: 3, interval: 1h";

/// Sends requests of a client to these paths. Returns the statuses.
async fn statuses(gateway: &TestGateway, key: &str, paths: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for path in paths {
        statuses.push(gateway.get(path, &format!("X-Key: {key}\r\n")).await.status());
    }
    statuses
}

async fn counts_both_routes(store: &str) {
    let interval = |algorithm| if algorithm == AlgorithmName::FixedWindow { "month" } else { "1h" };
    for algorithm in AlgorithmName::ALL {
        // Later requests would have to wait for their time slots.
        let (more, granted) = if algorithm.has_time_slots() { (", max_wait: 1ms", 1) } else { ("", 2) };
        for mode in ["PER_CLIENT, client: 'header:x-key'", "OVERALL"] {
            let (name, interval) = (algorithm.name(), interval(*algorithm));
            let daily = format!("mode: {mode}, rate: 2, interval: {interval}, algorithm: {name}{more}");
            let gateway =
                TestGateway::start(&rules(&store.replace("PREFIX", &format!("{name}-{}", mode.len())), &daily));
            let mut expected = vec![200; granted];
            expected.resize(3, 429);
            assert_eq!(statuses(&gateway, "k", &["/b", "/a", "/a"]).await, expected, "{daily}");
            let others = statuses(&gateway, "other", &["/a"]).await;
            assert_eq!(others, [if mode == "OVERALL" { 429 } else { 200 }], "{daily}");
        }
    }
}

#[tokio::test]
async fn shared_limit_in_memory_counts_all_routes() {
    counts_both_routes("memory").await;
}

#[tokio::test]
async fn shared_limit_in_redis_counts_all_routes() {
    let Some(redis) = RedisServer::start() else { return };
    counts_both_routes(&format!("{{ url: '{}', timeout: 10s, prefix: PREFIX }}", redis.url())).await;
}

#[tokio::test]
async fn shared_limit_and_own_limits_are_one_redis_call() {
    let Some(redis) = RedisServer::start() else { return };
    let gateway = TestGateway::start(&rules(&format!("{{ url: '{}', timeout: 10s }}", redis.url()), PER_KEY));
    assert_eq!(statuses(&gateway, "k", &["/a"]).await, [200]);
    let before = redis.decision_calls();
    let response = gateway.get("/b", "X-Key: k\r\n").await;
    assert_eq!((response.status(), redis.decision_calls() - before), (200, 1));
    let policy = response.field("ratelimit-policy").expect("a policy");
    assert_eq!(policy, "\"own\";q=1;w=3600, \"daily\";q=3;w=3600");
    assert!(response.field("ratelimit").expect("a field").contains("\"daily\";r=1"));
    let keys: Vec<String> =
        deadpool_redis::redis::cmd("KEYS").arg("{tidegate:@daily}*").query(&mut redis.connection()).expect("keys");
    assert!(keys.len() == 1 && keys[0].starts_with("{tidegate:@daily}:daily:"), "{keys:?}");
    // The own limit of `b` rejects the request, so that it costs no permit of the shared limit.
    assert_eq!(statuses(&gateway, "k", &["/b", "/a", "/a"]).await, [429, 200, 429]);
    let body = gateway.get("/a", "X-Key: k\r\n").await.text();
    assert!(body.contains("\"daily\""), "{body}");
}

#[tokio::test]
async fn shared_limit_in_a_cluster_is_given_back_after_a_rejection() {
    let Some(cluster) = RedisCluster::start() else { return };
    for mode in [PER_KEY, "mode: OVERALL, rate: 3, interval: 1h", "mode: OVERALL, rate: 3, interval: 1h, shards: 3"] {
        let prefix = format!("p{}.", mode.len());
        let store = cluster.rule("10s").replace("timeout", &format!("prefix: {prefix}, timeout"));
        let gateway = TestGateway::start(&rules(&store, mode));
        let paths = ["/b", "/b", "/b", "/b", "/a", "/a", "/a"];
        assert_eq!(statuses(&gateway, "k", &paths).await, [200, 429, 429, 429, 200, 200, 429], "{mode}");
    }
}

#[tokio::test]
async fn shared_limit_without_redis_has_one_local_bucket() {
    let Some(redis) = RedisServer::start() else { return };
    let gateway = TestGateway::start(&rules(&format!("{{ url: '{}', timeout: 100ms }}", redis.url()), PER_KEY));
    assert_eq!(statuses(&gateway, "other", &["/a"]).await, [200]);
    drop(redis);
    gateway.until_config_has(&["\"state\":\"down\""]).await;
    assert_eq!(statuses(&gateway, "k", &["/b", "/a", "/a", "/a"]).await, [200, 200, 200, 429]);
}

#[tokio::test]
async fn reload_keeps_permits_of_a_shared_limit() {
    let gateway = TestGateway::start(&rules("memory", PER_KEY));
    assert_eq!(statuses(&gateway, "k", &["/a", "/b"]).await, [200, 200]);
    // Another route, a higher rate, and a limit that the route `a` uses no more.
    let changed = rules("memory", &PER_KEY.replace("rate: 3", "rate: 4"))
        .replace("name: a, match: { path: /a }", "name: c, match: { path: /c }");
    let report = gateway.reload(&changed);
    let change = format!("{report:?}");
    assert!(change.contains("daily"), "{change}");
    assert_eq!(statuses(&gateway, "k", &["/c", "/c", "/c"]).await, [200, 200, 429]);
    assert_eq!(gateway.counter("tidegate_decisions_total{route=\"\",limit=\"daily\",outcome=\"allowed\"}").await, 4);
}

fn admin(store: &str) -> Admin {
    let admin = Admin::with_tokens(&format!("store: {store}\n"));
    admin.reload(&rules(store, PER_KEY));
    admin
}

async fn sent(admin: &Admin, paths: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for path in paths {
        statuses.push(admin.request(path, "X-Key: k\r\n").await.status());
    }
    statuses
}

async fn operates_shared_limit(admin: &Admin) {
    let (_, limits) = admin.api("GET", "limits", "").await;
    let names: Vec<_> = limits.as_array().expect("a list").iter().map(|one| (&one["route"], &one["limit"])).collect();
    let name = |route: &str, limit: &str| (json!(route), json!(limit));
    let expected = [name("@", "daily"), name("a", "own"), name("b", "own")];
    assert_eq!(names, expected.iter().map(|(route, limit)| (route, limit)).collect::<Vec<_>>());

    assert_eq!(sent(admin, &["/a", "/b", "/a", "/a"]).await, [200, 200, 200, 429]);
    let (status, state) = admin.api("GET", "limits/@/daily/client?value=k", "").await;
    assert_eq!((status, &state["route"], &state["used"]), (200, &json!("@"), &json!(3)), "{state}");
    let metrics = admin.metrics().await;
    let mut series: Vec<_> = metrics.lines().filter(|line| line.contains("limit=\"daily\"")).collect();
    series.sort_unstable();
    let series_of = |outcome: &str, count| {
        format!("tidegate_decisions_total{{route=\"\",limit=\"daily\",outcome=\"{outcome}\"}} {count}")
    };
    assert_eq!(series, [series_of("allowed", 3), series_of("limited", 1)]);
    let (_, rejected) = admin.api("GET", "limits/@/daily/rejected", "").await;
    assert_eq!((&rejected[0]["route"], &rejected[0]["count"]), (&json!("@"), &json!(1)), "{rejected}");
    let (code, top, errors) = admin.run(&["top"], None).await;
    assert!(code == 0 && top.contains("@/daily"), "{top}{errors}");
    let (code, listed, errors) = admin.run(&["limits"], None).await;
    assert!(code == 0 && listed.lines().any(|line| line.starts_with("@      daily ")), "{listed}{errors}");
    let (code, client, errors) = admin.run(&["client", "@/daily", "k"], None).await;
    // The exit code of a client without permits is 1.
    assert!(code == 1 && client.lines().any(|line| line == "used         3"), "{client}{errors}");

    let fields = format!("Authorization: Bearer {TOKEN}\r\n");
    let create = async |body: Value| {
        let (status, created) = admin.send("POST", "overrides", &fields, &body.to_string()).await;
        assert_eq!(status, 201, "{created}");
        created["id"].as_str().expect("an id").to_owned()
    };
    let change = |action: &str, scope: &str, more: Value| {
        let target = json!({ "client": ["k"] });
        let mut body = json!({ "action": action, "scope": scope, "target": target, "for": "1h", "reason": "a test" });
        more.as_object().into_iter().flatten().for_each(|(key, value)| body[key] = value.clone());
        body
    };
    let adjusted = create(change("adjust", "@/daily", json!({ "rate": 4 }))).await;
    assert_eq!(sent(admin, &["/a", "/a"]).await, [200, 429]);
    let (_, state) = admin.api("GET", "limits/@/daily/client?value=k", "").await;
    assert_eq!(state["override"]["id"], adjusted, "{state}");
    let exempted = create(change("exempt", "@/daily", Value::Null)).await;
    assert_eq!(sent(admin, &["/a", "/a"]).await, [200, 200]);
    for id in [adjusted, exempted] {
        assert_eq!(admin.change(&format!("overrides/{id}")).await.0, 200);
    }
    // The scope `@` contains the shared limits; the scope of a route, only its own ones.
    for (scope, expected) in [("@", [200, 200]), ("a", [429, 429])] {
        let target = json!({ "target": { "address": "127.0.0.0/8" } });
        let id = create(change("exempt", scope, target)).await;
        assert_eq!(sent(admin, &["/a", "/a"]).await, expected, "{scope}");
        assert_eq!(admin.change(&format!("overrides/{id}")).await.0, 200);
    }
    assert_eq!(sent(admin, &["/a"]).await, [429]);
    let token = admin.folder.join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).expect("written");
    let (code, _, errors) = admin.run(&["reset", "@/daily", "k"], Some(&token)).await;
    assert_eq!(code, 0, "{errors}");
    assert_eq!(sent(admin, &["/a"]).await, [200]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_name_a_shared_limit_in_memory() {
    operates_shared_limit(&admin("memory")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_name_a_shared_limit_in_redis() {
    let Some(redis) = RedisServer::start() else { return };
    operates_shared_limit(&admin(&format!("{{ url: '{}', timeout: 10s }}", redis.url()))).await;
}
