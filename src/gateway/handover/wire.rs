//! The messages of the handover protocol: single bytes, some of which carry a socket.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::geteuid;
use socket2::Socket;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The version of the protocol. Other versions are rejected.
pub(super) const VERSION: u8 = b'2';
/// A listening socket for clients or operators.
pub(super) const LISTENER: u8 = b'l';
/// A listening Unix socket whose file the successor removes on exit.
pub(super) const LISTENER_WITH_FILE: u8 = b'f';
/// The socket of `--handover`, to which the next successor connects.
pub(super) const HANDOVER_SOCKET: u8 = b'h';
/// All sockets have been sent.
pub(super) const END: u8 = b'.';
/// The successor is ready, and asks for permission to serve.
pub(super) const TAKE_OVER: u8 = b'r';
/// The state of the store follows.
pub(super) const STATE: u8 = b's';
/// The old gateway drains.
pub(super) const RELEASE: u8 = b'd';
/// The old gateway continues to serve, so the successor must not serve.
pub(super) const REFUSE: u8 = b'x';

/// How long the other process may take to send or read a message.
pub(super) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Accepts only processes of the same user, and of root, which could take the sockets anyway.
pub(super) fn check_user(stream: &UnixStream) -> io::Result<()> {
    let (own, other) = (geteuid().as_raw(), stream.peer_cred()?.uid());
    if other == own || other == 0 {
        return Ok(());
    }
    let message = format!("the other process belongs to user {other}, not {own}");
    Err(io::Error::new(ErrorKind::PermissionDenied, message))
}

pub(super) fn invalid(message: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, message)
}

/// Sends a byte, optionally with a socket.
pub(super) async fn send(stream: &UnixStream, byte: u8, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let sockets = socket.as_slice();
    let once = || {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(sockets)) {
            return Err(invalid("the socket does not fit into a message"));
        }
        Ok(sendmsg(stream, &[IoSlice::new(&[byte])], &mut control, SendFlags::empty())?)
    };
    stream.async_io(Interest::WRITABLE, once).await.map(drop)
}

/// Receives a byte, and the socket that it carries.
pub(super) async fn receive(stream: &UnixStream) -> io::Result<(u8, Option<Socket>)> {
    stream.async_io(Interest::READABLE, || receive_now(stream)).await
}

/// Receives a byte if one is available.
///
/// # Errors
/// [`WouldBlock`](ErrorKind::WouldBlock) if no byte is available, and [`UnexpectedEof`](ErrorKind::UnexpectedEof) if
/// the other process has closed the connection.
pub(super) fn receive_now(stream: &UnixStream) -> io::Result<(u8, Option<Socket>)> {
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
}

/// Returns `true` if the error means that the other process has closed the connection.
pub(super) fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
