//! Health checks (grpc.health.v1): the service serves until its gateway drains, and from the first
//! configuration of a control plane that is required.

use prost::Message;

use super::CallContext;
use super::status::Status;
use crate::service::bad_call::BadCall;
use tidegate_proxy::http::grpc::only_message;
use tidegate_proxy::http::grpc_health::{HealthCheckRequest, HealthCheckResponse, NOT_SERVING, SERVING};
use tidegate_proxy::upstream::RequestBody;

/// The names of the service. The empty name is for the whole server, and envoyproxy/ratelimit has the second.
const SERVICES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

/// Returns the status of the service.
pub(super) async fn check(context: &CallContext, body: RequestBody) -> Result<HealthCheckResponse, Status> {
    let request = read(context, body).await?;
    if !is_known(&request) {
        return Err(Status::NOT_FOUND);
    }
    Ok(HealthCheckResponse { status: status(context) })
}

/// Returns `true` if a request names a service that this server has.
pub(super) fn is_known(request: &HealthCheckRequest) -> bool {
    SERVICES.contains(&&*request.service)
}

/// Returns the status of all services.
pub(super) fn status(context: &CallContext) -> i32 {
    if context.is_serving() { SERVING } else { NOT_SERVING }
}

/// Reads a request.
///
/// # Errors
/// The body is too long or incomplete, or there is no memory for it.
pub(super) async fn read(context: &CallContext, body: RequestBody) -> Result<HealthCheckRequest, BadCall> {
    let body = context.memory.read(body).await?;
    Ok(HealthCheckRequest::decode(only_message(&body)?)?)
}
