//! The layer around a gRPC service of tonic.

use tidegate_layer::RateLimitLayer;
use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
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
async fn grpc_calls_are_limited_by_method() {
    let (_, server) = tonic_health::server::health_reporter();
    let layer = RateLimitLayer::from_yaml(RULES).expect("rules");
    let mut client = HealthClient::new(layer.layer(server));
    for _ in 0..2 {
        assert!(client.check(HealthCheckRequest::default()).await.is_ok());
    }
    let rejected = client.check(HealthCheckRequest::default()).await.expect_err("over the limit");
    assert_eq!(rejected.code(), Code::ResourceExhausted);
    assert!(rejected.message().starts_with("the same request will pass in "), "{}", rejected.message());
    let pushback = rejected.metadata().get("grpc-retry-pushback-ms").expect("a time").to_str().expect("text");
    assert!((1..=3_600_000).contains(&pushback.parse::<u64>().expect("milliseconds")), "{pushback}");
}

/// The peer is the `TcpConnectInfo` that tonic's server puts into the extensions.
#[tokio::test]
async fn tonic_server_limits_calls_by_address() {
    let rules = RULES.replace("mode: OVERALL", "mode: PER_CLIENT, client: ip");
    let layer = RateLimitLayer::from_yaml(&rules).expect("rules");
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let url = format!("http://{}", incoming.local_addr().expect("an address"));
    let (_, health) = tonic_health::server::health_reporter();
    tokio::spawn(Server::builder().layer(layer).add_service(health).serve_with_incoming(incoming));
    let channel = Endpoint::from_shared(url).expect("an address").connect().await.expect("a connection");
    let mut client = HealthClient::new(channel);
    let mut codes = Vec::new();
    for _ in 0..3 {
        let called = client.check(HealthCheckRequest::default()).await;
        codes.push(called.map_or_else(|status| status.code(), |_| Code::Ok));
    }
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::ResourceExhausted]);
}
