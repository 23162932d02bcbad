//! Health checks (grpc.health.v1): the service serves until its gateway drains.

use super::status::Status;
use super::{CallContext, read_body};
use crate::protobuf::{Fields, Message, Value};
use crate::service::bad_call::BadCall;
use crate::upstream::RequestBody;

/// The path of the call.
pub(super) const CHECK: &str = "/grpc.health.v1.Health/Check";

/// The names of the service. The empty name is for the whole server, and envoyproxy/ratelimit has the second.
const SERVICES: [&[u8]; 3] = [b"", b"ratelimit", b"envoy.service.ratelimit.v3.RateLimitService"];

/// The numbers of `HealthCheckResponse.ServingStatus`.
const SERVING: u64 = 1;
const NOT_SERVING: u64 = 2;

/// Returns a `HealthCheckResponse`, whose field 1 is the status.
pub(super) async fn check(context: &CallContext, body: RequestBody) -> Result<Vec<u8>, Status> {
    let message = read_body(context, body).await?;
    if !SERVICES.contains(&service(&message)?) {
        return Err(Status::NOT_FOUND);
    }
    let mut response = Message::default();
    response.number(1, if context.readiness.is_ready() { SERVING } else { NOT_SERVING });
    Ok(response.into_bytes())
}

/// Returns the service of a `HealthCheckRequest`, which is field 1.
fn service(message: &[u8]) -> Result<&[u8], BadCall> {
    let mut service = &[][..];
    for field in Fields::new(message) {
        if let (1, Value::Bytes(name)) = field? {
            service = name;
        }
    }
    Ok(service)
}
