//! The messages of gRPC health checks (grpc/health/v1/health.proto).

/// The path of the call that returns the status once.
pub const CHECK_PATH: &str = "/grpc.health.v1.Health/Check";

/// The path of the call whose response is a stream: the status, and then each change of it.
pub const WATCH_PATH: &str = "/grpc.health.v1.Health/Watch";

/// The `HealthCheckResponse.ServingStatus` of a service that accepts calls.
pub const SERVING: i32 = 1;
/// The `HealthCheckResponse.ServingStatus` of a service that accepts no calls.
pub const NOT_SERVING: i32 = 2;
/// The `HealthCheckResponse.ServingStatus` of a service that the server does not know.
pub const SERVICE_UNKNOWN: i32 = 3;

/// The question for the status of a service.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthCheckRequest {
    /// The empty name is for the whole server.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The status of the service.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthCheckResponse {
    /// A value of `HealthCheckResponse.ServingStatus`, such as [`SERVING`].
    #[prost(int32, tag = "1")]
    pub status: i32,
}
