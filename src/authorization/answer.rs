//! Reads the response of a service.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, LOCATION, SET_COOKIE, WWW_AUTHENTICATE,
};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::{BodyExt, Limited};
use tokio::time::{Instant, timeout_at};

use tidegate_layer::authorization::{PassedFields, Question, ServiceAnswer, ServiceFailure};
use tidegate_layer::local_response::ConfiguredResponse;
use tidegate_proxy::upstream::ResponseBody;
use tidegate_rules::request::identity::ServiceCheck;

/// The longest body of a denial, in bytes. A longer one is left out.
const MAX_BODY: usize = 64 << 10;

/// The most bytes of fields that a service passes to an upstream.
const MAX_PASSED: usize = 8 << 10;

/// The fields of a denial that clients receive. `Content-*` describe the body.
const TO_CLIENT: [HeaderName; 7] =
    [CACHE_CONTROL, LOCATION, SET_COOKIE, WWW_AUTHENTICATE, CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LANGUAGE];

/// The number of fields of [`TO_CLIENT`] that do not describe the body.
const WITHOUT_BODY: usize = 4;

/// An answer, and whether it holds for equal requests.
pub(super) struct Read {
    pub(super) answer: ServiceAnswer,
    pub(super) may_be_kept: bool,
}

/// Reads a response: 2xx allows the request; 401, 403 and redirects deny it.
///
/// # Errors
/// The response has another status, or the fields for the upstream are too large.
pub(super) async fn read(response: Response<ResponseBody>, question: &Question<'_>) -> Result<Read, ServiceFailure> {
    let (head, body) = response.into_parts();
    match head.status.as_u16() {
        200..=299 => {
            let fields = passed(question.check, &head.headers).ok_or(ServiceFailure::Unexpected)?;
            _ = read_body(body, question.deadline).await; // so that the connection can be used again
            let may_be_kept = !has_no_store(&head.headers);
            Ok(Read { answer: ServiceAnswer::Allowed { fields, is_cached: false }, may_be_kept })
        }
        301..=303 | 307 | 308 | 401 | 403 => {
            let body = read_body(body, question.deadline).await;
            Ok(Read { answer: ServiceAnswer::Denied(Box::new(denial(&head, body))), may_be_kept: false })
        }
        500..=599 => Err(ServiceFailure::Broken),
        _ => Err(ServiceFailure::Unexpected),
    }
}

/// Returns the fields for the upstream. Returns `None` if they are too large.
fn passed(check: &ServiceCheck, headers: &HeaderMap) -> Option<PassedFields> {
    let of_name = |name: &'_ HeaderName| {
        let name = name.clone();
        headers.get_all(&name).iter().map(move |value| (name.clone(), value.clone())).collect::<Vec<_>>()
    };
    let fields: PassedFields = check.pass.iter().flat_map(of_name).collect();
    (size(&fields) <= MAX_PASSED).then_some(fields)
}

/// Returns the bytes of fields.
pub(super) fn size(fields: &[(HeaderName, HeaderValue)]) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Returns the body. Returns `None` if it is too long, broken, or late.
async fn read_body(body: ResponseBody, deadline: Instant) -> Option<Bytes> {
    let body = timeout_at(deadline, Limited::new(body, MAX_BODY).collect()).await.ok()?;
    Some(body.ok()?.to_bytes())
}

/// Returns the response for the client, without fields that concern only the service and the gateway.
fn denial(head: &Parts, body: Option<Bytes>) -> ConfiguredResponse {
    let names =
        if body.as_ref().is_some_and(|body| !body.is_empty()) { &TO_CLIENT[..] } else { &TO_CLIENT[..WITHOUT_BODY] };
    let mut fields = HeaderMap::new();
    for name in names {
        for value in head.headers.get_all(name) {
            fields.append(name, value.clone());
        }
    }
    // Caches keep some redirects unless a field forbids it.
    fields.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    ConfiguredResponse::new(head.status, fields, body.unwrap_or_default())
}

/// Returns `true` if the service forbids to keep its answer.
fn has_no_store(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CACHE_CONTROL).iter();
    let mut directives = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    directives.any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-store"))
}
