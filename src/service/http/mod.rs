//! Calls over HTTP, with the paths of envoyproxy/ratelimit: `POST /json` and `GET /healthcheck`. [`take`] has the
//! paths for programs.

mod request;
mod response;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};

use super::CallContext;
use super::bad_call::BadCall;
use super::decide::Pending;
use super::problem::Problem;
use super::response_body::{CallBody, text};
use super::take;
use tidegate_limit::clock::Stopwatch;
use tidegate_proxy::upstream::RequestBody;
use tidegate_service::{Call, CallError};

const NOT_SERVING: &str = "the gateway drains, or waits for its control plane";

/// Responds to a request.
pub(super) async fn respond(context: CallContext, request: Request<RequestBody>) -> Response<CallBody> {
    if request.uri().path().starts_with(take::PATHS) {
        return take::respond(&context, request).await;
    }
    answer(&context, request).await.unwrap_or_else(Problem::into_response)
}

async fn answer(context: &CallContext, request: Request<RequestBody>) -> Result<Response<CallBody>, Problem> {
    let (head, body) = request.into_parts();
    Problem::reject_page(&head.headers)?;
    match (&head.method, head.uri.path()) {
        (&Method::POST, "/json") => json(context, &head.headers, body).await,
        (&Method::GET | &Method::HEAD, "/healthcheck") => match context.is_serving() {
            true => Ok(text(StatusCode::OK, "OK")),
            false => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, NOT_SERVING)),
        },
        (_, "/json") => Err(Problem::method_not_allowed("POST")),
        (_, "/healthcheck") => Err(Problem::method_not_allowed("GET, HEAD")),
        _ => Err(Problem::new(StatusCode::NOT_FOUND, "there is no such path")),
    }
}

/// Decides a call in JSON.
async fn json(context: &CallContext, fields: &HeaderMap, body: RequestBody) -> Result<Response<CallBody>, Problem> {
    let since = Stopwatch::start();
    let body = context.memory.read(body).await;
    let active = context.layer.active_domains();
    let pending = body.and_then(|body| read(&body, |call| Pending::new(&active, call)));
    let mut answer = match pending {
        Ok(pending) => pending.decide(&active).await,
        Err(error) => {
            error.record(&active, since);
            return Err(error.into());
        }
    };
    let is_for_client = answer.is_over && accepts_problem(fields);
    let body = if is_for_client { std::mem::take(&mut answer.body) } else { response::write(&answer) };
    let mut response = Response::new(CallBody::new(body));
    if answer.is_over {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    }
    response.headers_mut().extend(answer.fields);
    if !is_for_client {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(response)
}

/// Returns `true` if the caller asks for a rejection as problem details, to send it to its own client.
fn accepts_problem(fields: &HeaderMap) -> bool {
    let accepted =
        fields.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    let mut types = accepted.map(|range| range.split(';').next().unwrap_or_default().trim());
    types.any(|name| name.eq_ignore_ascii_case("application/problem+json"))
}

/// Reads the call from JSON, and uses it.
///
/// # Errors
/// The body is no such JSON, or is no valid call.
pub(super) fn read<T>(body: &[u8], with: impl FnOnce(&Call<'_>) -> Result<T, CallError>) -> Result<T, BadCall> {
    let request = request::Request::read(body)?;
    Ok(with(&request.call()?)?)
}
