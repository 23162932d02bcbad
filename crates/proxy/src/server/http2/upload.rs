//! The body of a request.

use std::future::poll_fn;
use std::io;
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::deadline::StreamDeadline;
use super::informational::PendingInformational;
use super::shared_counters::{OpenUpload, SharedCounters};
use super::stream::Stream;
use super::tunnel::TunnelState;
use crate::server::ServerContext;
use crate::server::activity::SLOW_UPLOAD;
use crate::transport::BodyData;

/// How long, and how many bytes, the gateway reads of the rest of a body after the response. After that, it opens the
/// flow-control window no further, so the client cannot send more.
const LINGER: Duration = Duration::from_secs(1);
const MAX_DISCARDED: usize = 256 * 1024;

/// A body is long, and gets a larger window, once it has brought this many bytes in large frames. Small frames, for
/// example of gRPC messages, do not count: each waiting frame takes more memory than its bytes.
const LONG_BODY: usize = 16 * 1024;
const LARGE_FRAME: usize = 4 * 1024;

/// A request body. It fails if the client is too slow.
#[derive(Debug)]
pub(super) struct Upload {
    /// `None` after the body was dropped.
    stream: Option<RecvStream>,
    /// Counts the upload as open; `None` after the body was read to its end.
    open: Option<OpenUpload>,
    unread: Unread,
    has_data: bool,
    /// The length of the last data. It stays in the client's window until the upstream has taken it, and the next data is
    /// read.
    unreleased: usize,
    /// The bytes that are still missing, if the length is known.
    remaining: Option<u64>,
    /// Set for a tunnel, which has no body until it is open, and may then be silent.
    tunnel: Option<TunnelState>,
    /// Sends `100 Continue` at the first read, if the client expects it.
    continue_sender: Option<Arc<PendingInformational>>,
    /// The bytes received in large frames, up to [`LONG_BODY`].
    large_frame_bytes: usize,
    counters: Arc<SharedCounters>,
    deadline: StreamDeadline,
    context: Arc<ServerContext>,
}

/// The unread rest of a body, kept until the response is sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Unread(Arc<Mutex<Option<UnreadBody>>>);

#[derive(Debug)]
struct UnreadBody {
    stream: RecvStream,
    _open: Option<OpenUpload>,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Upload {
    /// Creates the body of a request.
    pub(super) fn new(
        body: RecvStream,
        unread: Unread,
        length: Option<u64>,
        expects_continue: bool,
        stream: &Stream,
    ) -> Self {
        let mut deadline = StreamDeadline::new(stream.context.limits.body, Arc::clone(stream.in_flight.activity()));
        if stream.tunnel.is_some() {
            deadline.set_tunnel();
        }
        Self {
            stream: Some(body),
            open: Some(stream.counters.begin_upload()),
            unread,
            has_data: true,
            unreleased: 0,
            remaining: length,
            tunnel: stream.tunnel.clone(),
            continue_sender: expects_continue.then(|| Arc::clone(&stream.informational)),
            large_frame_bytes: 0,
            counters: Arc::clone(&stream.counters),
            deadline,
            context: Arc::clone(&stream.context),
        }
    }

    fn is_closed_tunnel(&self) -> bool {
        self.tunnel.as_ref().is_some_and(|tunnel| !tunnel.is_open())
    }

    /// Opens the client's window for the last data.
    fn release_window(&mut self) {
        let count = take(&mut self.unreleased);
        if count > 0
            && let Some(stream) = &mut self.stream
        {
            // This fails only if the stream is closed, and the next poll reports that.
            _ = stream.flow_control().release_capacity(count);
        }
    }

    fn take_data(&mut self, data: Bytes) -> Frame<BodyData> {
        if data.len() >= LARGE_FRAME && self.large_frame_bytes < LONG_BODY {
            self.large_frame_bytes += data.len();
            if self.large_frame_bytes >= LONG_BODY {
                self.counters.set_has_long_bodies();
            }
        }
        self.deadline.record_bytes(data.len());
        self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(data.len() as u64));
        Frame::data(data.into())
    }

    fn poll_client_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, BoxError>>> {
        if self.tunnel.is_some() {
            return Poll::Pending;
        }
        ready!(self.deadline.poll_timeout(cx));
        self.context.metrics.rejected(SLOW_UPLOAD);
        Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }
}

impl Body for Upload {
    type Data = BodyData;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, BoxError>>> {
        if let Some(sender) = self.continue_sender.take() {
            sender.queue_continue();
        }
        self.release_window();
        while self.has_data {
            let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
            match stream.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) if data.is_empty() && !stream.is_end_stream() => {}
                Poll::Ready(Some(Ok(data))) => {
                    let is_last = stream.is_end_stream();
                    self.unreleased = data.len();
                    if is_last {
                        self.open = None;
                        self.release_window(); // nothing is read after the last data
                    }
                    return Poll::Ready(Some(Ok(self.take_data(data))));
                }
                // A reset with any error code leaves the body incomplete.
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(None) => self.has_data = false,
                Poll::Pending => return self.poll_client_timeout(cx),
            }
        }
        self.open = None;
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        match stream.poll_trailers(cx) {
            Poll::Ready(Ok(trailers)) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
            Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error.into()))),
            Poll::Pending => self.poll_client_timeout(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_closed_tunnel() || self.stream.as_ref().is_none_or(RecvStream::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_closed_tunnel() {
            return SizeHint::with_exact(0);
        }
        self.remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// On drop, the rest of the body goes to [`Unread`].
impl Drop for Upload {
    fn drop(&mut self) {
        self.release_window();
        let (stream, open) = (self.stream.take(), self.open.take());
        let unread = stream.filter(|stream| !stream.is_end_stream());
        *self.unread.0.lock() = unread.map(|stream| UnreadBody { stream, _open: open });
    }
}

// === impl Unread ===

impl Unread {
    /// Reads the rest of the body for a while, so that a client that is still sending can read its response. If the
    /// stream were reset at once, old clients (curl before 8) would discard the response.
    pub(super) async fn linger(&self) {
        let rest = self.0.lock().take();
        let Some(mut rest) = rest else { return };
        let reading = async {
            let mut budget = MAX_DISCARDED;
            while let Some(Ok(data)) = poll_fn(|cx| rest.stream.poll_data(cx)).await {
                if let Some(remaining) = budget.checked_sub(data.len()) {
                    budget = remaining;
                    _ = rest.stream.flow_control().release_capacity(data.len());
                }
            }
        };
        _ = timeout(LINGER, reading).await;
    }
}
