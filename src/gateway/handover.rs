//! A gateway hands its listening sockets over to the one that takes its place.
//!
//! A gateway listens on a Unix socket for its successor. The successor is sent the sockets themselves, so that connections
//! which wait in their queues wait for it from then on, and none is reset when the old process ends. It says so when it
//! serves; only then does the old one drain. One that fails before that leaves everything as it was.
//!
//! ```text
//! old ─► new   VERSION, and then a byte for each socket, which carries it: OF_CLIENTS, WITH_FILE or OF_SUCCESSORS; END
//! new ─► old   SERVES
//! old ─► new   the end of the connection: the old one drains
//! ```

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::geteuid;
use socket2::Socket;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::socket_file::{self, Listening, OWNER_ALONE, SocketFile};

/// What is spoken here. A process that speaks something else is told apart by it.
const VERSION: u8 = b'1';
/// A socket that clients or operators connect to.
const OF_CLIENTS: u8 = b'l';
/// One with a file, which the successor is to remove at its end.
const WITH_FILE: u8 = b'f';
/// The socket that successors connect to.
const OF_SUCCESSORS: u8 = b'h';
const END: u8 = b'.';
/// The successor serves.
const SERVES: u8 = b'r';

/// How long the other process may take for its part. The old one has nothing to do but to send.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a successor may take until it serves. Another one waits meanwhile.
const START: Duration = Duration::from_secs(60);

/// The socket that a successor connects to.
#[derive(Debug)]
pub(crate) struct Handover {
    listener: UnixListener,
    file: Option<SocketFile>,
}

/// The gateway whose place this one takes.
#[derive(Debug)]
pub(crate) struct Predecessor {
    stream: UnixStream,
    path: PathBuf,
    sockets: Vec<Listening>,
    of_successors: Socket,
}

// === impl Predecessor ===

impl Predecessor {
    /// Asks the gateway that listens at `path`, if there is one, for its sockets.
    ///
    /// # Errors
    /// It is another user's, or does not hand over.
    pub(crate) async fn ask(path: &Path) -> io::Result<Option<Self>> {
        let stream = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        check_user(&stream)?;
        timeout(PATIENCE, Self::receive(stream, path)).await?.map(Some)
    }

    async fn receive(stream: UnixStream, path: &Path) -> io::Result<Self> {
        let (mut sockets, mut of_successors) = (Vec::new(), None);
        if receive(&stream).await?.0 != VERSION {
            return Err(invalid("the gateway there speaks another version"));
        }
        loop {
            match receive(&stream).await? {
                (OF_CLIENTS, Some(socket)) => sockets.push(Listening { socket, file: None }),
                (WITH_FILE, Some(socket)) => {
                    let path = socket.local_addr()?.as_pathname().map(Path::to_owned);
                    let file = path.map(|path| SocketFile::of_another(&path));
                    sockets.push(Listening { socket, file });
                }
                (OF_SUCCESSORS, Some(socket)) => of_successors = Some(socket),
                (END, None) => break,
                _ => return Err(invalid("the process there hands over something else")),
            }
        }
        let of_successors = of_successors.ok_or_else(|| invalid("the gateway there keeps its own socket"))?;
        Ok(Self { stream, path: path.to_owned(), sockets, of_successors })
    }

    /// The sockets that clients and operators connect to.
    pub(crate) fn take_sockets(&mut self) -> Vec<Listening> {
        std::mem::take(&mut self.sockets)
    }

    /// Has it drain, since this gateway serves; returns the socket for this one's own successor.
    ///
    /// # Errors
    /// It does not say that it drains. This gateway serves all the same.
    pub(crate) async fn release(mut self) -> (io::Result<()>, io::Result<Handover>) {
        let told = async {
            self.stream.write_all(&[SERVES]).await?;
            self.stream.read(&mut [0]).await.map(drop)
        };
        let told = timeout(PATIENCE, told).await.unwrap_or_else(|late| Err(late.into()));
        (told, Handover::on(self.of_successors, Some(SocketFile::at(&self.path))))
    }
}

// === impl Handover ===

impl Handover {
    /// Listens at `path`, where nobody does.
    ///
    /// # Errors
    /// Somebody does, or the system says no.
    pub(crate) fn listen(path: &Path) -> io::Result<Self> {
        let Listening { socket, file } = socket_file::listen(path, OWNER_ALONE)?;
        Self::on(socket, file)
    }

    fn on(socket: Socket, file: Option<SocketFile>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let listener = UnixListener::from_std(OwnedFd::from(socket).into())?;
        Ok(Self { listener, file })
    }

    /// Returns once a successor serves, which has been handed these sockets.
    pub(crate) async fn taken_over(&mut self, sockets: &[Listening]) {
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a successor");
                    tokio::time::sleep(PATIENCE).await;
                    continue;
                }
            };
            match self.hand_over(stream, sockets).await {
                Ok(true) => {
                    self.file.iter_mut().for_each(SocketFile::leave);
                    return;
                }
                Ok(false) => tracing::warn!("a successor took the sockets and ended: this gateway goes on"),
                Err(error) => tracing::warn!(%error, "cannot hand over to a successor: this gateway goes on"),
            }
        }
    }

    /// Hands over to one that has connected; returns whether it serves.
    async fn hand_over(&self, mut stream: UnixStream, sockets: &[Listening]) -> io::Result<bool> {
        check_user(&stream)?;
        let sending = async {
            send(&stream, VERSION, None).await?;
            for listening in sockets {
                let kind = if listening.file.is_some() { WITH_FILE } else { OF_CLIENTS };
                send(&stream, kind, Some(listening.socket.as_fd())).await?;
            }
            send(&stream, OF_SUCCESSORS, Some(self.listener.as_fd())).await?;
            send(&stream, END, None).await
        };
        timeout(PATIENCE, sending).await??;
        let mut said = [0];
        Ok(timeout(START, stream.read(&mut said)).await?? == 1 && said[0] == SERVES)
    }
}

/// Sockets are handed to processes of the same user alone, and taken from these: of root, from anybody who could take them
/// anyway.
fn check_user(stream: &UnixStream) -> io::Result<()> {
    let (own, other) = (geteuid().as_raw(), stream.peer_cred()?.uid());
    if other == own || other == 0 {
        return Ok(());
    }
    let message = format!("the process there is of another user ({other}, not {own})");
    Err(io::Error::new(ErrorKind::PermissionDenied, message))
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, message)
}

/// Sends a byte, and with it a socket.
async fn send(stream: &UnixStream, byte: u8, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let sockets = socket.as_slice();
    let once = || {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(sockets)) {
            return Err(invalid("no room for a socket"));
        }
        Ok(sendmsg(stream, &[IoSlice::new(&[byte])], &mut control, SendFlags::empty())?)
    };
    stream.async_io(Interest::WRITABLE, once).await.map(drop)
}

/// Receives a byte, and what came with it.
async fn receive(stream: &UnixStream) -> io::Result<(u8, Option<Socket>)> {
    let once = || {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(&mut byte)];
        if recvmsg(stream, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut sockets = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        Ok((byte[0], sockets.next().and_then(|mut sockets| sockets.next()).map(Socket::from)))
    };
    stream.async_io(Interest::READABLE, once).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_successor_that_hangs_keeps_no_other_out() {
        let path = std::env::temp_dir().join(format!("tidegate-hanging-{}", std::process::id()));
        let mut handover = Handover::listen(&path).unwrap();
        let _hanging = UnixStream::connect(&path).await.unwrap();
        let mut next = UnixStream::connect(&path).await.unwrap();
        next.write_all(&[SERVES]).await.unwrap(); // is read when its turn has come
        handover.taken_over(&[]).await;
        let mut sent = [0; 3];
        next.read_exact(&mut sent).await.unwrap();
        assert_eq!(sent, [VERSION, OF_SUCCESSORS, END]);
        std::fs::remove_file(&path).unwrap();
    }
}
