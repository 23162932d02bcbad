//! The messages: bytes, some of which carry a socket.

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
/// A socket that clients or operators connect to.
pub(super) const OF_CLIENTS: u8 = b'l';
/// Such a socket with a file, which the successor removes at its end.
pub(super) const WITH_FILE: u8 = b'f';
/// The socket that successors connect to.
pub(super) const OF_SUCCESSORS: u8 = b'h';
pub(super) const END: u8 = b'.';
/// The successor can serve, and asks for its release.
pub(super) const TAKES_OVER: u8 = b'r';
/// The state of the store follows.
pub(super) const STATE: u8 = b's';
/// The old gateway drains.
pub(super) const RELEASES: u8 = b'd';
/// The old gateway serves on: this successor must not.
pub(super) const REFUSES: u8 = b'x';

/// How long the other process may take to send or read a message.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Accepts only processes of the same user, and of root, which could take the sockets anyway.
pub(super) fn check_user(stream: &UnixStream) -> io::Result<()> {
    let (own, other) = (geteuid().as_raw(), stream.peer_cred()?.uid());
    if other == own || other == 0 {
        return Ok(());
    }
    let message = format!("the process there is of another user ({other}, not {own})");
    Err(io::Error::new(ErrorKind::PermissionDenied, message))
}

pub(super) fn invalid(message: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, message)
}

/// Sends a byte, and with it a socket.
pub(super) async fn send(stream: &UnixStream, byte: u8, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
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
pub(super) async fn receive(stream: &UnixStream) -> io::Result<(u8, Option<Socket>)> {
    stream.async_io(Interest::READABLE, || receive_now(stream)).await
}

/// Receives a byte if one is available.
///
/// # Errors
/// [`WouldBlock`](ErrorKind::WouldBlock) if none has, and [`UnexpectedEof`](ErrorKind::UnexpectedEof) if the other process
/// has ended the connection.
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

/// Returns `true` if the error means that the other process has ended the connection.
pub(super) fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
