//! The old gateway's view of a successor that has the sockets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};

use super::state::send_state;
use super::wire::{
    END, HANDOVER_SOCKET, LISTENER, LISTENER_WITH_FILE, MESSAGE_TIMEOUT, REFUSE, RELEASE, TAKE_OVER, VERSION, receive,
    send,
};
use crate::gateway::socket_file::{SocketFile, Sockets};

/// A successor that is starting or serving. It owns the files of the sockets, even after this value is dropped, unless
/// it [fails](Self::fail).
#[derive(Debug)]
pub(crate) struct Successor {
    stream: UnixStream,
    since: Instant,
    sockets: Sockets,
    handover_file: Option<Arc<SocketFile>>,
}

/// A serving successor, while this gateway drains.
#[derive(Debug)]
pub(crate) struct ReleasedSuccessor(UnixStream);

// === impl ReleasedSuccessor ===

impl ReleasedSuccessor {
    /// Sends the debts from the drain.
    ///
    /// # Errors
    /// The successor does not read them.
    pub(crate) async fn send_last_state(&self, state: &[u8]) -> io::Result<()> {
        send_state(&self.0, state).await
    }
}

// === impl Successor ===

impl Successor {
    /// Sends the sockets to a process, which then is a successor.
    ///
    /// # Errors
    /// The process does not read them. This gateway still owns the files.
    pub(super) async fn send_sockets(
        stream: UnixStream,
        sockets: Sockets,
        handover_socket: BorrowedFd<'_>,
        handover_file: Option<Arc<SocketFile>>,
    ) -> io::Result<Self> {
        let successor = Self { stream, since: Instant::now(), sockets, handover_file };
        successor.files().for_each(|file| file.lend());
        let sent = timeout(MESSAGE_TIMEOUT, successor.send_all(handover_socket)).await;
        match sent.unwrap_or_else(|late| Err(late.into())) {
            Ok(()) => Ok(successor),
            Err(error) => {
                successor.fail();
                Err(error)
            }
        }
    }

    async fn send_all(&self, handover_socket: BorrowedFd<'_>) -> io::Result<()> {
        send(&self.stream, VERSION, None).await?;
        for listening in self.sockets.iter() {
            let kind = if listening.file.is_some() { LISTENER_WITH_FILE } else { LISTENER };
            send(&self.stream, kind, Some(listening.socket.as_fd())).await?;
        }
        send(&self.stream, HANDOVER_SOCKET, Some(handover_socket)).await?;
        send(&self.stream, END, None).await
    }

    /// Returns when the sockets were sent.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// Waits until the successor is ready to take over. Can be cancelled and called again.
    ///
    /// # Errors
    /// The successor has ended.
    pub(crate) async fn wait_until_ready(&self) -> io::Result<()> {
        match receive(&self.stream).await? {
            (TAKE_OVER, _) => Ok(()),
            _ => Err(io::Error::other("the successor sent an unexpected message")),
        }
    }

    /// Sends the state of the store.
    ///
    /// # Errors
    /// The successor does not read the state.
    pub(crate) async fn send_state(&self, state: &[u8]) -> io::Result<()> {
        send_state(&self.stream, state).await
    }

    /// Drops the sockets, because the successor serves them now.
    pub(crate) fn into_released(self) -> ReleasedSuccessor {
        ReleasedSuccessor(self.stream)
    }

    /// Permits the successor to serve.
    ///
    /// # Errors
    /// The successor has ended.
    pub(crate) async fn release(&self) -> io::Result<()> {
        timeout(MESSAGE_TIMEOUT, send(&self.stream, RELEASE, None)).await?
    }

    /// Forbids the successor to serve.
    pub(super) async fn refuse(self) {
        // A successor that does not read this message has not read all sockets either, and cannot serve.
        _ = timeout(MESSAGE_TIMEOUT, send(&self.stream, REFUSE, None)).await;
        self.fail();
    }

    /// Makes this gateway the owner of the files again after the successor has failed.
    pub(crate) fn fail(self) {
        self.files().for_each(|file| file.reclaim());
    }

    fn files(&self) -> impl Iterator<Item = &Arc<SocketFile>> {
        self.sockets.iter().filter_map(|listening| listening.file.as_ref()).chain(&self.handover_file)
    }
}
