//! Calls over HTTP, with the paths of envoyproxy/ratelimit: `POST /json` and `GET /healthcheck`. [`take`] has the
//! paths for programs.

mod request;
mod response;

use http::header::{ALLOW, CONTENT_TYPE, ORIGIN};
use http::{HeaderValue, Method, Request, Response, StatusCode};

use super::CallContext;
use super::bad_call::BadCall;
use super::decide::Pending;
use super::response_body::{CallBody, text};
use super::take;
use tidegate_limit::clock::Stopwatch;
use tidegate_proxy::upstream::RequestBody;
use tidegate_service::{Call, CallError};

/// Responds to a request.
pub(super) async fn respond(context: CallContext, request: Request<RequestBody>) -> Response<CallBody> {
    if request.uri().path().starts_with(take::PATHS) {
        return take::respond(&context, request).await;
    }
    let (head, body) = request.into_parts();
    // Browsers send this field. A page could otherwise use up limits on the machine of its reader.
    if head.headers.contains_key(ORIGIN) {
        return text(StatusCode::FORBIDDEN, "requests of web pages are not accepted");
    }
    match (&head.method, head.uri.path()) {
        (&Method::POST, "/json") => json(&context, body).await,
        (&Method::GET | &Method::HEAD, "/healthcheck") => match context.is_serving() {
            true => text(StatusCode::OK, "OK"),
            false => text(StatusCode::INTERNAL_SERVER_ERROR, "the gateway drains, or waits for its control plane"),
        },
        (_, "/json") => method_not_allowed("POST"),
        (_, "/healthcheck") => method_not_allowed("GET, HEAD"),
        _ => text(StatusCode::NOT_FOUND, "there is no such path"),
    }
}

/// Decides a call in JSON.
async fn json(context: &CallContext, body: RequestBody) -> Response<CallBody> {
    let since = Stopwatch::start();
    let body = context.memory.read(body).await;
    let active = context.layer.active_domains();
    let pending = body.and_then(|body| read(&body, |call| Pending::new(&active, call)));
    let answer = match pending {
        Ok(pending) => pending.decide(&active).await,
        Err(error) => {
            error.record(&active, since);
            return text(error.http_status(), &error.to_string());
        }
    };
    let mut response = Response::new(CallBody::new(response::write(&answer)));
    if answer.is_over {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    }
    response.headers_mut().extend(answer.fields);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Reads the call from JSON, and uses it.
///
/// # Errors
/// The body is no such JSON, or is no valid call.
pub(super) fn read<T>(body: &[u8], with: impl FnOnce(&Call<'_>) -> Result<T, CallError>) -> Result<T, BadCall> {
    let request = request::Request::read(body)?;
    Ok(with(&request.call()?)?)
}

fn method_not_allowed(allowed: &'static str) -> Response<CallBody> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "this path has other methods");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
