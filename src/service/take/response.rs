//! Writes the responses.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;

use crate::service::response_body::CallBody;
use tidegate_layer::headers::retry_after;
use tidegate_layer::layer::take::{Take, Taken};
use tidegate_limit::Wait;

/// The body of the response to `POST /v1/take`.
#[derive(Serialize)]
struct TakenBody<'t> {
    granted: bool,
    /// The milliseconds until the same request is granted. `null` if waiting cannot help.
    wait_ms: Option<u64>,
    limits: Vec<LimitBody<'t>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remembered: Option<bool>,
}

/// The body of the response to `POST /v1/return`.
#[derive(Serialize)]
struct ReturnedBody {
    returned: bool,
}

/// Marks the response to a repeated request. It has the body of the first response.
const REPEATED: HeaderName = HeaderName::from_static("idempotent-replayed");

#[derive(Serialize)]
struct LimitBody<'t> {
    limit: &'t str,
    granted: bool,
    remaining: Option<u32>,
    wait_ms: Option<u64>,
    reset_ms: Option<u64>,
}

/// Returns the response with a decision.
pub(super) fn taken(take: &Take, taken: &Taken) -> Response<CallBody> {
    let limits = take.requests.iter().zip(&taken.limits).map(|(request, taken)| LimitBody {
        limit: &request.limit,
        granted: taken.is_granted,
        remaining: taken.remaining,
        wait_ms: millis(taken.wait),
        reset_ms: taken.reset,
    });
    let body = TakenBody {
        granted: taken.is_granted,
        wait_ms: millis(taken.wait),
        limits: limits.collect(),
        remembered: taken.is_remembered,
    };
    let mut response = json(&body);
    if taken.is_repeated {
        response.headers_mut().insert(REPEATED, HeaderValue::from_static("true"));
    }
    if !taken.is_granted {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let seconds = retry_after(taken.wait).map(HeaderValue::from);
        response.headers_mut().extend(seconds.map(|seconds| (RETRY_AFTER, seconds)));
    }
    response
}

/// Returns the response to a request to give permits back.
pub(super) fn returned(returned: bool) -> Response<CallBody> {
    json(&ReturnedBody { returned })
}

fn json(body: &impl Serialize) -> Response<CallBody> {
    // The serialization of texts and numbers cannot fail.
    let mut json = serde_json::to_vec(body).unwrap_or_default();
    json.push(b'\n'); // for terminals
    let mut response = Response::new(CallBody::new(json));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the milliseconds of a wait. Returns `None` if waiting cannot help.
fn millis(wait: Wait) -> Option<u64> {
    match wait {
        Wait::Now => Some(0),
        Wait::Millis(millis) => Some(millis),
        Wait::Never => None,
    }
}
