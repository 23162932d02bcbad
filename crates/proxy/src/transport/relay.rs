//! Moves a body from socket to socket within the kernel, through a pipe (`splice`).
//!
//! The body stays a stream of frames, so everything between its reader and its writer works as usual: byte counts,
//! size limits and timeouts. A frame whose bytes are in the pipe has only their number
//! ([`BodyData::Piped`](super::BodyData::Piped)), and its writer writes from the pipe. A reader produces one only while a
//! writer polls that has a relay.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::net::TcpStream;

use self::pipe::Pipe;

/// The shortest body, and the shortest rest of a body, that a relay moves. A copy of a shorter one costs as much.
const MIN_LENGTH: u64 = 64 * 1024;
const MIN_REST: u64 = 16 * 1024;

/// The maximum number of bytes in a pipe. Each piece wakes the sender and the receiver: with pieces of 128 KiB, a body of
/// 10 MiB took 1.4 times the CPU time. More would be kept in memory for a client that does not read.
const MAX_PIECE: usize = 512 * 1024;

/// The maximum number of pipes of the process. Each has two file descriptors. Further bodies are copied.
pub const MAX_PIPES: usize = 64;

/// The maximum number of empty pipes that each thread keeps for the next body.
const MAX_IDLE: usize = 4;

static PIPES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IDLE: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// The relay of one body, shared by its reader and its writer.
#[derive(Clone, Debug)]
pub(crate) struct Relay(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether a writer with this relay is polling the body.
    is_polled: AtomicBool,
    pipe: Mutex<Option<OpenPipe>>,
}

/// A pipe and the number of bytes in it.
#[derive(Debug)]
struct OpenPipe {
    pipe: Pipe,
    filled: usize,
}

impl Relay {
    /// Creates a relay for a body of this length. Returns `None` if the body is short, or if the system has no
    /// `splice`.
    pub(crate) fn new(length: u64) -> Option<Self> {
        (pipe::IS_SUPPORTED && length >= MIN_LENGTH).then(|| Self(Arc::default()))
    }

    /// Drops the bytes that an earlier writer left in the pipe.
    pub(crate) fn discard(&self) {
        self.0.pipe.lock().take_if(|open| open.filled > 0);
    }

    /// Polls a body. Only during this poll, its reader may put bytes into the pipe.
    pub(crate) fn poll_body<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.0.is_polled.store(true, Relaxed);
        let polled = poll();
        self.0.is_polled.store(false, Relaxed);
        polled
    }

    /// Returns `true` if a body with this many bytes left can be moved now.
    pub(crate) fn can_fill(&self, left: u64) -> bool {
        left >= MIN_REST && self.0.is_polled.load(Relaxed) && self.0.open_pipe()
    }

    /// Moves up to `max` bytes from a socket to the pipe. Returns their number, which is 0 at the end of the connection.
    /// Requires [`can_fill`](Self::can_fill).
    pub(crate) fn poll_fill(&self, from: &TcpStream, max: u64, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut open = self.0.pipe.lock();
        let Some(OpenPipe { pipe, filled }) = open.as_mut().filter(|open| open.filled == 0) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let max = usize::try_from(max).unwrap_or(MAX_PIECE).min(MAX_PIECE);
        loop {
            ready!(from.poll_read_ready(cx))?;
            match from.try_io(Interest::READABLE, || pipe.fill(from, max)) {
                Ok(count) => {
                    *filled = count;
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Moves bytes from the pipe to a socket. Returns their number.
    pub(crate) fn poll_drain(&self, to: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut open = self.0.pipe.lock();
        let Some(OpenPipe { pipe, filled }) = open.as_mut().filter(|open| open.filled > 0) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        loop {
            ready!(to.poll_write_ready(cx))?;
            match to.try_io(Interest::WRITABLE, || pipe.drain(to, *filled)) {
                Ok(count) => {
                    *filled -= count;
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// Disables all relays of the process, because it has few file descriptors.
pub fn disable_pipes() {
    PIPES.store(MAX_PIPES, Relaxed);
}

impl State {
    /// Opens a pipe unless one is open. Returns `false` if there are too many.
    fn open_pipe(&self) -> bool {
        let mut open = self.pipe.lock();
        if open.is_none() {
            let idle = IDLE.with_borrow_mut(Vec::pop);
            *open = idle.or_else(Pipe::open).map(|pipe| OpenPipe { pipe, filled: 0 });
        }
        open.is_some()
    }
}

/// Keeps the pipe for another body if it is empty.
impl Drop for State {
    fn drop(&mut self) {
        if let Some(OpenPipe { pipe, filled: 0 }) = self.pipe.get_mut().take() {
            // Fails while the thread ends.
            _ = IDLE.try_with(|idle| {
                let mut idle = idle.borrow_mut();
                if idle.len() < MAX_IDLE {
                    idle.push(pipe);
                }
            });
        }
    }
}

/// Counts an open pipe. The count decreases on drop.
#[derive(Debug)]
struct PipeCount;

impl PipeCount {
    /// Returns `None` if there are [`MAX_PIPES`] pipes.
    fn try_add() -> Option<Self> {
        let count = |pipes| (pipes < MAX_PIPES).then_some(pipes + 1);
        PIPES.fetch_update(Relaxed, Relaxed, count).ok().map(|_| Self)
    }
}

impl Drop for PipeCount {
    fn drop(&mut self) {
        PIPES.fetch_sub(1, Relaxed);
    }
}

#[cfg(target_os = "linux")]
mod pipe {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
    use tokio::net::TcpStream;

    use super::{MAX_PIECE, PipeCount};

    pub(super) const IS_SUPPORTED: bool = true;

    const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

    #[derive(Debug)]
    pub(super) struct Pipe {
        read: OwnedFd,
        write: OwnedFd,
        _count: PipeCount,
    }

    impl Pipe {
        /// Returns `None` if there are too many pipes or descriptors.
        pub(super) fn open() -> Option<Self> {
            let count = PipeCount::try_add()?;
            let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
            // If the system refuses, or the slots of the pipe hold less than a page each, the pieces are shorter.
            _ = fcntl_setpipe_size(&write, MAX_PIECE);
            Some(Self { read, write, _count: count })
        }

        pub(super) fn fill(&self, from: &TcpStream, max: usize) -> io::Result<usize> {
            Ok(splice(from, None, &self.write, None, max, FLAGS)?)
        }

        pub(super) fn drain(&self, to: &TcpStream, max: usize) -> io::Result<usize> {
            Ok(splice(&self.read, None, to, None, max, FLAGS)?)
        }
    }
}

/// Other systems copy bodies.
#[cfg(not(target_os = "linux"))]
mod pipe {
    use std::io;

    use tokio::net::TcpStream;

    use super::PipeCount;

    pub(super) const IS_SUPPORTED: bool = false;

    #[derive(Debug)]
    pub(super) struct Pipe(PipeCount);

    impl Pipe {
        pub(super) fn open() -> Option<Self> {
            None
        }

        pub(super) fn fill(&self, _: &TcpStream, _: usize) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) fn drain(&self, _: &TcpStream, _: usize) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn bytes_move_from_socket_to_socket() {
        let ((mut sender, from), (to, mut receiver)) = (connected().await, connected().await);
        let sent: Vec<u8> = (0..300_000_u32).map(|number| (number / 7).to_le_bytes()[0]).collect();
        let copy = sent.clone();
        let sending = tokio::spawn(async move {
            sender.write_all(&copy).await.unwrap();
            sender
        });
        let receiving = tokio::spawn(async move {
            let mut received = Vec::new();
            receiver.read_to_end(&mut received).await.unwrap();
            received
        });
        let relay = Relay::new(sent.len() as u64).unwrap();
        let mut left = sent.len() as u64;
        while left > 0 {
            let mut waiting = poll_fn(|cx| {
                relay.poll_body(|| {
                    assert!(relay.can_fill(MIN_LENGTH));
                    relay.poll_fill(&from, left, cx)
                })
            })
            .await
            .unwrap();
            assert!(waiting as u64 <= left);
            left -= waiting as u64;
            while waiting > 0 {
                waiting -= poll_fn(|cx| relay.poll_drain(&to, cx)).await.unwrap();
            }
        }
        drop((to, sending.await.unwrap()));
        assert!(receiving.await.unwrap() == sent);
        let end = poll_fn(|cx| {
            assert!(relay.poll_body(|| relay.can_fill(MIN_LENGTH)));
            relay.poll_fill(&from, 1, cx)
        });
        assert_eq!(end.await.unwrap(), 0, "the end of the connection");
    }

    #[tokio::test]
    async fn bytes_of_an_earlier_writer_are_discarded() {
        let ((mut sender, from), (to, _receiver)) = (connected().await, connected().await);
        sender.write_all(b"old").await.unwrap();
        let relay = Relay::new(MIN_LENGTH).unwrap();
        let fill = async || {
            poll_fn(|cx| {
                assert!(relay.poll_body(|| relay.can_fill(MIN_LENGTH)));
                relay.poll_fill(&from, 10, cx)
            })
            .await
        };
        assert_eq!(fill().await.unwrap(), 3);
        assert!(fill().await.is_err(), "the bytes are not written yet");
        relay.discard();
        assert!(poll_fn(|cx| relay.poll_drain(&to, cx)).await.is_err());
        sender.write_all(b"newer").await.unwrap();
        assert_eq!(fill().await.unwrap(), 5);
    }

    #[tokio::test]
    async fn reader_waits_for_a_writer_with_the_relay() {
        let relay = Relay::new(MIN_LENGTH).unwrap();
        assert!(!relay.can_fill(MIN_LENGTH), "not polled");
        assert!(!relay.poll_body(|| relay.can_fill(MIN_REST - 1)), "a short rest");
        assert!(relay.poll_body(|| relay.can_fill(MIN_LENGTH)));
        assert!(Relay::new(MIN_LENGTH - 1).is_none());
    }
}
