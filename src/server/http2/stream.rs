//! One request and its answer.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, Response, StatusCode, header};
use http_body::{Body, Frame};

use super::connect::Switch;
use super::deadline::Deadline;
use super::hints::Hints;
use super::ledger::Ledger;
use super::send_queue::{QueuedData, SendQueue};
use crate::http1::date_value;
use crate::server::Terms;
use crate::server::activity::{InFlight, SLOW_READER};

/// The most of a body that waits for its client's window at a time: others want some of it as well.
const PIECE: usize = 16 * 1024;

/// Fields that HTTP/2 has no place for (RFC 9113 section 8.2.2).
const OF_CONNECTIONS: [header::HeaderName; 6] = [
    header::CONNECTION,
    header::HeaderName::from_static("keep-alive"),
    header::HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// A request that was opened, and what its answer needs.
pub(super) struct Stream {
    pub(super) respond: SendResponse<QueuedData>,
    pub(super) head_only: bool,
    pub(super) in_flight: InFlight,
    pub(super) ledger: Arc<Ledger>,
    pub(super) terms: Arc<Terms>,
    /// Of a tunnel.
    pub(super) switch: Option<Switch>,
    /// What it is told before its answer.
    pub(super) hints: Arc<Hints>,
}

/// Why a client has no whole answer.
#[derive(Clone, Copy, Debug)]
enum Broken {
    /// The stream was reset, by the client or for what it sent; or the connection is over.
    Reset,
    /// Its trailers have a pseudo-header field.
    Malformed,
    /// The client reads too slowly.
    Stalled,
    /// The answer's body failed.
    Off,
}

impl Stream {
    /// Answers what the service answers.
    pub(super) async fn serve<F, B>(&mut self, mut handling: Pin<&mut F>)
    where
        F: Future<Output = Result<Response<B>, Infallible>>,
        B: Body<Data = Bytes> + Unpin,
    {
        // The service goes first: what was asked is judged and charged, though it was reset at once.
        let handled = poll_fn(|cx| {
            let polled = handling.as_mut().poll(cx);
            for hint in self.hints.take() {
                self.ledger.queue().add_head(hint.headers());
                _ = self.respond.send_informational(hint); // whatever is wrong with it, the answer counts
            }
            if self.ledger.malformed.contains(self.respond.stream_id()) {
                return Poll::Ready(Err(Broken::Malformed));
            }
            match polled {
                Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
                Poll::Pending => self.respond.poll_reset(cx).map(|_| Err(Broken::Reset)),
            }
        });
        // What is kept while the body is sent is part of every request's task: not the head, and nothing twice.
        let mut begun = handled.await.and_then(|response| self.begin(response));
        let answered = match &mut begun {
            Ok(Some((body, to))) => self.send_body(body, to).await,
            Ok(None) => Ok(()),
            Err(broken) => Err(*broken),
        };
        drop(begun);
        match answered {
            Ok(()) => self.ledger.answered(),
            Err(Broken::Reset) => self.ledger.reset(),
            Err(Broken::Malformed) => {
                self.ledger.malformed.remove(self.respond.stream_id());
                self.reset_malformed();
            }
            Err(Broken::Stalled) => {
                self.terms.metrics.rejected(SLOW_READER);
                self.respond.send_reset(Reason::CANCEL);
            }
            Err(Broken::Off) => {
                self.in_flight.break_off();
                // A reset on the other side of a tunnel is this one (RFC 8441 section 5).
                let reason = if self.is_switched() { Reason::CANCEL } else { Reason::INTERNAL_ERROR };
                self.respond.send_reset(reason);
            }
        }
    }

    /// Answers what is no request (RFC 9113 section 8.1.1).
    pub(super) fn refuse_malformed(mut self) {
        self.reset_malformed();
    }

    fn reset_malformed(&mut self) {
        self.terms.metrics.rejected("malformed");
        self.ledger.reset();
        self.respond.send_reset(Reason::PROTOCOL_ERROR);
    }

    /// In HTTP/2 it is a success that tells of a tunnel.
    fn note_switch(&mut self, head: &mut Response<()>) {
        if let Some(switch) = &self.switch
            && head.status() == StatusCode::SWITCHING_PROTOCOLS
        {
            switch.set();
            self.in_flight.becomes_tunnel();
            *head.status_mut() = StatusCode::OK;
        }
    }

    fn is_switched(&self) -> bool {
        self.switch.as_ref().is_some_and(Switch::is_set)
    }

    /// Sends the head of an answer; returns its body, and where to send that, if there is one.
    fn begin<B: Body<Data = Bytes>>(
        &mut self,
        response: Response<B>,
    ) -> Result<Option<(B, SendStream<QueuedData>)>, Broken> {
        let (head, body) = response.into_parts();
        let mut head = Response::from_parts(head, ());
        self.note_switch(&mut head);
        complete(head.headers_mut(), &body);
        let bodiless = self.head_only || body.is_end_stream();
        self.ledger.queue().add_head(head.headers());
        let to = self.respond.send_response(head, bodiless).map_err(|_| Broken::Reset)?;
        Ok((!bodiless).then_some((body, to)))
    }

    async fn send_body<B: Body<Data = Bytes> + Unpin>(
        &mut self,
        body: &mut B,
        to: &mut SendStream<QueuedData>,
    ) -> Result<(), Broken> {
        let queue = Arc::clone(self.ledger.queue());
        let mut deadline = Deadline::new(self.terms.limits.body, Arc::clone(self.in_flight.activity()));
        if self.is_switched() {
            deadline.becomes_tunnel();
        }
        loop {
            let frame = next(body, to, &queue, &mut deadline).await?;
            let data = match frame.map(Frame::into_data) {
                Some(Ok(data)) => data,
                None => return to.send_data(queue.add_data(Bytes::new()), true).map_err(|_| Broken::Reset),
                Some(Err(_)) if self.is_switched() => break,
                Some(Err(frame)) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    queue.add_head(&trailers);
                    return to.send_trailers(trailers).map_err(|_| Broken::Reset);
                }
            };
            let last = body.is_end_stream();
            send(data, last, to, &queue, &mut deadline).await?;
            if last {
                return Ok(());
            }
        }
        to.send_data(queue.add_data(Bytes::new()), true).map_err(|_| Broken::Reset)?;
        while next(body, to, &queue, &mut deadline).await?.is_some() {} // until the client has ended as well
        Ok(())
    }
}

/// Reads the next frame of the body while the send queue has room for it, until the client resets the stream.
async fn next<B: Body<Data = Bytes> + Unpin>(
    body: &mut B,
    to: &mut SendStream<QueuedData>,
    queue: &SendQueue,
    deadline: &mut Deadline,
) -> Result<Option<Frame<Bytes>>, Broken> {
    poll_fn(|cx| {
        if queue.poll_ready(cx).is_pending() {
            let overdue = deadline.poll_overdue_in_queue(queue.written(), cx).map(|()| Err(Broken::Stalled));
            return if overdue.is_ready() { overdue } else { to.poll_reset(cx).map(|_| Err(Broken::Reset)) };
        }
        deadline.end_wait();
        match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(frame.transpose().map_err(|_| Broken::Off)),
            Poll::Pending => to.poll_reset(cx).map(|_| Err(Broken::Reset)),
        }
    })
    .await
}

/// Sends as much at a time as the client has a window for. What `h2` is handed, then, waits for nothing but the socket.
async fn send(
    mut data: Bytes,
    last: bool,
    to: &mut SendStream<QueuedData>,
    queue: &Arc<SendQueue>,
    deadline: &mut Deadline,
) -> Result<(), Broken> {
    loop {
        let mut piece = Bytes::new();
        if !data.is_empty() {
            to.reserve_capacity(data.len().min(PIECE));
            let capacity = poll_fn(|cx| poll_capacity(to, deadline, cx)).await?;
            piece = data.split_to(capacity.min(data.len()));
            deadline.moved(piece.len());
        }
        let ends = data.is_empty();
        to.send_data(queue.add_data(piece), ends && last).map_err(|_| Broken::Reset)?;
        if ends {
            return Ok(());
        }
    }
}

fn poll_capacity(
    to: &mut SendStream<QueuedData>,
    deadline: &mut Deadline,
    cx: &mut Context<'_>,
) -> Poll<Result<usize, Broken>> {
    while to.capacity() == 0 {
        match to.poll_capacity(cx) {
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(_) => return Poll::Ready(Err(Broken::Reset)),
            Poll::Pending => {
                ready!(deadline.poll_overdue(cx));
                return Poll::Ready(Err(Broken::Stalled));
            }
        }
    }
    Poll::Ready(Ok(to.capacity()))
}

/// Adds and removes what HTTP/2 asks for.
fn complete<B: Body>(fields: &mut HeaderMap, body: &B) {
    // A pass over the names costs less than eight lookups, most of them in vain.
    let (mut of_connection, mut is_dated, mut is_measured) = (false, false, false);
    for name in fields.keys() {
        of_connection |= OF_CONNECTIONS.contains(name);
        is_dated |= *name == header::DATE;
        is_measured |= *name == header::CONTENT_LENGTH;
    }
    if of_connection {
        for name in OF_CONNECTIONS {
            fields.remove(name);
        }
    }
    if !is_dated {
        fields.insert(header::DATE, date_value());
    }
    if let Some(length) = body.size_hint().exact().filter(|_| !is_measured && !body.is_end_stream()) {
        fields.insert(header::CONTENT_LENGTH, length.into());
    }
}
