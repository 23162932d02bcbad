//! The rate limit service on Redis: several instances, and outages.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::support::redis::RedisServer;
use crate::support::service::{
    HealthCheck, HealthStatus, OK, OVER_LIMIT, RateLimitDescriptor, TestService, UInt64Value, call, descriptor,
};
use crate::support::wire::soon;

/// The same limit with each failure policy, for other keys.
const LIMITS: [&str; 3] = [
    "name: local, match: { local: '*' }, mode: PER_CLIENT, rate: 20, interval: 1h",
    "name: allow, match: { allow: '*' }, mode: PER_CLIENT, rate: 20, interval: 1h, on_store_failure: allow",
    "name: deny, match: { deny: '*' }, mode: PER_CLIENT, rate: 20, interval: 1h, on_store_failure: deny",
];

/// Waits until Redis has all permits that the share of the gateway has granted.
async fn charged(service: &TestService) {
    soon(async { while service.status().await["store"]["owed"] != 0 {} }).await;
}

/// Returns a store that waits for a Redis that hangs.
fn patient(redis: &RedisServer) -> String {
    format!("{{ url: '{}', timeout: 60s }}", redis.url())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_share_the_limits_of_a_domain() {
    let Some(redis) = RedisServer::start() else { return };
    let services = [TestService::start(&redis.rule(), &LIMITS), TestService::start(&redis.rule(), &LIMITS)];
    let mut clients = JoinSet::new();
    for number in 0..8 {
        let client = services[number % 2].client().await;
        clients.spawn(async move {
            let mut granted = 0;
            for _ in 0..10 {
                let response = client.should_rate_limit(&call([descriptor("local=x")])).await.expect("an answer");
                granted += u32::from(response.overall_code == OK);
            }
            granted
        });
    }
    assert_eq!(clients.join_all().await.into_iter().sum::<u32>(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_policy_of_each_limit_decides_during_an_outage() {
    let Some(redis) = RedisServer::start() else { return };
    let service = TestService::start(&redis.rule(), &LIMITS);
    let client = service.client().await;
    let ask = async |key: &str| client.should_rate_limit(&call([descriptor(key)])).await.expect("an answer");
    assert_eq!(ask("local=x").await.remaining(), [(OK, 19)]);
    drop(redis);
    soon(async { while service.counter("tidegate_store_up").await > 0 {} }).await;
    let allowed = ask("allow=x").await;
    assert_eq!((allowed.remaining(), &allowed.statuses[0].current_limit), (vec![(OK, 0)], &None));
    let denied = ask("deny=x").await;
    assert_eq!((denied.overall_code, denied.remaining()), (OVER_LIMIT, vec![(OVER_LIMIT, 0)]));
    assert_eq!((denied.field("retry-after"), denied.field("ratelimit")), (Some("1"), None));
    let problem: serde_json::Value = serde_json::from_slice(&denied.raw_body).expect("JSON");
    assert_eq!(problem["status"], 503);
    // One gateway has the whole rate. A share has no fields for clients.
    let mut granted = 0;
    loop {
        let response = ask("local=y").await;
        assert_eq!(response.field("ratelimit"), None);
        match response.overall_code {
            OK => granted += 1,
            _ => break,
        }
    }
    assert_eq!(granted, 20);
    let failed = "tidegate_decisions_total{route=\"/edge\",limit=\"deny\",outcome=\"store_failed\"}";
    assert_eq!(service.counter(failed).await, 1);
}

/// The share of the gateway decides a call at its deadline, and the late reply of Redis takes no permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_redis_delays_a_call_until_its_deadline() {
    let Some(redis) = RedisServer::start() else { return };
    for (keys, grpc_timeout) in [("timeout: 20ms", None), ("timeout: 60s", Some("20m"))] {
        let service = TestService::start_with(keys, &patient(&redis), &LIMITS);
        let client = service.client().await.with_timeout(grpc_timeout);
        let ask =
            async || client.should_rate_limit(&call([descriptor(&format!("local={keys}"))])).await.expect("an answer");
        // A slow machine may decide some of these locally, too.
        while ask().await.field("ratelimit").is_none() {}
        redis.signal("STOP");
        let answer = ask().await;
        assert_eq!((answer.overall_code, answer.field("ratelimit")), (OK, None));
        redis.signal("CONT");
        charged(&service).await;
    }
}

/// The same with exact numbers: of 20 permits, Redis grants the first, the share the second, and Redis the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_reply_to_a_call_gives_its_permits_back() {
    let Some(redis) = RedisServer::start() else { return };
    let service = TestService::start_with("timeout: 60s", &patient(&redis), &LIMITS);
    let (patient, hurried) = (service.client().await, service.client().await.with_timeout(Some("20m")));
    let request = call([descriptor("local=x")]);
    let first = patient.should_rate_limit(&request).await.expect("an answer");
    assert_eq!(first.remaining(), [(OK, 19)]);
    redis.signal("STOP");
    let second = hurried.should_rate_limit(&request).await.expect("an answer");
    assert_eq!((second.overall_code, second.field("ratelimit")), (OK, None));
    redis.signal("CONT");
    charged(&service).await;
    let mut granted = 2;
    while patient.should_rate_limit(&request).await.expect("an answer").overall_code == OK {
        granted += 1;
    }
    assert_eq!(granted, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_is_charged_after_its_deadline() {
    let Some(redis) = RedisServer::start() else { return };
    let service = TestService::start_with("timeout: 60s", &patient(&redis), &LIMITS);
    let (patient, hurried) = (service.client().await, service.client().await.with_timeout(Some("20m")));
    let hits =
        |value| call([RateLimitDescriptor { hits_addend: Some(UInt64Value { value }), ..descriptor("local=x") }]);
    let check = async || patient.should_rate_limit(&hits(0)).await.expect("an answer").remaining();
    assert_eq!(check().await, [(OK, 20)]);
    redis.signal("STOP");
    let reported = hurried.should_rate_limit(&hits(3)).await.expect("an answer");
    assert_eq!((reported.overall_code, reported.field("ratelimit")), (OK, None));
    redis.signal("CONT");
    soon(async { while check().await != [(OK, 17)] {} }).await;
}

/// A call that waits for Redis is answered, and the connection then ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_answers_calls_in_flight() {
    let Some(redis) = RedisServer::start() else { return };
    let mut service = TestService::start_with("timeout: 60s", &patient(&redis), &LIMITS);
    let client = service.client().await;
    client.should_rate_limit(&call([descriptor("local=x")])).await.expect("an answer");
    redis.signal("STOP");
    let gateway = service.gateway.take().expect("a gateway");
    let (read, is_read) = tokio::sync::oneshot::channel();
    let pending = tokio::spawn(async move {
        // The gateway reads a connection in order: when it answers the check, it has read the call.
        let check = async {
            let all = HealthCheck { service: String::new() };
            client.unary::<HealthStatus>("/grpc.health.v1.Health/Check", &all).await.expect("an answer");
            read.send(()).expect("a test");
        };
        let question = call([descriptor("local=x")]);
        let (response, ()) = tokio::join!(client.should_rate_limit(&question), check);
        (client, response)
    });
    soon(is_read).await.expect("a check");
    let draining = tokio::task::spawn_blocking(move || gateway.drain(Duration::from_secs(60)));
    redis.signal("CONT");
    let (client, response) = soon(pending).await.expect("a task");
    assert_eq!(response.expect("an answer").remaining(), [(OK, 18)]);
    soon(draining).await.expect("a task").expect("drained");
    assert!(soon(client.closed()).await);
}
