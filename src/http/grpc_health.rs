//! The messages of gRPC health checks (grpc/health/v1/health.proto).

/// The path of the call.
pub(crate) const CHECK_PATH: &str = "/grpc.health.v1.Health/Check";

/// The values of `HealthCheckResponse.ServingStatus`.
pub(crate) const SERVING: i32 = 1;
pub(crate) const NOT_SERVING: i32 = 2;
pub(crate) const SERVICE_UNKNOWN: i32 = 3;

/// The question for the status of a service.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HealthCheckRequest {
    /// The empty name is for the whole server.
    #[prost(string, tag = "1")]
    pub(crate) service: String,
}

/// The status of the service.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    pub(crate) status: i32,
}
