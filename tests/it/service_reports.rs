//! Reports of costs after the response: a limit that was checked with 0 hits is charged in any case.

use crate::support::redis::RedisServer;
use crate::support::service::{
    GrpcClient, OK, OVER_LIMIT, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, TestService, UInt64Value,
    call, descriptor,
};
use crate::support::wire::soon;

const LIMITS: [&str; 5] = [
    "name: tokens, match: { tokens: '*' }, mode: PER_CLIENT, rate: 10, interval: 1h",
    "name: requests, match: { requests: '*' }, mode: PER_CLIENT, rate: 1, interval: 1h",
    "name: shadow, match: { shadow: '*' }, mode: PER_CLIENT, rate: 10, interval: 1h, shadow: true",
    "name: steady, match: { steady: '*' }, mode: PER_CLIENT, rate: 10, interval: 1h, algorithm: gcra, burst: 5",
    "name: open, match: { open: '*' }, mode: PER_CLIENT, rate: 10, interval: 1h, on_store_failure: allow",
];

/// Sends a call with these descriptors, each with its hits.
async fn ask<const N: usize>(client: &GrpcClient, descriptors: [(&str, u64); N]) -> RateLimitResponse {
    let descriptors = descriptors.map(|(text, hits)| {
        let hits_addend = Some(UInt64Value { value: hits });
        RateLimitDescriptor { hits_addend, ..descriptor(text) }
    });
    client.should_rate_limit(&call(descriptors)).await.expect("an answer")
}

/// Sends a call with one descriptor. Returns its code and the remaining requests.
async fn one(client: &GrpcClient, text: &str, hits: u64) -> (i32, u32) {
    ask(client, [(text, hits)]).await.remaining()[0]
}

#[tokio::test]
async fn report_beyond_the_limit_is_charged_into_debt() {
    let service = TestService::start("memory", &LIMITS);
    let client = service.client().await;
    assert_eq!(one(&client, "tokens=ann", 0).await, (OK, 10));
    assert_eq!(one(&client, "tokens=ann", 4).await, (OK, 6));
    assert_eq!(one(&client, "tokens=ann", 0).await, (OK, 6));
    assert_eq!(one(&client, "tokens=ann", 25).await, (OVER_LIMIT, 0));
    let check = ask(&client, [("tokens=ann", 0)]).await;
    assert_eq!(check.remaining(), [(OVER_LIMIT, 0)]);
    // 29 of 10: the first ten are in use for an hour, the debt of 19 takes two more.
    let reset = check.statuses[0].duration_until_reset.clone().expect("a duration").seconds;
    assert!((2 * 3_600 - 60..=2 * 3_600).contains(&reset), "{reset} s");
    assert_eq!(check.field("retry-after"), Some(reset.to_string().as_str()));
    assert_eq!(one(&client, "tokens=bob", 0).await, (OK, 10), "each client has its own debt");
}

#[tokio::test]
async fn limit_that_was_never_checked_drops_what_exceeds_it() {
    let service = TestService::start("memory", &LIMITS);
    let client = service.client().await;
    assert_eq!(one(&client, "tokens=ann", 11).await, (OVER_LIMIT, 0));
    assert_eq!(one(&client, "tokens=ann", 10).await, (OK, 0));
}

#[tokio::test]
async fn call_without_stated_hits_is_no_report() {
    let service = TestService::start("memory", &LIMITS);
    let client = service.client().await;
    assert_eq!(one(&client, "tokens=ann", 0).await, (OK, 10));
    assert_eq!(one(&client, "tokens=ann", 10).await, (OK, 0));
    for _ in 0..3 {
        let response = client.should_rate_limit(&call([descriptor("tokens=ann")])).await.expect("an answer");
        assert_eq!(response.overall_code, OVER_LIMIT);
    }
    assert_eq!(one(&client, "tokens=ann", 0).await, (OK, 0), "rejected calls add no debt");
    let of_call = RateLimitRequest { hits_addend: 5, ..call([descriptor("tokens=ann")]) };
    assert_eq!(client.should_rate_limit(&of_call).await.expect("an answer").overall_code, OVER_LIMIT);
    assert_eq!(one(&client, "tokens=ann", 0).await, (OVER_LIMIT, 0));
}

#[tokio::test]
async fn report_is_charged_although_another_limit_rejects() {
    let service = TestService::start("memory", &LIMITS);
    let client = service.client().await;
    assert_eq!(one(&client, "tokens=ann", 0).await, (OK, 10));
    assert_eq!(one(&client, "requests=ann", 1).await, (OK, 0));
    let response = ask(&client, [("tokens=ann", 3), ("requests=ann", 1)]).await;
    assert_eq!(response.remaining(), [(OK, 7), (OVER_LIMIT, 0)]);
    // And the other way round: a report over its limit does not keep the other limit from being charged.
    let response = ask(&client, [("tokens=ann", 30), ("requests=bob", 1)]).await;
    assert_eq!(response.remaining(), [(OVER_LIMIT, 0), (OK, 0)]);
    assert_eq!(one(&client, "requests=bob", 1).await, (OVER_LIMIT, 0));
}

#[tokio::test]
async fn shadow_counts_reports_and_rejects_nothing() {
    let service = TestService::start("memory", &LIMITS);
    let client = service.client().await;
    for (hits, remaining) in [(0, 10), (25, 0), (0, 0)] {
        assert_eq!(one(&client, "shadow=ann", hits).await, (OK, remaining), "{hits}");
    }
    let limited = "tidegate_decisions_total{route=\"/edge\",limit=\"shadow\",outcome=\"shadow_limited\"}";
    assert_eq!(service.counter(limited).await, 2);
}

/// Two quotas that get reports, a quota that gets none, and a limit, in the syntax of the rule file.
const QUOTAS: [&str; 4] = [
    "name: tokens, match: { tokens: '*' }, mode: PER_CLIENT, rate: 10, interval: 1h, quota_mode: true",
    "name: bytes, match: { bytes: '*' }, mode: PER_CLIENT, rate: 2, interval: 1h, quota_mode: true",
    "name: calls, match: { calls: '*' }, mode: PER_CLIENT, rate: 1, interval: 1h, quota_mode: true",
    "name: requests, match: { requests: '*' }, mode: PER_CLIENT, rate: 9, interval: 1h",
];

/// Each call with the hits of its descriptors, its code, and the code and the remaining hits of each descriptor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_with_reports_reject_no_other_hits() {
    let Some(redis) = RedisServer::start() else { return };
    for store in ["memory".to_owned(), redis.rule()] {
        let service = TestService::start(&store, &QUOTAS);
        let client = service.client().await;
        let [tokens, bytes, calls, requests] = ["tokens=a", "bytes=a", "calls=a", "requests=a"];
        // The checks make both quotas post-paid.
        let checked = ask(&client, [(tokens, 0), (bytes, 0)]).await;
        assert_eq!((checked.overall_code, checked.remaining()), (OK, vec![(OK, 10), (OK, 2)]));
        let single = ask(&client, [(tokens, 25)]).await;
        assert_eq!((single.overall_code, single.remaining()), (OVER_LIMIT, vec![(OVER_LIMIT, 0)]), "15 hits of debt");
        let checked = ask(&client, [(tokens, 0), (bytes, 0), (requests, 1)]).await;
        assert_eq!((checked.overall_code, checked.remaining()), (OK, vec![(OVER_LIMIT, 0), (OK, 2), (OK, 8)]));
        let one_over = ask(&client, [(tokens, 5), (bytes, 1), (requests, 1)]).await;
        assert_eq!((one_over.overall_code, one_over.remaining()), (OK, vec![(OVER_LIMIT, 0), (OK, 1), (OK, 7)]));
        // Only reports exceed their quotas: the request stays charged.
        let all_over = ask(&client, [(tokens, 5), (bytes, 5), (requests, 1)]).await;
        let expected = vec![(OVER_LIMIT, 0), (OVER_LIMIT, 0), (OK, 6)];
        assert_eq!((all_over.overall_code, all_over.remaining()), (OVER_LIMIT, expected));
        let checked = ask(&client, [(tokens, 0), (bytes, 0)]).await;
        assert_eq!(checked.remaining(), [(OVER_LIMIT, 0), (OVER_LIMIT, 0)]);
        // Another quota rejects the request together with a report, which stays charged.
        assert_eq!(ask(&client, [(calls, 1), (requests, 1)]).await.remaining(), [(OK, 0), (OK, 5)]);
        let rejected = ask(&client, [(tokens, 10), (calls, 1), (requests, 1)]).await;
        let expected = vec![(OVER_LIMIT, 0), (OVER_LIMIT, 0), (OK, 5)];
        assert_eq!((rejected.overall_code, rejected.remaining()), (OVER_LIMIT, expected), "the request is given back");
        assert_eq!(one(&client, requests, 0).await, (OK, 5), "{store}");
        // 45 of 10: the first ten are in use for an hour, the debt of 35 takes three more.
        let check = ask(&client, [(tokens, 0)]).await;
        let reset = check.statuses[0].duration_until_reset.clone().expect("a duration").seconds;
        assert!((4 * 3_600 - 60..=4 * 3_600).contains(&reset), "{reset} s of {store}");
    }
}

/// The proxy asks any instance at the door, and reports to any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_charge_reports_to_limits_that_others_checked() {
    let Some(redis) = RedisServer::start() else { return };
    let services = [TestService::start(&redis.rule(), &LIMITS), TestService::start(&redis.rule(), &LIMITS)];
    let [checks, reports] = [services[0].client().await, services[1].client().await];
    for (key, algorithm) in [("tokens", "token_bucket"), ("steady", "gcra")] {
        let user = format!("{key}=ann");
        assert_eq!(one(&checks, &user, 0).await.0, OK);
        // The first report is refused before the instance knows the mark.
        assert_eq!(one(&reports, &user, 1_000_000).await, (OVER_LIMIT, 0), "{algorithm}");
        assert_eq!(one(&checks, &user, 0).await, (OVER_LIMIT, 0), "{algorithm}");
        assert_eq!(one(&reports, &user, 1).await, (OVER_LIMIT, 0), "{algorithm}");
        assert_eq!(one(&reports, &user, 0).await, (OVER_LIMIT, 0), "{algorithm}");
    }
}

/// An instance that knows a refusal without asking Redis must not answer a report by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_refusal_drops_no_report() {
    let Some(redis) = RedisServer::start() else { return };
    let service = TestService::start(&redis.rule(), &LIMITS);
    let client = service.client().await;
    assert_eq!(one(&client, "tokens=ann", 10).await, (OK, 0));
    assert_eq!(one(&client, "tokens=ann", 5).await, (OVER_LIMIT, 0), "an ordinary call");
    assert_eq!(one(&client, "tokens=ann", 0).await, (OK, 0), "exactly at the limit");
    assert_eq!(one(&client, "tokens=ann", 5).await, (OVER_LIMIT, 0));
    assert_eq!(one(&client, "tokens=ann", 0).await, (OVER_LIMIT, 0), "five of debt");
    assert_eq!(one(&client, "tokens=ann", 25).await, (OVER_LIMIT, 0));
    let check = ask(&client, [("tokens=ann", 0)]).await;
    // 40 of 10.
    let reset = check.statuses[0].duration_until_reset.clone().expect("a duration").seconds;
    assert!((3 * 3_600 - 60..=3 * 3_600).contains(&reset), "{reset} s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_of_an_outage_are_charged_after_it() {
    let Some(redis) = RedisServer::start() else { return };
    let (port, rule) = (redis.port, redis.rule());
    let service = TestService::start(&rule, &LIMITS);
    let client = service.client().await;
    assert_eq!(ask(&client, [("tokens=ann", 0), ("open=ann", 0)]).await.remaining(), [(OK, 10), (OK, 10)]);
    drop(redis);
    soon(async { while service.counter("tidegate_store_up").await > 0 {} }).await;
    let report = ask(&client, [("tokens=ann", 25), ("open=ann", 25)]).await;
    assert_eq!(report.overall_code, OK, "without Redis, the limits do not decide");
    assert_eq!(one(&client, "tokens=ann", 0).await.0, OVER_LIMIT, "the share of this gateway is in debt");
    let _redis = RedisServer::start_on(port).expect("a server");
    soon(async { while service.counter("tidegate_store_up").await == 0 {} }).await;
    let other = TestService::start(&rule, &LIMITS);
    let client = other.client().await;
    for user in ["tokens=ann", "open=ann"] {
        soon(async { while one(&client, user, 0).await.0 == OK {} }).await;
    }
}
