//! The side of the old gateway.

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
use super::wire::{PATIENCE, VERSION, check_user, receive, send};
use crate::gateway::socket_file::{self, Listening, OWNER_ALONE, SocketFile};

/// How long a successor may take until it can serve.
const START: Duration = Duration::from_secs(60);
/// Connections that may be open without having sent a version.
const MAX_SILENT: usize = 64;
/// The pause after a failure to accept.
const PAUSE: Duration = Duration::from_secs(1);

/// The socket that successors connect to.
#[derive(Debug)]
pub(crate) struct Handover {
    listener: UnixListener,
    file: Option<Arc<SocketFile>>,
    /// Connections that have not sent a version yet.
    silent: JoinSet<io::Result<UnixStream>>,
}

/// How the wait for a successor ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// This successor takes over, and waits for its [release](Successor::release).
    TakenOver(Successor),
    /// The gateway is to end. This successor has the sockets, and starts.
    Stopped(Option<Successor>),
}

// === impl Handover ===

impl Handover {
    /// Listens at `path`.
    ///
    /// # Errors
    /// Another process listens there, or the system reports an error.
    pub(crate) fn listen(path: &Path) -> io::Result<Self> {
        let Listening { socket, file } = socket_file::listen(path, OWNER_ALONE)?;
        Self::new(socket, file)
    }

    pub(super) fn new(socket: Socket, file: Option<Arc<SocketFile>>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let listener = UnixListener::from_std(OwnedFd::from(socket).into())?;
        Ok(Self { listener, file, silent: JoinSet::new() })
    }

    /// Waits for a successor, and hands these sockets over. The newest successor replaces one that is still starting.
    ///
    /// Must not be cancelled: that would break a handover off.
    pub(crate) async fn run(&mut self, sockets: &Arc<[Listening]>, mut stop: oneshot::Receiver<()>) -> Outcome {
        let mut successor = None;
        loop {
            tokio::select! {
                biased;
                taken = takes_over(successor.as_ref()) => match (taken, successor.take()) {
                    (Ok(()), Some(successor)) => return Outcome::TakenOver(successor),
                    (Err(error), Some(failed)) => {
                        tracing::warn!(%error, "a successor failed before it took over: this gateway serves on");
                        failed.refuse().await;
                    }
                    (_, None) => {}
                },
                Some(greeted) = self.silent.join_next() => match greeted.unwrap_or_else(|error| Err(error.into())) {
                    Ok(stream) => successor = self.hand_over(stream, sockets, successor).await,
                    Err(error) => tracing::warn!(%error, "a process that connected for a handover is no successor"),
                },
                _ = &mut stop => return Outcome::Stopped(successor),
                stream = accept(&self.listener) => if self.silent.len() < MAX_SILENT {
                    self.silent.spawn(greet(stream));
                },
            }
        }
    }

    /// Sends the sockets to a successor.
    async fn hand_over(
        &self,
        stream: UnixStream,
        sockets: &Arc<[Listening]>,
        starting: Option<Successor>,
    ) -> Option<Successor> {
        if let Some(starting) = starting {
            tracing::warn!("another successor has connected: it replaces the one that is starting");
            starting.refuse().await;
        }
        let equipped = Successor::equip(stream, sockets, self.listener.as_fd(), self.file.clone()).await;
        let log = |error: &io::Error| tracing::warn!(%error, "cannot hand over to a successor: this gateway serves on");
        equipped.inspect_err(log).ok()
    }
}

async fn takes_over(successor: Option<&Successor>) -> io::Result<()> {
    let Some(successor) = successor else { return pending().await };
    timeout_at(successor.since() + START, successor.takes_over()).await?
}

async fn accept(listener: &UnixListener) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a successor");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Waits until a process asks for the sockets.
async fn greet(stream: UnixStream) -> io::Result<UnixStream> {
    check_user(&stream)?;
    match timeout(PATIENCE, receive(&stream)).await?? {
        (VERSION, _) => Ok(stream),
        _ => {
            send(&stream, VERSION, None).await?;
            Err(io::Error::other("it speaks another version"))
        }
    }
}
