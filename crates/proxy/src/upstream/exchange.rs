//! Sends a request over HTTP/1.1 and waits for the head of its response.

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
use super::retry::may_repeat;
use super::target_error::TargetError;
use super::tunnel::Tunnel;
use super::upload::{Upload, UploadError};
use super::upload_progress::expects_continue;
use super::{AttemptError, UpstreamError};
use crate::http::http1::{Framing, ParsedResponse, StatusLine};
use tidegate_rules::route::upgrade::{TunnelLimits, Upgrade};

/// Sends a request and waits for the head of its response. The response has to begin within `limit` after `now`, or
/// after the last progress of the request body. If the returned error allows another attempt, `request` still has all
/// of its body.
pub(super) async fn exchange(
    connection: &mut Connection,
    request: &mut Request<RequestBody>,
    now: Instant,
    limit: Duration,
) -> Result<ResponseHead, AttemptError> {
    let is_held = !request.body().is_end_stream() && expects_continue(request.headers());
    let progress = request.body_mut().start_attempt(is_held);
    let mut upload = Some(Upload::start(connection, request).map_err(AttemptError::Failed)?);
    let mut pending = PendingResponse { request, upload: &mut upload, has_begun: false, waits_for_reader: false };
    let response = match &progress {
        Some(progress) => {
            let response = poll_fn(|cx| pending.poll(connection, cx));
            Box::pin(progress.await_response(response, limit))
                .await
                .unwrap_or_else(|error| Err(AttemptError::Failed(error)))
        }
        None => {
            let mut deadline = now + limit;
            poll_fn(|cx| match pending.poll(connection, cx) {
                Poll::Pending if pending.waits_for_reader => {
                    deadline = Instant::now() + limit;
                    Poll::Pending
                }
                Poll::Pending => connection.timer.poll(deadline, cx).map(|()| Err(TIMED_OUT)),
                ready => ready,
            })
            .await
        }
    };
    let response = match response {
        Err(AttemptError::Failed(UpstreamError::TimedOut)) if !pending.has_begun && may_repeat(pending.request) => {
            return Err(AttemptError::Silent);
        }
        response => response?,
    };
    let was_requested = progress.is_none_or(|progress| progress.was_requested());
    ResponseHead::new(connection, request, response, upload, was_requested)
}

/// The head of a response, and what happens to its connection. The fields are in the request's header map.
pub(super) struct ResponseHead {
    line: StatusLine,
    framing: Framing,
    keeps_open: bool,
    /// The rest of the request. Boxed, because a response rarely begins before its request has ended.
    upload: Option<Box<(Upload, RequestBody)>>,
    /// For an upgraded connection, the bytes of the client and the limits.
    upgraded: Option<Box<(RequestBody, TunnelLimits)>>,
}

impl ResponseHead {
    /// Checks the head of a response, and takes the rest of the request if the upstream still reads it. `was_requested`
    /// is `false` if the body of the request waits for `100 Continue`.
    ///
    /// # Errors
    /// The upstream sent bytes that no valid response has.
    fn new(
        connection: &mut Connection,
        request: &mut Request<RequestBody>,
        response: ParsedResponse,
        upload: Option<Upload>,
        was_requested: bool,
    ) -> Result<Self, AttemptError> {
        if response.line.status == StatusCode::SWITCHING_PROTOCOLS {
            return upgrade(request, response, upload.is_none());
        }
        let ParsedResponse { line, framing_fields, keeps_open, .. } = response;
        let framing = Framing::of_response(request.method(), line.status, framing_fields);
        if framing == Framing::Chunked {
            // Checked before the head is forwarded: the client can still get a 502.
            connection.check_chunks().map_err(|error| AttemptError::Broken(TargetError::response(&error)))?;
        }
        // A body that was not requested (`100 Continue`) is not needed. An upstream that rejects a request and closes the
        // connection reads no more of the body. If the gateway sent more, the upstream would reset the connection, and the
        // reset can overtake the response (RFC 9112 section 9.6).
        let is_rejected = line.status.is_client_error() || line.status.is_server_error();
        let is_unwanted = !was_requested || is_rejected && !keeps_open;
        let keeps_open = keeps_open && !(is_unwanted && upload.is_some());
        let upload = upload.filter(|_| !is_unwanted).map(|upload| Box::new((upload, request.body_mut().take_rest())));
        Ok(Self { line, framing, keeps_open, upload, upgraded: None })
    }

    /// Returns the response, whose body is read from the connection of `lease`.
    pub(super) fn into_response(self, lease: Lease) -> HeadlessResponse {
        let Self { line, framing, keeps_open, upload, upgraded } = self;
        let body = match upgraded {
            None => ResponseBody::new(Download::new(lease, framing, keeps_open, upload)),
            Some(upgraded) => ResponseBody::tunnel(Tunnel::start(lease, upgraded.0, upgraded.1)),
        };
        HeadlessResponse { line, body }
    }
}

/// Accepts a 101 response. The bytes that follow it are not HTTP. So it is valid only if the whole request was sent,
/// the request offered this protocol, and the response has no body.
fn upgrade(
    request: &mut Request<RequestBody>,
    response: ParsedResponse,
    is_sent: bool,
) -> Result<ResponseHead, AttemptError> {
    let ParsedResponse { line, framing_fields, upgrades, .. } = response;
    let mut protocols = request.headers().get_all(header::UPGRADE).iter();
    let protocol = protocols.next().filter(|_| protocols.next().is_none()).cloned();
    let upgrade = request.extensions_mut().remove::<Upgrade>().filter(|upgrade| {
        let is_offered_protocol =
            |protocol: &HeaderValue| protocol.as_bytes().eq_ignore_ascii_case(upgrade.protocol.as_bytes());
        is_sent && upgrades && !framing_fields.announces_body() && protocol.as_ref().is_some_and(is_offered_protocol)
    });
    let Some(Upgrade { limits, .. }) = upgrade else {
        return Err(AttemptError::Broken(TargetError::invalid(&"101 response with a protocol that was not offered")));
    };
    let mut client = request.body_mut().take();
    client.remove_limit();
    let upgraded = Some(Box::new((client, limits)));
    Ok(ResponseHead { line, framing: Framing::UntilClose, keeps_open: false, upload: None, upgraded })
}

const TIMED_OUT: AttemptError = AttemptError::Failed(UpstreamError::TimedOut);

/// A request that is being sent, and whose response is awaited.
struct PendingResponse<'a> {
    request: &'a mut Request<RequestBody>,
    /// `None` once the whole request is sent.
    upload: &'a mut Option<Upload>,
    /// Whether the head of a response was complete. The request's fields are gone then: its header map holds the fields
    /// of the response.
    has_begun: bool,
    /// Whether the rest of a long head waits until the client's connection has room for it.
    waits_for_reader: bool,
}

impl PendingResponse<'_> {
    /// Sends more of the request, and reads the response.
    fn poll(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ParsedResponse, AttemptError>> {
        let error = self.poll_send(connection, cx);
        match error {
            Some(UploadError::Client(error)) => return Poll::Ready(Err(AttemptError::Failed(error))),
            Some(_) if !connection.has_written && self.request.body_mut().rewind() => {
                return Poll::Ready(Err(AttemptError::NotSent(TargetError::send())));
            }
            None if !connection.has_written => return Poll::Pending,
            _ => {}
        }
        // An upstream that takes no more may have sent a response.
        self.poll_response(connection, cx)
    }

    fn poll_send(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Option<UploadError> {
        let upload = self.upload.as_mut()?;
        match upload.poll(connection, self.request.body_mut(), cx) {
            Poll::Ready(sent) => {
                if sent.is_ok() {
                    *self.upload = None;
                }
                sent.err()
            }
            Poll::Pending => None,
        }
    }

    /// Reads the head of the final response, and forwards informational responses before it.
    fn poll_response(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ParsedResponse, AttemptError>> {
        loop {
            let response = match connection.take_head(self.request.headers_mut()) {
                Ok(Some(response)) => response,
                Ok(None) => match ready!(self.poll_head_bytes(connection, cx)) {
                    Ok(()) => continue,
                    Err(error) => return Poll::Ready(Err(self.headless(connection, &error))),
                },
                Err(error) => return Poll::Ready(Err(self.headless(connection, &error))),
            };
            self.has_begun = true; // from here on, the request is not sent again
            let status = response.line.status;
            if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
                return Poll::Ready(Ok(response));
            }
            // An informational response has no body (RFC 9110 section 15.2). If it announces one, the following bytes
            // are ambiguous.
            let is_valid = !response.framing_fields.announces_body();
            let fields = take(self.request.headers_mut());
            let informational = response.line.into_response(fields, Extensions::new(), ());
            self.request.body_mut().on_informational(informational, is_valid)?;
        }
    }

    /// Reads more of a head. Leaves the rest of a long one with the upstream until the client's connection has room.
    fn poll_head_bytes(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if connection.has_long_head() {
            let room = self.request.body().poll_head_room(cx);
            self.waits_for_reader = room.is_pending();
            ready!(room);
        }
        connection.poll_head_bytes(cx)
    }

    /// Returns the error of a connection without the head of a final response. If it ended before a complete head, an
    /// idempotent request may be sent again (RFC 9110 section 9.2.2). If it is reused and ended before the first byte,
    /// it was most likely closed before the request arrived (RFC 9112 section 9.3.1).
    fn headless(&mut self, connection: &Connection, error: &io::Error) -> AttemptError {
        let is_malformed = error.kind() == io::ErrorKind::InvalidData;
        let error = TargetError::response(error);
        if is_malformed || self.has_begun || !may_repeat(self.request) {
            return AttemptError::Broken(error);
        }
        match connection.is_reused && !connection.has_unread_bytes() {
            true => AttemptError::Unanswered(error),
            false => AttemptError::Reset(error),
        }
    }
}
