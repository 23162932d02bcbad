//! The phases of an admin connection, each with its time limit.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::Body;
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The longest time from the first byte of a request to the end of its head; for the first request, from the accept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time between two requests. It is longer than the interval of most scrapers and health checks.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// The longest time from the end of a request's head until the client has taken the whole response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest time that a client takes to accept the next event of a stream.
const EVENT_TIMEOUT: Duration = Duration::from_secs(15);

/// Marks a response that is a stream of events: it lasts as long as its client reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventStream;

/// The phase of a connection, and when it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    kind: Kind,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Waits for the rest of a request's head.
    Head,
    /// Creates the response, or writes it.
    Response,
    /// Waits until the client has taken the last event.
    Stream,
    /// The response is complete, but some of it may still be in a buffer.
    Flush,
    /// Waits for the next request.
    Idle,
}

/// Changes the phase of a connection. The clones belong to the same connection.
#[derive(Clone, Debug)]
pub(super) struct Progress(watch::Sender<Phase>);

/// Observes the phase of a connection.
#[derive(Clone, Debug)]
pub(super) struct Observer(watch::Receiver<Phase>);

/// A byte stream that reports progress.
#[derive(Debug)]
pub(super) struct Tracked<S> {
    stream: S,
    progress: Progress,
}

/// Reports the end of a response body when it is dropped. hyper drops a body after its last frame.
struct BodyEnd(Progress);

// === impl Phase ===

impl Phase {
    fn begin(kind: Kind) -> Self {
        Self { kind, since: Instant::now() }
    }

    fn deadline(self) -> Instant {
        let timeout = match self.kind {
            Kind::Head => HEAD_TIMEOUT,
            Kind::Response | Kind::Flush => RESPONSE_TIMEOUT,
            Kind::Stream => EVENT_TIMEOUT,
            Kind::Idle => IDLE_TIMEOUT,
        };
        self.since + timeout
    }
}

// === impl Progress ===

impl Progress {
    /// Starts with the phase of a connection that was just accepted.
    pub(super) fn new() -> (Self, Observer) {
        let (sender, receiver) = watch::channel(Phase::begin(Kind::Head));
        (Self(sender), Observer(receiver))
    }

    /// Records the end of a request's head.
    pub(super) fn begin_response(&self) {
        self.0.send_replace(Phase::begin(Kind::Response));
    }

    /// Records that the response is a stream of events.
    pub(super) fn begin_stream(&self) {
        self.0.send_replace(Phase::begin(Kind::Stream));
    }

    /// Returns a body that records its frames and its end.
    pub(super) fn track<B: Body>(self, body: B) -> impl Body<Data = B::Data, Error = B::Error> {
        let end = BodyEnd(self);
        // hyper takes an event only if it has written most of the previous ones.
        body.inspect_frame(move |_| end.0.change(Kind::Stream, |_| Phase::begin(Kind::Stream)))
    }

    fn change(&self, from: Kind, to: impl FnOnce(Phase) -> Phase) {
        self.0.send_if_modified(|phase| {
            let is_change = phase.kind == from;
            if is_change {
                *phase = to(*phase);
            }
            is_change
        });
    }
}

// === impl Observer ===

impl Observer {
    /// Completes when the connection has exceeded the time limit of a phase, or has ended.
    pub(super) async fn expired(mut self) {
        loop {
            let deadline = self.0.borrow_and_update().deadline();
            match timeout_at(deadline, self.0.changed()).await {
                Ok(Ok(())) => {}
                // The stream and the last body are gone: no phase follows.
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// Returns when the connection began to wait for a request. Returns `None` if it does not wait for one.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        let Phase { kind, since } = *self.0.borrow();
        matches!(kind, Kind::Head | Kind::Idle).then_some(since)
    }

    /// Returns when the current phase began.
    pub(super) fn since(&self) -> Instant {
        self.0.borrow().since
    }
}

// === impl Tracked ===

impl<S> Tracked<S> {
    pub(super) fn new(stream: S, progress: Progress) -> Self {
        Self { stream, progress }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tracked<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.progress.change(Kind::Idle, |_| Phase::begin(Kind::Head));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tracked<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    /// hyper flushes the stream only when its own buffer is empty.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.progress.change(Kind::Flush, |_| Phase::begin(Kind::Idle));
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

// === impl BodyEnd ===

impl Drop for BodyEnd {
    fn drop(&mut self) {
        self.0.change(Kind::Response, |phase| Phase { kind: Kind::Flush, ..phase });
        self.0.change(Kind::Stream, |_| Phase::begin(Kind::Flush));
    }
}
