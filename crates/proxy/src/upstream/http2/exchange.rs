//! Sends a request on an HTTP/2 stream and waits for the head of its response.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Body;
use tokio::time::timeout;

use super::super::body::RequestBody;
use super::super::dialer::Dialer;
use super::super::head_limits::HeadLimits;
use super::super::retry::may_repeat;
use super::super::slots::UpstreamSlot;
use super::super::target_error::TargetError;
use super::super::upload::UploadError;
use super::super::upload_progress::{UploadProgress, expects_continue};
use super::super::{AttemptError, UpstreamError};
use super::connection::StreamSlot;
use super::download::Download;
use super::upload::{Upload, UploadTask};
use super::{Shared, head};
use crate::http::http1::{self, BadResponse};
use crate::http::http2::has_outer_whitespace;

/// Sends a request and waits for the head of its response. The response has to begin within `limit` after the last
/// progress of the request body. If the returned error allows another attempt, the request is complete again.
pub(super) async fn exchange(
    slot: &mut StreamSlot,
    request: &mut Request<RequestBody>,
    dialer: &Dialer,
    limit: Duration,
) -> Result<ResponseHead, AttemptError> {
    let is_empty = request.body().is_end_stream();
    let is_held = !is_empty && expects_continue(request.headers());
    let opened = slot.sender.send_request(head::build(request, dialer.scheme()), is_empty);
    let Ok((response, stream)) = opened else { return Err(AttemptError::NotSent(TargetError::send())) };
    slot.stream_opened();
    let progress = request.body_mut().start_attempt(is_held);
    let upload = (!is_empty).then(|| Upload::new(stream));
    let mut pending = PendingResponse { request, upload, response, progress: progress.clone() };
    let response = poll_fn(|cx| pending.poll(cx));
    let result = match &progress {
        Some(progress) => progress.await_response(response, limit).await.unwrap_or_else(|error| Err(error.into())),
        None => timeout(limit, response).await.unwrap_or_else(|_| Err(UpstreamError::TimedOut.into())),
    };
    slot.record_received();
    match result {
        Ok(response) => {
            check_fields(response.headers(), dialer.head_limits()).map_err(AttemptError::Broken)?;
            Ok(pending.into_head(response))
        }
        Err(error) => {
            if let ExchangeError::Stream(error) = &error {
                slot.stream_failed(error);
            }
            Err(pending.into_error(error, slot.is_reused))
        }
    }
}

/// The head of a response, and the rest of the exchange.
pub(super) struct ResponseHead {
    response: Response<RecvStream>,
    upload: Option<UploadTask>,
    progress: Option<Arc<UploadProgress>>,
    /// The length of the body, if known.
    length: Option<u64>,
}

/// A request that is being sent, and whose response is awaited.
struct PendingResponse<'a> {
    request: &'a mut Request<RequestBody>,
    upload: Option<Upload>,
    response: ResponseFuture,
    progress: Option<Arc<UploadProgress>>,
}

/// The reason why there is no response.
enum ExchangeError {
    Attempt(AttemptError),
    Stream(h2::Error),
}

impl From<UpstreamError> for ExchangeError {
    fn from(error: UpstreamError) -> Self {
        Self::Attempt(AttemptError::Failed(error))
    }
}

impl ResponseHead {
    /// Returns the response, whose body is read from the stream.
    pub(super) fn into_response(
        self,
        stream_slot: StreamSlot,
        slot: UpstreamSlot,
        shared: &Arc<Shared>,
    ) -> Response<Download> {
        let Self { response, upload, progress, length } = self;
        response.map(|stream| Download::new(stream, (stream_slot, slot), length, upload.zip(progress), shared))
    }
}

impl PendingResponse<'_> {
    /// Sends more of the request, and reads the response.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<RecvStream>, ExchangeError>> {
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(Err(UploadError::Client(error))) = upload.poll(self.request.body_mut(), cx)
        {
            return Poll::Ready(Err(error.into()));
        }
        // An upstream that takes no more of the request has sent a response or a reset.
        while let Poll::Ready(Some(informational)) = self.response.poll_informational(cx) {
            let informational = informational.map_err(ExchangeError::Stream)?;
            let is_valid = informational.status() != StatusCode::SWITCHING_PROTOCOLS
                && !informational.headers().values().any(has_outer_whitespace);
            let handled = self.request.body_mut().on_informational(informational, is_valid);
            handled.map_err(ExchangeError::Attempt)?;
        }
        let response = ready!(Pin::new(&mut self.response).poll(cx));
        Poll::Ready(response.map_err(ExchangeError::Stream))
    }

    fn into_head(self, response: Response<RecvStream>) -> ResponseHead {
        let length = length(self.request.method(), &response);
        // A body that was not requested from the client is not needed.
        let is_wanted = self.progress.as_ref().is_some_and(|progress| progress.was_requested());
        let upload = self.upload.filter(|upload| is_wanted && !upload.is_complete());
        let upload = upload.map(|upload| upload.send_in_background(self.request.body_mut().take_rest()));
        ResponseHead { response, upload, progress: self.progress, length }
    }

    /// Returns the error of the attempt. If the request may be sent again, restores its body.
    fn into_error(self, error: ExchangeError, is_reused: bool) -> AttemptError {
        let can_repeat =
            |request: &mut Request<RequestBody>| !request.body().has_informational() && may_repeat(request);
        let error = match error {
            ExchangeError::Attempt(AttemptError::Failed(UpstreamError::TimedOut)) if can_repeat(self.request) => {
                return AttemptError::Silent;
            }
            ExchangeError::Attempt(error) => return error,
            ExchangeError::Stream(error) => error,
        };
        if is_refused(&error) {
            let target_error = TargetError::refused(&error);
            let is_complete = !self.request.body().has_informational() && self.request.body_mut().rewind();
            return if is_complete { AttemptError::NotSent(target_error) } else { AttemptError::Broken(target_error) };
        }
        let target_error = TargetError::stream(&error);
        match error.is_io() || error.is_remote() && error.is_reset() {
            true if can_repeat(self.request) && error.is_io() && is_reused => AttemptError::Unanswered(target_error),
            true if can_repeat(self.request) => AttemptError::Reset(target_error),
            _ => AttemptError::Broken(target_error),
        }
    }
}

/// Returns `true` if the upstream reports that it did not process the request (RFC 9113 section 8.7): it refused the
/// stream, or its GOAWAY names an earlier stream as the last one.
fn is_refused(error: &h2::Error) -> bool {
    let is_reset = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (is_reset || error.is_go_away())
}

/// Checks the fields of a response. `h2` accepts malformed ones (RFC 9113 sections 8.1.1 and 8.2.1).
fn check_fields(fields: &HeaderMap, limits: HeadLimits) -> Result<(), TargetError> {
    if fields.len() > limits.fields {
        return Err(TargetError::bad_response(BadResponse::TooManyFields));
    }
    if fields.values().any(has_outer_whitespace) {
        return Err(TargetError::invalid(&"response with whitespace around a field value"));
    }
    match http1::length(fields) {
        Ok(_) => Ok(()),
        Err(_) => Err(TargetError::bad_response(BadResponse::Framing)),
    }
}

/// Returns the length of the body, if it is known.
fn length(method: &Method, response: &Response<RecvStream>) -> Option<u64> {
    if *method == Method::HEAD || response.body().is_end_stream() {
        return Some(0);
    }
    let has_length = response.headers().contains_key(header::CONTENT_LENGTH);
    has_length.then(|| http1::length(response.headers()).ok().flatten()).flatten()
}
