//! The layer over a gRPC service of tonic.

use tidegate::RateLimitLayer;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::Layer;

const RULES: &str = "
routes:
  - name: health
    match: { path: /grpc.health.v1.Health/Check, methods: [POST] }
    limits:
      - { name: checks, mode: OVERALL, rate: 2, interval: 1h }
";

#[tokio::test]
async fn calls_are_limited_by_their_method() {
    let (_, server) = tonic_health::server::health_reporter();
    let layer = RateLimitLayer::from_yaml(RULES).expect("rules");
    let mut client = HealthClient::new(layer.layer(server));
    for _ in 0..2 {
        assert!(client.check(HealthCheckRequest::default()).await.is_ok());
    }
    let refused = client.check(HealthCheckRequest::default()).await.expect_err("a refusal");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().starts_with("the same request will pass in "), "{}", refused.message());
    let pushback = refused.metadata().get("grpc-retry-pushback-ms").expect("a time").to_str().expect("text");
    assert!((1..=3_600_000).contains(&pushback.parse::<u64>().expect("milliseconds")), "{pushback}");
}
