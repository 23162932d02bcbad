//! Reads the body of a request whose limits depend on it. Of a request to a language model, reserves the most that it can cost.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue, Request};

use super::LayerState;
use super::held_body::HeldBody;
use super::record::RequestRecord;
use crate::admission::{Admitted, Denial};
use crate::local_response::{BodyFault, LocalResponse};
use crate::metering::{MeteredRequest, Metering, PeekError};
use tidegate_rules::evaluation::Evaluation;
use tidegate_rules::request::body::BodyReads;
use tidegate_rules::route::Route;
use tidegate_rules::rules::Charges;
use tidegate_store::Store;
use tidegate_usage::Api;

impl LayerState {
    /// Prepares the body of a request for reading, if the rules have limits that depend on bodies.
    pub(super) fn prepare_body<B: 'static>(&self, request: &mut Request<B>, record: &mut RequestRecord<'_>) {
        let body: &mut dyn Any = request.body_mut();
        let peek = self.options.peek_body.and_then(|peek| peek(body));
        record.body().peek = peek;
    }
}

/// Reads these values of the body of a request, and adds them to the evaluation.
///
/// # Errors
/// The body cannot be read, or has no single meaning.
pub(super) async fn read_body(
    reads: &BodyReads,
    evaluation: &mut Evaluation<'_, '_>,
    record: &mut RequestRecord<'_>,
) -> Result<(), LocalResponse> {
    let headers = evaluation.facts.headers;
    if has_encoding(headers) {
        return Err(LocalResponse::BadBody(BodyFault::Encoded));
    }
    let max = evaluation.rules().requests.body_bytes.0;
    let body = match &record.body().peek {
        Some(peek) => peek.read(max).await.map_err(|error| match error {
            PeekError::TooLong => LocalResponse::BodyTooLong,
            PeekError::TimedOut => LocalResponse::BodyTimedOut,
            PeekError::Incomplete => LocalResponse::BodyIncomplete,
        })?,
        None => Bytes::new(),
    };
    let path = evaluation.facts.path.normalized();
    let read = reads.read(&body, path).map_err(|error| LocalResponse::BadBody(BodyFault::Body(error)))?;
    if let (Some(api), Some(request)) = (reads.api, &read.model) {
        let route = evaluation.route().map(|(_, route)| route);
        let output = route.and_then(Route::output_bound).map(u64::from);
        let is_sliced = request.is_stream && route.is_some_and(Route::has_slices);
        let changed = request.rewrite(api, &body, output, true);
        if changed.is_some() && is_signed(headers) {
            return Err(LocalResponse::BadBody(BodyFault::Signed));
        }
        let held = record.body();
        held.removes_usage = api == Api::OpenAi && request.is_stream && !request.includes_usage;
        held.stream = is_sliced.then(|| request.clone());
        held.changed = changed.map(Bytes::from);
        held.model = request.model.as_deref().map(Box::from);
    }
    evaluation.add_body(read);
    Ok(())
}

/// Makes the charges of budgets reservations.
pub(super) fn reserve(charges: &mut Charges<'_>, store: &Store) {
    charges.reserve(|| store.new_reservation());
}

/// Keeps the reservations of an admitted request. Takes and returns the result by value: the future of each request would keep
/// a borrowed result until its end.
pub(super) fn keep(
    admitted: Result<Admitted, Denial>,
    charges: &Charges<'_>,
    store: &Store,
    record: &mut RequestRecord<'_>,
) -> Result<Admitted, Denial> {
    if admitted.is_ok() {
        let found = record.found;
        let metrics = |index| found?.compiled.limits.metrics(index).cloned();
        let held = record.body();
        let request = MeteredRequest {
            removes_usage: held.removes_usage,
            model: held.model.as_deref(),
            stream: held.stream.as_ref(),
        };
        held.metering = Metering::new(charges, store, &request, metrics).map(Arc::new);
    }
    admitted
}

/// Changes a request that is forwarded. Returns its reservations.
pub(super) fn forward<B>(request: &mut Request<B>, record: &mut RequestRecord<'_>) -> Option<Arc<Metering>> {
    let HeldBody { peek, changed, metering, .. } = record.take_body()?;
    if let (Some(peek), Some(changed)) = (peek, changed) {
        request.headers_mut().insert(CONTENT_LENGTH, changed.len().into());
        peek.replace(changed);
    }
    // The gateway reads the response.
    if metering.as_ref().is_some_and(|metering| metering.reads_body()) {
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    metering
}

fn has_encoding(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Returns `true` if a signature covers the body (AWS Signature Version 4).
fn is_signed(headers: &HeaderMap) -> bool {
    headers.get_all(AUTHORIZATION).iter().any(|value| value.as_bytes().starts_with(b"AWS4-"))
}
