//! Calls of the rate limit service over gRPC: answers, errors, health checks, TLS, reloads and drains.

use crate::support::service::{
    CurrentLimit, GrpcClient, HealthCheck, HealthStatus, OK, OVER_LIMIT, RateLimitDescriptor, RateLimitOverride,
    RateLimitRequest, SHOULD_RATE_LIMIT, TestService, UInt64Value, call, descriptor,
};
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::TlsClient;
use crate::support::wire::raw::Raw;

const HEALTH: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// Three requests a minute for each user, one for a whole path, and none for the banned.
const LIMITS: [&str; 2] = [
    "name: per-user, match: { user: '*' }, mode: PER_CLIENT, rate: 3, interval: 1m",
    "name: per-path, match: { path: '/a' }, mode: OVERALL, rate: 9, interval: 1h",
];

#[tokio::test]
async fn answer_has_statuses_fields_and_problem_details() {
    let service = TestService::start("memory", &LIMITS);
    let client = service.client().await;
    let request = call(["user=ann", "path=/a", "other=x"].map(descriptor));
    for remaining in [2, 1, 0] {
        let response = client.should_rate_limit(&request).await.expect("an answer");
        assert_eq!(response.overall_code, OK);
        assert_eq!(response.remaining(), [(OK, remaining), (OK, 6 + remaining), (OK, 0)]);
        let limit = response.statuses[0].current_limit.clone();
        let expected = CurrentLimit { requests_per_unit: 3, unit: 2, name: "per-user".to_owned() };
        assert_eq!(limit, Some(expected));
        assert_eq!(response.statuses[2].current_limit, None);
        assert_eq!(response.field("ratelimit-policy"), Some("\"per-user\";q=3;w=60"));
        assert!(response.raw_body.is_empty() && response.field("retry-after").is_none());
    }
    let response = client.should_rate_limit(&request).await.expect("an answer");
    assert_eq!(response.overall_code, OVER_LIMIT);
    assert_eq!(response.remaining(), [(OVER_LIMIT, 0), (OK, 6), (OK, 0)], "nothing is charged");
    let reset = response.statuses[0].duration_until_reset.clone().expect("a duration");
    assert_eq!(response.field("retry-after"), Some(reset.seconds.to_string().as_str()));
    assert!((1..=60).contains(&reset.seconds) && reset.nanos == 0, "{reset:?}");
    assert_eq!(response.field("content-type"), Some("application/problem+json"));
    let problem: serde_json::Value = serde_json::from_slice(&response.raw_body).expect("JSON");
    assert_eq!((&problem["status"], &problem["violated-policies"][0]), (&429.into(), &"per-user".into()));
    for (result, count) in [("ok", 3), ("over_limit", 1)] {
        let series = format!("tidegate_service_calls_total{{route=\"/edge\",result=\"{result}\"}}");
        assert_eq!(service.counter(&series).await, count, "{series}");
    }
    let limited = "tidegate_decisions_total{route=\"/edge\",limit=\"per-user\",outcome=\"limited\"}";
    assert_eq!(service.counter(limited).await, 1);
}

#[tokio::test]
async fn call_without_hits_takes_no_permits() {
    let service = TestService::start("memory", &LIMITS);
    let client = service.client().await;
    let with_hits = |hits| {
        let hits_addend = Some(UInt64Value { value: hits });
        call([RateLimitDescriptor { hits_addend, ..descriptor("user=ann") }])
    };
    let mut codes = Vec::new();
    for hits in [0, 3, 0, 1] {
        codes.push(client.should_rate_limit(&with_hits(hits)).await.expect("an answer").remaining()[0]);
    }
    assert_eq!(codes, [(OK, 3), (OK, 0), (OK, 0), (OVER_LIMIT, 0)]);
}

#[tokio::test]
async fn caller_sets_a_limit_for_its_descriptor() {
    let service = TestService::start("memory", &LIMITS);
    let client = service.client().await;
    let limit = Some(RateLimitOverride { requests_per_unit: 1, unit: 3 });
    let request = call([RateLimitDescriptor { limit, ..descriptor("team=red") }]);
    let first = client.should_rate_limit(&request).await.expect("an answer");
    let second = client.should_rate_limit(&request).await.expect("an answer");
    assert_eq!((first.overall_code, second.overall_code), (OK, OVER_LIMIT));
    let current = second.statuses[0].current_limit.clone().expect("a limit");
    assert_eq!((current.requests_per_unit, current.unit), (1, 3));
}

#[tokio::test]
async fn unknown_domain_passes_and_is_counted() {
    let service = TestService::start("memory", &LIMITS);
    let request = RateLimitRequest { domain: "egde".to_owned(), ..call(["user=ann", "user=bob"].map(descriptor)) };
    let response = service.client().await.should_rate_limit(&request).await.expect("an answer");
    assert_eq!((response.overall_code, response.remaining()), (OK, vec![(OK, 0), (OK, 0)]));
    let series = "tidegate_service_calls_total{route=\"\",result=\"unknown_domain\"}";
    assert_eq!(service.counter(series).await, 1);
}

#[tokio::test]
async fn invalid_calls_get_grpc_errors() {
    let service = TestService::start("memory", &LIMITS);
    let client = service.client().await;
    let code = async |request: &RateLimitRequest| client.should_rate_limit(request).await.expect_err("an error").0;
    let no_domain = RateLimitRequest { domain: String::new(), ..call([descriptor("user=ann")]) };
    assert_eq!((code(&no_domain).await, code(&call([])).await), (2, 2));
    let limit = Some(RateLimitOverride { requests_per_unit: 1, unit: 0 });
    let no_unit = call([RateLimitDescriptor { limit, ..descriptor("user=ann") }]);
    assert_eq!(code(&no_unit).await, 3);
    for (body, code) in [(&b"\0\0\0\0\x01\xff"[..], 13), (b"", 13), (b"\x01\0\0\0\0", 12), (b"\0\0\0\0\x05x", 13)] {
        let error = client.send(SHOULD_RATE_LIMIT, body.to_vec()).await.expect_err("an error");
        assert_eq!(error.0, code, "{}: {error:?}", body.escape_ascii());
    }
    let unknown = client.send("/envoy.service.ratelimit.v3.RateLimitService/Other", Vec::new()).await;
    assert_eq!(unknown, Err((12, "the rate limit service has no such method".to_owned())));
    let over_http1 = Raw::connect(service.grpc).await.ask("GET / HTTP/1.1\r\nHost: service\r\n\r\n").await;
    assert_eq!(over_http1.status(), 415);
    assert_eq!(service.counter("tidegate_service_calls_total{route=\"\",result=\"invalid\"}").await, 7);
}

#[tokio::test]
async fn health_checks_follow_the_readiness() {
    let service = TestService::start("memory", &LIMITS);
    let client = service.client().await;
    let check = async |name: &str| {
        let request = HealthCheck { service: name.to_owned() };
        client.unary::<HealthStatus>(HEALTH, &request).await.map(|response| response.status).map_err(|error| error.0)
    };
    for name in ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"] {
        assert_eq!(check(name).await, Ok(1), "{name}");
    }
    assert_eq!((check("other").await, service.http_health().await), (Err(5), 200));
    service.running().fail_readiness();
    assert_eq!((check("").await, service.http_health().await), (Ok(2), 500));
}

#[tokio::test]
async fn watched_health_changes_with_the_readiness() {
    let service = TestService::start("memory", &LIMITS);
    let client = service.client().await;
    let mut known = client.watch(WATCH, &HealthCheck { service: "ratelimit".to_owned() }).await.expect("a stream");
    let mut unknown = client.watch(WATCH, &HealthCheck { service: "other".to_owned() }).await.expect("a stream");
    assert_eq!(known.next::<HealthStatus>().await.status, 1);
    assert_eq!(unknown.next::<HealthStatus>().await.status, 3);
    service.running().fail_readiness();
    assert_eq!(known.next::<HealthStatus>().await.status, 2);
    assert_eq!((known.ended().await, unknown.ended().await), (14, 14));
}

#[tokio::test]
async fn watches_of_a_worker_are_bounded() {
    let service = TestService::start("memory", &LIMITS);
    for _ in 0..2 {
        // Clients that have left have freed their streams.
        while service.client().await.watch(WATCH, &HealthCheck::default()).await.is_err() {
            tokio::task::yield_now().await;
        }
        let (mut clients, mut watches) = (Vec::new(), Vec::new());
        let refused = 'full: loop {
            let client = service.client().await;
            for _ in 0..100 {
                match client.watch(WATCH, &HealthCheck::default()).await {
                    Ok(watch) => watches.push(watch),
                    Err(error) => break 'full error,
                }
            }
            clients.push(client);
        };
        assert_eq!(refused, (8, "too many streams watch the status".to_owned()));
        // There are two workers.
        assert!((1_000..=2_000).contains(&watches.len()), "{} streams", watches.len());
    }
}

#[tokio::test]
async fn reload_changes_the_limits_and_keeps_permits_in_use() {
    let service = TestService::start("memory", &LIMITS);
    let client = service.client().await;
    let request = call([descriptor("user=ann")]);
    assert_eq!(client.should_rate_limit(&request).await.expect("an answer").remaining(), [(OK, 2)]);
    service.reload("memory", &["name: per-user, match: { user: '*' }, mode: PER_CLIENT, rate: 5, interval: 1m"]);
    assert_eq!(client.should_rate_limit(&request).await.expect("an answer").remaining(), [(OK, 3)]);
    service.reload("memory", &["name: other, match: { team: '*' }, mode: PER_CLIENT, rate: 5, interval: 1m"]);
    let response = client.should_rate_limit(&request).await.expect("an answer");
    assert_eq!((response.overall_code, &response.statuses[0].current_limit), (OK, &None));
}

#[tokio::test]
async fn only_proxies_with_a_certificate_connect_over_tls() {
    let authority = Authority::new();
    authority.sign("api", &["api.example"]);
    authority.sign("proxy", &["proxy.example"]);
    let client_auth = format!(", client_auth: {{ ca: '{}' }}", authority.path("ca.pem"));
    let grpc = listener(&authority, &["api"], &client_auth);
    let service = TestService::start_at(&grpc, "memory", &LIMITS);
    let with_certificate = TlsClient { protocols: &["h2"], certificate: Some("proxy"), ..TlsClient::new(&authority) };
    let stream = with_certificate.connect(service.grpc).await.expect("should connect").stream;
    let response = GrpcClient::on(stream).await.should_rate_limit(&call([descriptor("user=ann")])).await;
    assert_eq!(response.expect("an answer").overall_code, OK);
    let without = TlsClient { certificate: None, ..with_certificate };
    // With TLS 1.3 the client learns of the rejection when it reads.
    if let Ok(mut raw) = without.connect(service.grpc).await {
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        assert!(raw.try_message(false, true).await.is_err());
    }
}
