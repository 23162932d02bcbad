//! One request and the head of its answer, on one stream.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::uri::Scheme;
use http::{Method, Request, Response, StatusCode, header};
use http_body::Body;
use tokio::time::timeout;

use super::super::body::RequestBody;
use super::super::slots::UpstreamSlot;
use super::super::target_error::TargetError;
use super::super::upload::UploadError;
use super::super::upload_progress::{UploadProgress, expects_continue};
use super::super::{AttemptError, MAX_INFORMATIONAL, UpstreamError};
use super::connection::StreamSlot;
use super::download::Download;
use super::upload::{Upload, UploadTask};
use super::{Shared, head};
use crate::http1;

/// Sends a request and waits for the head of its answer, which has to begin by `limit` after the request last moved. The
/// request is whole if it may be sent again.
pub(super) async fn exchange(
    place: &mut StreamSlot,
    request: &mut Request<RequestBody>,
    scheme: Scheme,
    limit: Duration,
) -> Result<ResponseHead, AttemptError> {
    let is_empty = request.body().is_end_stream();
    let waits = !is_empty && expects_continue(request.headers());
    let opened = place.sender.send_request(head::of(request, scheme), is_empty);
    let Ok((response, stream)) = opened else { return Err(AttemptError::NotSent(TargetError::send())) };
    place.opened();
    let transfer = request.body_mut().watch(waits);
    let upload = (!is_empty).then(|| Upload::new(stream));
    let mut asking = PendingResponse { request, upload, response, transfer: transfer.clone(), informed: 0 };
    let answer = poll_fn(|cx| asking.poll(cx));
    let answered = match &transfer {
        Some(transfer) => {
            transfer.wait(answer, limit).await.unwrap_or_else(|failure| Err(ExchangeError::Over(failure)))
        }
        None => timeout(limit, answer).await.unwrap_or(Err(ExchangeError::Over(UpstreamError::TimedOut))),
    };
    place.heard();
    match answered {
        Ok(response) => Ok(asking.begun(response)),
        Err(end) => {
            if let ExchangeError::Stream(_) = end {
                place.ended();
            }
            Err(asking.failed(end, place.is_reused))
        }
    }
}

/// An answer whose head is here.
pub(super) struct ResponseHead {
    response: Response<RecvStream>,
    rest: Option<UploadTask>,
    transfer: Option<Arc<UploadProgress>>,
    left: Option<u64>,
}

/// A request that is being sent, and whose answer is being waited for.
struct PendingResponse<'a> {
    request: &'a mut Request<RequestBody>,
    upload: Option<Upload>,
    response: ResponseFuture,
    transfer: Option<Arc<UploadProgress>>,
    /// How many answers have come that only inform.
    informed: u8,
}

/// Why there is no answer.
enum ExchangeError {
    Over(UpstreamError),
    Invalid,
    Stream(h2::Error),
}

impl ResponseHead {
    /// The answer, which comes on this stream.
    pub(super) fn on(self, place: StreamSlot, seat: UpstreamSlot, shared: &Arc<Shared>) -> Response<Download> {
        let Self { response, rest, transfer, left } = self;
        response.map(|stream| Download::new(stream, (place, seat), left, rest.zip(transfer), shared))
    }
}

impl PendingResponse<'_> {
    /// Sends on, and looks for the answer.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<RecvStream>, ExchangeError>> {
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(Err(trouble)) = upload.poll(self.request.body_mut(), cx)
            && let Some(failure) = of_client(trouble)
        {
            return Poll::Ready(Err(ExchangeError::Over(failure)));
        }
        // An upstream that takes no more has said why.
        while let Poll::Ready(Some(informed)) = self.response.poll_informational(cx) {
            let informed = informed.map_err(ExchangeError::Stream)?;
            let status = informed.status();
            self.informed += 1;
            if self.informed > MAX_INFORMATIONAL || status == StatusCode::SWITCHING_PROTOCOLS {
                return Poll::Ready(Err(ExchangeError::Invalid));
            }
            if let Some(informer) = self.request.body_mut().informer() {
                informer.forward(informed);
            }
            if let Some(transfer) = self.transfer.as_ref().filter(|_| status == StatusCode::CONTINUE) {
                transfer.open();
            }
        }
        let response = ready!(Pin::new(&mut self.response).poll(cx));
        Poll::Ready(response.map_err(ExchangeError::Stream))
    }

    fn begun(self, response: Response<RecvStream>) -> ResponseHead {
        let left = length(self.request.method(), &response);
        let body = self.request.body_mut().take();
        // A body that the client was not told to send is not needed: the answer came without it.
        let is_wanted = self.transfer.as_ref().is_some_and(|transfer| transfer.is_asked_for());
        let upload = self.upload.filter(|upload| is_wanted && !upload.is_complete());
        let rest = upload.map(|upload| upload.go_on(body));
        ResponseHead { response, rest, transfer: self.transfer, left }
    }

    /// Whether it may be sent again, and if so makes it whole.
    fn failed(self, end: ExchangeError, is_reused: bool) -> AttemptError {
        let error = match end {
            ExchangeError::Over(failure) => return AttemptError::Failed(failure),
            ExchangeError::Invalid => {
                return AttemptError::Broken(TargetError::invalid(&"informational responses that are not valid"));
            }
            ExchangeError::Stream(error) => error,
        };
        let (was_refused, was_cut) = (is_refused(&error), error.is_io() && self.informed == 0);
        let may_repeat = was_cut && is_reused && self.request.method().is_idempotent();
        let fault = if was_refused { TargetError::refused(&error) } else { TargetError::stream(&error) };
        let body = self.request.body_mut();
        if (was_refused || may_repeat) && self.upload.is_none_or(|upload| upload.into_sent().give_back(body)) {
            return if was_refused { AttemptError::NotSent(fault) } else { AttemptError::Unanswered(fault) };
        }
        AttemptError::Broken(fault)
    }
}

/// Whether the upstream says that it did not look at the request (RFC 9113 section 8.7): it refused the stream, or goes
/// away and names an earlier one as its last.
fn is_refused(error: &h2::Error) -> bool {
    let is_reset = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (is_reset || error.is_go_away())
}

fn of_client(trouble: UploadError) -> Option<UpstreamError> {
    match trouble {
        UploadError::Client => Some(UpstreamError::ClientBroken),
        UploadError::Stalled => Some(UpstreamError::ClientStalled),
        UploadError::TooLong => Some(UpstreamError::ClientTooLong),
        UploadError::Upstream => None,
    }
}

/// How long the body is, if that is known.
fn length(method: &Method, response: &Response<RecvStream>) -> Option<u64> {
    if *method == Method::HEAD || response.body().is_end_stream() {
        return Some(0);
    }
    let told = response.headers().contains_key(header::CONTENT_LENGTH);
    told.then(|| http1::length(response.headers()).ok().flatten()).flatten()
}
