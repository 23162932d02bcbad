//! Sends the frames of a response body while the client and the socket take them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::SendStream;
use http_body::{Body, Frame};

use super::deadline::StreamDeadline;
use super::send_queue::{QueuedData, SendQueue};
use crate::transport::{BodyData, poll_body_data};

/// How many bytes of a body may wait for the client's window at a time. More would take them from other streams.
const MAX_PIECE: usize = 16 * 1024;

/// Why a response was not completed.
#[derive(Clone, Copy, Debug)]
pub(super) enum StreamError {
    /// The stream was reset, by the client or because of a client error, or the connection is closed.
    Reset,
    /// The client reads too slowly.
    Stalled,
    /// The response body failed.
    BodyFailed,
}

/// Reads the next frame of the body while the send queue has room for it, until the client resets the stream.
pub(super) async fn next_frame<B: Body<Data: Into<BodyData>> + Unpin>(
    body: &mut B,
    to: &mut SendStream<QueuedData>,
    queue: &SendQueue,
    deadline: &mut StreamDeadline,
) -> Result<Option<Frame<BodyData>>, StreamError> {
    poll_fn(|cx| {
        if queue.poll_ready(cx).is_pending() {
            let timed_out = deadline.poll_queue_timeout(queue.written(), cx).map(|()| Err(StreamError::Stalled));
            return if timed_out.is_ready() { timed_out } else { to.poll_reset(cx).map(|_| Err(StreamError::Reset)) };
        }
        deadline.end_wait();
        match poll_body_data(body, cx) {
            Poll::Ready(frame) => Poll::Ready(frame.transpose().map_err(|_| StreamError::BodyFailed)),
            Poll::Pending => to.poll_reset(cx).map(|_| Err(StreamError::Reset)),
        }
    })
    .await
}

/// Sends the data in pieces that fit the client's window. The data that `h2` holds then waits only for the socket.
pub(super) async fn send_data(
    mut data: Bytes,
    last: bool,
    to: &mut SendStream<QueuedData>,
    queue: &Arc<SendQueue>,
    deadline: &mut StreamDeadline,
) -> Result<(), StreamError> {
    loop {
        let mut piece = Bytes::new();
        if !data.is_empty() {
            to.reserve_capacity(data.len().min(MAX_PIECE));
            let capacity = poll_fn(|cx| poll_capacity(to, deadline, cx)).await?;
            piece = data.split_to(capacity.min(data.len()));
            deadline.record_bytes(piece.len());
        }
        let ends = data.is_empty();
        to.send_data(queue.add_data(piece), ends && last).map_err(|_| StreamError::Reset)?;
        if ends {
            return Ok(());
        }
    }
}

fn poll_capacity(
    to: &mut SendStream<QueuedData>,
    deadline: &mut StreamDeadline,
    cx: &mut Context<'_>,
) -> Poll<Result<usize, StreamError>> {
    while to.capacity() == 0 {
        match to.poll_capacity(cx) {
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(_) => return Poll::Ready(Err(StreamError::Reset)),
            Poll::Pending => {
                ready!(deadline.poll_timeout(cx));
                return Poll::Ready(Err(StreamError::Stalled));
            }
        }
    }
    Poll::Ready(Ok(to.capacity()))
}
