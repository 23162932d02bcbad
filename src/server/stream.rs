//! A client's socket that notes what happens on it.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::activity::Activity;

/// How long a client that is still sending is listened to after its answer. Closed at once, the connection would be
/// reset by what is on its way, and the reset can overtake the answer.
const LINGER: Duration = Duration::from_secs(2);

/// The socket and the notes.
#[derive(Debug)]
pub(crate) struct Watched {
    stream: TcpStream,
    activity: Arc<Activity>,
    lingering: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    pub(crate) fn new(stream: TcpStream, activity: Arc<Activity>) -> Self {
        Self { stream, activity, lingering: None }
    }

    /// The notes.
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// The socket itself, for a look that leaves no notes.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    fn note<T>(&self, polled: Poll<T>) -> Poll<T> {
        self.activity.blocked(polled.is_pending());
        polled
    }

    /// Throws away what comes, until the client closes or has had its time.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = [0; 8 * 1024];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
        }
        let end = self.lingering.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        end.as_mut().poll(cx).map(Ok)
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let count = buffer.filled().len() - before;
        if count > 0 {
            self.activity.read(count);
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        if self.activity.may_be_sending() { self.poll_linger(cx) } else { Poll::Ready(Ok(())) }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.activity.needs_reset() {
            // A socket that is gone already needs no reset.
            _ = socket2::SockRef::from(self.socket()).set_linger(Some(Duration::ZERO));
        }
    }
}
