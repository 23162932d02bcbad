//! Serves one request and sends its response.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, Response, StatusCode, header};
use http_body::{Body, Frame};

use super::deadline::StreamDeadline;
use super::informational::PendingInformational;
use super::request_heads::CountedHead;
use super::send_body::{StreamError, next_frame, send_data};
use super::send_queue::QueuedData;
use super::shared_counters::SharedCounters;
use super::tunnel::TunnelState;
use crate::http::http1::date_value;
use crate::server::ServerContext;
use crate::server::activity::{InFlightRequest, SLOW_READER};
use crate::transport::BodyData;

/// Fields that are not allowed in HTTP/2 (RFC 9113 section 8.2.2).
const CONNECTION_FIELDS: [header::HeaderName; 6] = [
    header::CONNECTION,
    header::HeaderName::from_static("keep-alive"),
    header::HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// A request, and what its response needs.
pub(super) struct Stream {
    pub(super) respond: SendResponse<QueuedData>,
    pub(super) head_only: bool,
    pub(super) in_flight: InFlightRequest,
    pub(super) counters: Arc<SharedCounters>,
    pub(super) context: Arc<ServerContext>,
    /// Set if the request asks for a tunnel.
    pub(super) tunnel: Option<TunnelState>,
    /// The head of the request, until the response begins.
    pub(super) head: Option<CountedHead>,
    /// Informational responses that are not sent yet, and the room for the final one.
    pub(super) informational: Arc<PendingInformational>,
}

impl Stream {
    /// Sends the response of the service.
    pub(super) async fn serve<F, B>(&mut self, mut handling: Pin<&mut F>)
    where
        F: Future<Output = Result<Response<B>, Infallible>>,
        B: Body<Data: Into<BodyData>> + Unpin,
    {
        // The service is polled first: a request is decided and charged even if the client reset it at once.
        let mut deadline = None;
        let handled = poll_fn(|cx| {
            let polled = handling.as_mut().poll(cx);
            self.send_informational();
            match polled {
                Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
                Poll::Pending if self.poll_unread_timeout(&mut deadline, cx).is_ready() => {
                    Poll::Ready(Err(StreamError::Stalled))
                }
                Poll::Pending => self.respond.poll_reset(cx).map(|_| Err(StreamError::Reset)),
            }
        });
        // This value is part of every request's task while the body is sent, so it must be small: it excludes the
        // head.
        let response = handled.await;
        drop(deadline);
        let mut response = response.and_then(|response| self.begin_response(response));
        let sent = match &mut response {
            Ok(Some((body, to))) => self.send_body(body, to).await,
            Ok(None) => Ok(()),
            Err(error) => Err(*error),
        };
        drop(response);
        self.end(sent);
    }

    /// Sends the informational responses that wait.
    fn send_informational(&mut self) {
        for informational in self.informational.take() {
            self.counters.queue().add_head(informational.headers());
            _ = self.respond.send_informational(informational); // an error does not affect the final response
        }
    }

    /// Counts the end of a response, and resets the stream if the response is incomplete.
    fn end(&mut self, sent: Result<(), StreamError>) {
        match sent {
            Ok(()) => self.counters.count_response(),
            Err(StreamError::Reset) => self.counters.count_reset(),
            Err(StreamError::Stalled) => {
                self.context.metrics.rejected(SLOW_READER);
                self.respond.send_reset(Reason::CANCEL);
            }
            Err(StreamError::BodyFailed) => {
                self.in_flight.abort_response();
                // A reset on the other side of a tunnel becomes CANCEL (RFC 8441 section 5).
                let reason = if self.is_tunnel_open() { Reason::CANCEL } else { Reason::INTERNAL_ERROR };
                self.respond.send_reset(reason);
            }
        }
    }

    /// Rejects a malformed request (RFC 9113 section 8.1.1).
    pub(super) fn reject_malformed(mut self) {
        self.context.metrics.rejected("malformed");
        self.counters.count_reset();
        self.respond.send_reset(Reason::PROTOCOL_ERROR);
    }

    /// Returns `Ready` if the rest of the response head has waited too long for a client that reads nothing.
    fn poll_unread_timeout(&self, deadline: &mut Option<Box<StreamDeadline>>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.informational.needs_room() {
            return Poll::Pending;
        }
        let activity = self.in_flight.activity();
        let deadline = deadline
            .get_or_insert_with(|| Box::new(StreamDeadline::new(self.context.limits.body, Arc::clone(activity))));
        let queue = self.counters.queue();
        if queue.poll_ready(cx).is_ready() {
            deadline.end_wait();
            return Poll::Pending;
        }
        deadline.poll_queue_timeout(queue.written(), cx)
    }

    /// Opens the tunnel if the upstream has switched protocols. HTTP/2 reports that with status 200.
    fn open_tunnel(&mut self, head: &mut Response<()>) {
        if let Some(tunnel) = &self.tunnel
            && head.status() == StatusCode::SWITCHING_PROTOCOLS
        {
            tunnel.open();
            self.in_flight.set_tunnel();
            *head.status_mut() = StatusCode::OK;
        }
    }

    fn is_tunnel_open(&self) -> bool {
        self.tunnel.as_ref().is_some_and(TunnelState::is_open)
    }

    /// Sends the head of a response. Returns the body and its stream, unless there is no body.
    fn begin_response<B: Body<Data: Into<BodyData>>>(
        &mut self,
        response: Response<B>,
    ) -> Result<Option<(B, SendStream<QueuedData>)>, StreamError> {
        let (head, body) = response.into_parts();
        let mut head = Response::from_parts(head, ());
        self.open_tunnel(&mut head);
        complete_fields(head.headers_mut(), &body);
        let bodiless = self.head_only || body.is_end_stream();
        self.counters.queue().add_head(head.headers());
        self.informational.release_room();
        self.head = None;
        let to = self.respond.send_response(head, bodiless).map_err(|_| StreamError::Reset)?;
        Ok((!bodiless).then_some((body, to)))
    }

    async fn send_body<B: Body<Data: Into<BodyData>> + Unpin>(
        &mut self,
        body: &mut B,
        to: &mut SendStream<QueuedData>,
    ) -> Result<(), StreamError> {
        let queue = Arc::clone(self.counters.queue());
        let mut deadline = StreamDeadline::new(self.context.limits.body, Arc::clone(self.in_flight.activity()));
        if self.is_tunnel_open() {
            deadline.set_tunnel();
        }
        loop {
            let frame = next_frame(body, to, &queue, &mut deadline).await?;
            let data = match frame.map(Frame::into_data) {
                Some(Ok(data)) => data.into_bytes().map_err(|_| StreamError::BodyFailed)?,
                None => return to.send_data(queue.add_data(Bytes::new()), true).map_err(|_| StreamError::Reset),
                Some(Err(_)) if self.is_tunnel_open() => break,
                Some(Err(frame)) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    queue.add_head(&trailers);
                    return to.send_trailers(trailers).map_err(|_| StreamError::Reset);
                }
            };
            let last = body.is_end_stream();
            send_data(data, last, to, &queue, &mut deadline).await?;
            if last {
                return Ok(());
            }
        }
        to.send_data(queue.add_data(Bytes::new()), true).map_err(|_| StreamError::Reset)?;
        // Until the client has closed its half as well.
        while next_frame(body, to, &queue, &mut deadline).await?.is_some() {}
        Ok(())
    }
}

/// Removes the fields that HTTP/2 does not allow, and adds `date` and `content-length`.
fn complete_fields<B: Body>(fields: &mut HeaderMap, body: &B) {
    // One pass over the names costs less than eight lookups, most of which would fail.
    let (mut has_connection_field, mut has_date, mut has_length) = (false, false, false);
    for name in fields.keys() {
        has_connection_field |= CONNECTION_FIELDS.contains(name);
        has_date |= *name == header::DATE;
        has_length |= *name == header::CONTENT_LENGTH;
    }
    if has_connection_field {
        for name in CONNECTION_FIELDS {
            fields.remove(name);
        }
    }
    if !has_date {
        fields.insert(header::DATE, date_value());
    }
    if let Some(length) = body.size_hint().exact().filter(|_| !has_length && !body.is_end_stream()) {
        fields.insert(header::CONTENT_LENGTH, length.into());
    }
}
