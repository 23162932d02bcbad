//! One request and its answer on one connection.

use std::future::poll_fn;
use std::io;
use std::mem::take;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Extensions, HeaderValue, Request, StatusCode, header};
use http_body::Body;
use tokio::time::Instant;

use super::body::RequestBody;
use super::connection::Connection;
use super::download::Download;
use super::headless_response::HeadlessResponse;
use super::pool::Lease;
use super::response_body::ResponseBody;
use super::target_error::TargetError;
use super::tunnel::Tunnel;
use super::upload::{Upload, UploadError};
use super::upload_progress::{UploadProgress, expects_continue};
use super::{AttemptError, MAX_INFORMATIONAL, UpstreamError};
use crate::http1::{Framing, ParsedResponse, StatusLine};
use crate::upgrade::{TunnelLimits, Upgrade};

/// Sends a request and waits for the head of its answer, which has to begin by `limit` after `now`, or after the request
/// last moved. The request is whole if it may be sent on another connection.
pub(super) async fn exchange(
    connection: &mut Connection,
    request: &mut Request<RequestBody>,
    now: Instant,
    limit: Duration,
) -> Result<ResponseHead, AttemptError> {
    let waits = !request.body().is_end_stream() && expects_continue(request.headers());
    let transfer = request.body_mut().watch(waits);
    let begun = Upload::begin(connection, request).map_err(|_| AttemptError::Failed(UpstreamError::ClientBroken));
    let mut sending = Some(begun?);
    let mut asking = PendingResponse {
        request,
        sending: &mut sending,
        transfer: transfer.as_deref(),
        has_begun: false,
        informed: 0,
    };
    let answer = match &transfer {
        Some(transfer) => {
            let answer = poll_fn(|cx| asking.poll(connection, cx));
            // Boxed: what is in line makes the future of every request larger, and few have a body.
            Box::pin(transfer.wait(answer, limit)).await.unwrap_or_else(|failure| Err(AttemptError::Failed(failure)))
        }
        None => {
            let deadline = now + limit;
            poll_fn(|cx| match asking.poll(connection, cx) {
                Poll::Pending => connection.timer.poll(deadline, cx).map(|()| Err(TIMED_OUT)),
                ready => ready,
            })
            .await
        }
    };
    let answer = answer?;
    if answer.line.status == StatusCode::SWITCHING_PROTOCOLS {
        return switch(request, answer, sending.is_none());
    }
    let ParsedResponse { line, framing_fields, keeps_open, .. } = answer;
    let framing = Framing::of_response(request.method(), line.status, framing_fields);
    if framing == Framing::Chunked {
        // While the client has no head of the response, it can still get a 502.
        connection.check_chunks().map_err(|error| AttemptError::Broken(TargetError::response(&error)))?;
    }
    let body = request.body_mut().take();
    // A body that the client was not told to send (`100 Continue`) is not needed: the answer came without it. An upstream that
    // refuses a request and closes reads no more of it; if we sent more, it would reset the connection, and the reset can
    // overtake the answer (RFC 9112 section 9.6).
    let is_refusal = line.status.is_client_error() || line.status.is_server_error();
    let is_unwanted = !transfer.is_none_or(|transfer| transfer.is_asked_for()) || is_refusal && !keeps_open;
    let keeps_open = keeps_open && !(is_unwanted && sending.is_some());
    let upload = sending.filter(|_| !is_unwanted).map(|upload| Box::new((upload, body)));
    Ok(ResponseHead { line, framing, keeps_open, upload, switched: None })
}

/// An answer whose head is here, and what is to be done with its connection. Its fields are in the request's place.
pub(super) struct ResponseHead {
    line: StatusLine,
    framing: Framing,
    keeps_open: bool,
    /// Boxed, as it is rare that an answer comes before its request has ended.
    upload: Option<Box<(Upload, RequestBody)>>,
    /// Another protocol is spoken from here on, with what this client sends.
    switched: Option<Box<(RequestBody, TunnelLimits)>>,
}

impl ResponseHead {
    /// The answer, which comes on this connection.
    pub(super) fn on(self, lease: Lease) -> HeadlessResponse {
        let Self { line, framing, keeps_open, upload, switched } = self;
        let body = match switched {
            None => ResponseBody::new(Download::new(lease, framing, keeps_open, upload)),
            Some(switched) => ResponseBody::switched(Tunnel::begin(lease, switched.0, switched.1)),
        };
        HeadlessResponse { line, body }
    }
}

/// An answer that switches protocols. The bytes that follow are not HTTP; so it counts only if all of the request was sent,
/// which offered this protocol, and if it has no body of its own.
fn switch(
    request: &mut Request<RequestBody>,
    answer: ParsedResponse,
    is_sent: bool,
) -> Result<ResponseHead, AttemptError> {
    let ParsedResponse { line, framing_fields, upgrades, .. } = answer;
    let mut protocols = request.headers().get_all(header::UPGRADE).iter();
    let protocol = protocols.next().filter(|_| protocols.next().is_none()).cloned();
    let upgrade = request.extensions_mut().remove::<Upgrade>().filter(|upgrade| {
        let is_the_offered =
            |protocol: &HeaderValue| protocol.as_bytes().eq_ignore_ascii_case(upgrade.protocol.as_bytes());
        is_sent && upgrades && !framing_fields.announces_body() && protocol.as_ref().is_some_and(is_the_offered)
    });
    let Some(Upgrade { bounds, .. }) = upgrade else {
        return Err(AttemptError::Broken(TargetError::invalid(&"a switch to a protocol that was not offered")));
    };
    let mut client = request.body_mut().take();
    client.unlimit();
    let switched = Some(Box::new((client, bounds)));
    Ok(ResponseHead { line, framing: Framing::UntilClose, keeps_open: false, upload: None, switched })
}

const TIMED_OUT: AttemptError = AttemptError::Failed(UpstreamError::TimedOut);

/// A request that is being sent, and whose answer is being waited for.
struct PendingResponse<'a> {
    request: &'a mut Request<RequestBody>,
    /// None once all of it is sent.
    sending: &'a mut Option<Upload>,
    transfer: Option<&'a UploadProgress>,
    /// Whether an answer has. The request's fields are gone then: those of the answer take their room.
    has_begun: bool,
    /// How many answers have come that only inform.
    informed: u8,
}

impl PendingResponse<'_> {
    /// Sends on, and looks for the answer.
    fn poll(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ParsedResponse, AttemptError>> {
        let trouble = self.poll_send(connection, cx);
        match trouble {
            Some(UploadError::Client) => return Poll::Ready(Err(AttemptError::Failed(UpstreamError::ClientBroken))),
            Some(UploadError::Stalled) => return Poll::Ready(Err(AttemptError::Failed(UpstreamError::ClientStalled))),
            Some(UploadError::TooLong) => return Poll::Ready(Err(AttemptError::Failed(UpstreamError::ClientTooLong))),
            Some(_) if !connection.has_written && self.is_whole() => {
                return Poll::Ready(Err(AttemptError::NotSent(TargetError::send())));
            }
            None if !connection.has_written => return Poll::Pending,
            _ => {}
        }
        // An upstream that takes no more may have said why.
        self.poll_answer(connection, cx)
    }

    fn poll_send(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Option<UploadError> {
        let upload = self.sending.as_mut()?;
        match upload.poll(connection, self.request.body_mut(), cx) {
            Poll::Ready(sent) => {
                if sent.is_ok() {
                    *self.sending = None;
                }
                sent.err()
            }
            Poll::Pending => None,
        }
    }

    /// Whether none of the body has been taken, or there is none.
    fn is_whole(&self) -> bool {
        self.transfer.is_none() || self.sending.as_ref().is_some_and(|upload| !upload.has_taken())
    }

    /// The head of the answer; before it there may be others that only inform.
    fn poll_answer(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ParsedResponse, AttemptError>> {
        if !self.has_begun {
            ready!(connection.poll_begun(cx)).map_err(|error| self.unanswered(connection, &error))?;
            self.has_begun = true; // so the request is not sent again
            self.request.headers_mut().clear();
        }
        let request = &mut self.request;
        loop {
            let answer = ready!(connection.poll_head(request.headers_mut(), cx))
                .map_err(|error| AttemptError::Broken(TargetError::response(&error)))?;
            let status = answer.line.status;
            if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
                return Poll::Ready(Ok(answer));
            }
            // Such an answer has no body (RFC 9110 section 15.2): one that tells of a body may bring it, too, and whatever
            // follows would be taken for what it is not.
            self.informed += 1;
            if self.informed > MAX_INFORMATIONAL || answer.framing_fields.announces_body() {
                return Poll::Ready(Err(AttemptError::Broken(TargetError::invalid(
                    &"informational responses that are not valid",
                ))));
            }
            let fields = take(request.headers_mut());
            if let Some(informer) = request.body_mut().informer() {
                informer.forward(answer.line.into_response(fields, Extensions::new(), ()));
            }
            if status == StatusCode::CONTINUE
                && let Some(transfer) = self.transfer
            {
                transfer.open();
            }
        }
    }

    /// The connection ended before any of an answer came. One that had served others was most likely closed before this
    /// request arrived; whatever may arrive twice is then sent again (RFC 9110 section 9.2.2, RFC 9112 section 9.3.1).
    fn unanswered(&self, connection: &Connection, error: &io::Error) -> AttemptError {
        if connection.is_reused && self.request.method().is_idempotent() && self.is_whole() {
            return AttemptError::Unanswered(TargetError::response(error));
        }
        AttemptError::Broken(TargetError::response(error))
    }
}
