//! The layer over a gRPC service of tonic.

use tidegate::RateLimitLayer;
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
    let mut passed = Vec::new();
    for _ in 0..3 {
        passed.push(client.check(HealthCheckRequest::default()).await.is_ok());
    }
    assert_eq!(passed, [true, true, false]);
}
