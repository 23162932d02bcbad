//! The rate limit service with domains of a control plane, which it follows over xDS.

mod failures;
mod load;
mod overrides;
mod reload;
mod saved;
mod stream;
mod tls;

use crate::support::control_plane::{ControlPlane, HOUR, RateLimitConfig, Stream, config, limited};
use crate::support::service::{GrpcClient, HealthCheck, HealthStatus, TestService, call, descriptor};
use crate::support::wire::soon;

/// The values of `HealthCheckResponse.ServingStatus`.
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

/// Returns a rule file whose service follows the control plane at this URL. `more` is appended to the keys of `descriptors`,
/// and `end` to the file.
fn rules(url: &str, more: &str, end: &str) -> String {
    format!(
        "admin: 127.0.0.1:0\nservice:\n  grpc: 127.0.0.1:0\n  http: 127.0.0.1:0\n  descriptors: {{ xds: '{url}', node: tests{more} }}\n{end}"
    )
}

/// Starts a service while the control plane runs.
async fn start(text: String) -> TestService {
    soon(tokio::task::spawn_blocking(move || TestService::from_rules(&text))).await.expect("a service")
}

/// Starts a service, and answers its first request with these configurations, which it accepts.
async fn start_with(plane: &mut ControlPlane, configs: &[RateLimitConfig]) -> (TestService, Stream) {
    let text = rules(&format!("http://{}", plane.address), "", "");
    let answer = async {
        let mut stream = plane.stream().await;
        stream.request().await;
        let accepted = stream.push_and_wait("1", "first", configs).await;
        assert_eq!(accepted.error_detail, None);
        stream
    };
    tokio::join!(start(text), answer)
}

/// Returns the configuration of the domain `edge` with this limit of `user`.
fn edge(rate: u32) -> RateLimitConfig {
    config("edge", [limited("user", HOUR, rate)])
}

/// Returns the limit that applies to a user, and what remains. Takes a permit.
async fn take(client: &GrpcClient, user: &str) -> Option<(u32, u32)> {
    let response = client.should_rate_limit(&call([descriptor(&format!("user={user}"))])).await.expect("an answer");
    let status = &response.statuses[0];
    status.current_limit.as_ref().map(|limit| (limit.requests_per_unit, status.limit_remaining))
}

/// Returns the status of the health checks over gRPC and HTTP.
async fn health(service: &TestService) -> (i32, u16) {
    let check = HealthCheck { service: String::new() };
    let client = service.client().await;
    let status: HealthStatus = client.unary("/grpc.health.v1.Health/Check", &check).await.expect("a status");
    (status.status, service.http_health().await)
}
