//! A process that has been sent the sockets, as the old gateway sees it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};

use super::state::send_state;
use super::wire::{
    END, OF_CLIENTS, OF_SUCCESSORS, PATIENCE, REFUSES, RELEASES, TAKES_OVER, VERSION, WITH_FILE, receive, send,
};
use crate::gateway::socket_file::{Listening, SocketFile};

/// A successor, starting or serving. It owns the files of the sockets, also after this is dropped, unless it
/// [`fails`](Self::fail).
#[derive(Debug)]
pub(crate) struct Successor {
    stream: UnixStream,
    since: Instant,
    sockets: Arc<[Listening]>,
    own_file: Option<Arc<SocketFile>>,
}

/// A successor that serves, while this gateway drains.
#[derive(Debug)]
pub(crate) struct Released(UnixStream);

// === impl Released ===

impl Released {
    /// Sends what was granted locally during the drain.
    ///
    /// # Errors
    /// The successor does not read it.
    pub(crate) async fn send_last_state(&self, state: &[u8]) -> io::Result<()> {
        send_state(&self.0, state).await
    }
}

// === impl Successor ===

impl Successor {
    /// Sends the sockets.
    ///
    /// # Errors
    /// The process does not read them. The files are this gateway's as before.
    pub(super) async fn equip(
        stream: UnixStream,
        sockets: &Arc<[Listening]>,
        of_successors: BorrowedFd<'_>,
        own_file: Option<Arc<SocketFile>>,
    ) -> io::Result<Self> {
        let successor = Self { stream, since: Instant::now(), sockets: Arc::clone(sockets), own_file };
        successor.files().for_each(|file| file.lend());
        let sent = timeout(PATIENCE, successor.send_sockets(of_successors)).await;
        match sent.unwrap_or_else(|late| Err(late.into())) {
            Ok(()) => Ok(successor),
            Err(error) => {
                successor.fail();
                Err(error)
            }
        }
    }

    async fn send_sockets(&self, of_successors: BorrowedFd<'_>) -> io::Result<()> {
        send(&self.stream, VERSION, None).await?;
        for listening in self.sockets.iter() {
            let kind = if listening.file.is_some() { WITH_FILE } else { OF_CLIENTS };
            send(&self.stream, kind, Some(listening.socket.as_fd())).await?;
        }
        send(&self.stream, OF_SUCCESSORS, Some(of_successors)).await?;
        send(&self.stream, END, None).await
    }

    /// When it was sent the sockets.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// Waits until the successor takes over. Can be cancelled and called again.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) async fn takes_over(&self) -> io::Result<()> {
        match receive(&self.stream).await? {
            (TAKES_OVER, _) => Ok(()),
            _ => Err(io::Error::other("it sent something else")),
        }
    }

    /// Sends it the state of the store.
    ///
    /// # Errors
    /// It does not read the state.
    pub(crate) async fn send_state(&self, state: &[u8]) -> io::Result<()> {
        send_state(&self.stream, state).await
    }

    /// It serves: this gateway no longer needs its sockets.
    pub(crate) fn released(self) -> Released {
        Released(self.stream)
    }

    /// Lets it serve.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) async fn release(&self) -> io::Result<()> {
        timeout(PATIENCE, send(&self.stream, RELEASES, None)).await?
    }

    /// Tells it that it must not serve.
    pub(super) async fn refuse(self) {
        // If it does not read, it has not read all sockets either, and cannot serve.
        _ = timeout(PATIENCE, send(&self.stream, REFUSES, None)).await;
        self.fail();
    }

    /// It has failed: the files are this gateway's again.
    pub(crate) fn fail(self) {
        self.files().for_each(|file| file.take_back());
    }

    fn files(&self) -> impl Iterator<Item = &Arc<SocketFile>> {
        self.sockets.iter().filter_map(|listening| listening.file.as_ref()).chain(&self.own_file)
    }
}
