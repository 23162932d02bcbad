//! Calls over gRPC: `ShouldRateLimit`, health checks of load balancers and clients, and reflection.

mod health;
mod lists;
mod messages;
mod reflection;
mod request;
mod response;
mod status;
mod watch;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use prost::Message;

use self::messages::{RateLimitRequest, RateLimitResponse};
use self::status::{GRPC_STATUS, Status};
pub(super) use self::watch::Watches;
use super::CallContext;
use super::bad_call::BadCall;
use super::decide::Pending;
use super::response_body::{CallBody, text};
use tidegate_layer::local_response::GrpcCall;
use tidegate_limit::clock::{Stopwatch, poll_time};
use tidegate_proxy::http::grpc::{frame, only_message};
use tidegate_proxy::http::grpc_health;
use tidegate_proxy::upstream::RequestBody;
use tidegate_rules::request::facts::grpc_timeout::grpc_timeout;
use tidegate_service::{Call, CallError};

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The content type of responses.
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Responds to a request.
pub(super) async fn respond(context: CallContext, request: Request<RequestBody>) -> Response<CallBody> {
    let (head, body) = request.into_parts();
    if head.version != Version::HTTP_2 || GrpcCall::detect(&head.method, &head.headers) != Some(GrpcCall::Grpc) {
        return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "this address serves only gRPC over HTTP/2");
    }
    let message = match head.uri.path() {
        SHOULD_RATE_LIMIT => should_rate_limit(&context, &head.headers, body).await.map(|message| frame(&message)),
        grpc_health::CHECK_PATH => health::check(&context, body).await.map(|message| frame(&message)),
        grpc_health::WATCH_PATH => return watch::respond(context, body).await,
        path if reflection::PATHS.contains(&path) => return reflection::respond(body),
        _ => Err(Status::UNIMPLEMENTED),
    };
    match message {
        Ok(message) => ok(message),
        Err(status) => status.into_response(),
    }
}

async fn should_rate_limit(
    context: &CallContext,
    fields: &HeaderMap,
    body: RequestBody,
) -> Result<RateLimitResponse, Status> {
    let since = Stopwatch::start();
    let deadline = grpc_timeout(fields).and_then(|timeout| poll_time().checked_add(timeout));
    let body = context.memory.read(body).await;
    let active = context.layer.active_domains();
    let pending = body.and_then(|body| read(only_message(&body)?, |call| Pending::new(&active, call)));
    match pending {
        Ok(pending) => Ok(response::message(pending.before(deadline).decide(&active).await)),
        Err(error) => {
            error.record(&active, since);
            Err(error.into())
        }
    }
}

/// Reads the call from a message, and uses it.
///
/// # Errors
/// The message is malformed, or is no valid call.
pub(super) fn read<T>(message: &[u8], with: impl FnOnce(&Call<'_>) -> Result<T, CallError>) -> Result<T, BadCall> {
    lists::check(message)?;
    let request = RateLimitRequest::decode(message)?;
    Ok(with(&request.call()?)?)
}

/// Returns the response with a message in its frame.
fn ok(message: Vec<u8>) -> Response<CallBody> {
    let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
    let mut response = Response::new(CallBody::new(message).with_trailers(trailers));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}
