//! The old gateway's side of a handover: accepts successors and sends them the sockets.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout, timeout_at};

use super::successor::Successor;
use super::wire::{MESSAGE_TIMEOUT, VERSION, check_user, receive, send};
use crate::gateway::socket_file::{self, CurrentSockets, ListeningSocket, OWNER_ONLY, SocketFile};

/// How long a successor may take to become ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of connections that have not sent a version yet. Further ones are dropped.
const MAX_UNIDENTIFIED: usize = 64;
/// The pause after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The socket that successors connect to.
#[derive(Debug)]
pub(crate) struct Handover {
    listener: UnixListener,
    file: Option<Arc<SocketFile>>,
    /// Connections that have not sent a version yet.
    unidentified: JoinSet<io::Result<UnixStream>>,
}

/// How the wait for a successor ended.
#[derive(Debug)]
pub(crate) enum HandoverOutcome {
    /// The successor is ready to take over, and waits for its [release](Successor::release).
    TakenOver(Successor),
    /// The gateway must end. A successor, if any, has the sockets and is still starting.
    Stopped(Option<Successor>),
}

// === impl Handover ===

impl Handover {
    /// Listens on a Unix socket at `path`.
    ///
    /// # Errors
    /// Another process listens on the socket, or the system reports an error.
    pub(crate) fn listen(path: &Path) -> io::Result<Self> {
        let ListeningSocket { socket, file } = socket_file::listen(path, OWNER_ONLY)?;
        Self::new(socket, file)
    }

    pub(super) fn new(socket: Socket, file: Option<Arc<SocketFile>>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let listener = UnixListener::from_std(OwnedFd::from(socket).into())?;
        Ok(Self { listener, file, unidentified: JoinSet::new() })
    }

    /// Waits for a successor and sends it the sockets. A newer successor replaces one that is still starting.
    ///
    /// Must not be cancelled: that would abort a handover.
    pub(crate) async fn run(&mut self, sockets: &CurrentSockets, mut stop: oneshot::Receiver<()>) -> HandoverOutcome {
        let mut successor = None;
        loop {
            tokio::select! {
                biased;
                ready = wait_until_ready(successor.as_ref()) => match (ready, successor.take()) {
                    (Ok(()), Some(successor)) => return HandoverOutcome::TakenOver(successor),
                    (Err(error), Some(failed)) => {
                        tracing::warn!(%error, "successor failed before it took over, continuing to serve");
                        failed.refuse().await;
                    }
                    (_, None) => {}
                },
                Some(stream) = self.unidentified.join_next() => match stream.unwrap_or_else(|error| Err(error.into())) {
                    Ok(stream) => successor = self.hand_over(stream, sockets, successor).await,
                    Err(error) => tracing::warn!(%error, "rejected a connection to the handover socket"),
                },
                _ = &mut stop => return HandoverOutcome::Stopped(successor),
                stream = accept(&self.listener) => if self.unidentified.len() < MAX_UNIDENTIFIED {
                    self.unidentified.spawn(identify(stream));
                },
            }
        }
    }

    /// Sends the sockets to a successor.
    async fn hand_over(
        &self,
        stream: UnixStream,
        sockets: &CurrentSockets,
        starting: Option<Successor>,
    ) -> Option<Successor> {
        if let Some(starting) = starting {
            tracing::warn!("a newer successor connected and replaces the one that is starting");
            starting.refuse().await;
        }
        let successor = Successor::send_sockets(stream, sockets.get(), self.listener.as_fd(), self.file.clone()).await;
        let log = |error: &io::Error| tracing::warn!(%error, "handover to a successor failed, continuing to serve");
        successor.inspect_err(log).ok()
    }
}

async fn wait_until_ready(successor: Option<&Successor>) -> io::Result<()> {
    let Some(successor) = successor else { return pending().await };
    timeout_at(successor.since() + START_TIMEOUT, successor.wait_until_ready()).await?
}

async fn accept(listener: &UnixListener) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection on the handover socket");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Checks the user and the protocol version of a process that has connected.
async fn identify(stream: UnixStream) -> io::Result<UnixStream> {
    check_user(&stream)?;
    match timeout(MESSAGE_TIMEOUT, receive(&stream)).await?? {
        (VERSION, _) => Ok(stream),
        (theirs, _) => {
            send(&stream, VERSION, None).await?;
            let [theirs, expected] = [theirs, VERSION].map(u8::escape_ascii);
            Err(io::Error::other(format!("handover protocol version {theirs}, expected {expected}")))
        }
    }
}
