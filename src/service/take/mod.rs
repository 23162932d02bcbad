//! Permits for programs in any language: `POST /v1/take` takes permits of limits by their names, and `POST /v1/return` gives the
//! permits of a request back.

mod access;
mod request;
mod response;

use http::{Method, Request, Response, StatusCode};

pub(super) use self::access::Access;
pub(crate) use self::access::TakeTokens;
pub(super) use self::request::{read_return, read_take};
use super::CallContext;
use super::problem::Problem;
use super::response_body::CallBody;
use tidegate_layer::layer::take::{ReturnedOnce, TakeError};
use tidegate_limit::clock::Stopwatch;
use tidegate_metrics::CallResult;
use tidegate_proxy::upstream::RequestBody;

/// The start of all paths.
pub(super) const PATHS: &str = "/v1/";

const UNKNOWN_ID: &str = "no granted request of the last ten minutes has this `id`";
const REMEMBERED: &str = "only granted requests are remembered, if their response has `\"remembered\": true`";

/// The longest body, in bytes.
const MAX_BODY: usize = 64 << 10;

/// Responds to a request.
pub(super) async fn respond(context: &CallContext, request: Request<RequestBody>) -> Response<CallBody> {
    let since = Stopwatch::start();
    let answered = answer(context, request).await;
    let result = match &answered {
        Ok(response) if response.status() == StatusCode::TOO_MANY_REQUESTS => CallResult::OverLimit,
        Ok(_) => CallResult::Ok,
        Err(_) => CallResult::Invalid,
    };
    context.layer.count_take(result, since.elapsed());
    answered.unwrap_or_else(|problem| {
        tracing::debug!(error = problem.detail(), "request for permits is not answered");
        problem.into_response()
    })
}

async fn answer(context: &CallContext, request: Request<RequestBody>) -> Result<Response<CallBody>, Problem> {
    let (head, body) = request.into_parts();
    Problem::reject_page(&head.headers)?;
    context.access.check(&head.headers).await?;
    match (&head.method, head.uri.path()) {
        (&Method::POST, "/v1/take") => take(context, body).await,
        (&Method::POST, "/v1/return") => give_back(context, body).await,
        (_, "/v1/take" | "/v1/return") => Err(Problem::method_not_allowed("POST")),
        _ => Err(Problem::new(StatusCode::NOT_FOUND, "there is no such path")),
    }
}

/// Takes permits.
async fn take(context: &CallContext, body: RequestBody) -> Result<Response<CallBody>, Problem> {
    let body = context.memory.read_at_most(body, MAX_BODY).await?;
    let take = read_take(&body)?;
    let taken = context.layer.take(&take).await?;
    Ok(response::taken(&take, &taken))
}

/// Gives permits back.
async fn give_back(context: &CallContext, body: RequestBody) -> Result<Response<CallBody>, Problem> {
    let body = context.memory.read_at_most(body, MAX_BODY).await?;
    let id = read_return(&body)?;
    match context.layer.return_permits(&id).await {
        Ok(ReturnedOnce::Now) => Ok(response::returned(true)),
        Ok(ReturnedOnce::Before) => Ok(response::returned(false)),
        Ok(ReturnedOnce::Unknown) => Err(Problem::new(StatusCode::NOT_FOUND, UNKNOWN_ID).with_help(REMEMBERED)),
        Err(error) => Err(Problem::from(TakeError::StoreFailed(error))),
    }
}
