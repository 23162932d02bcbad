//! The new gateway's side of a handover: requests the sockets from its predecessor and takes over.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::listener::Handover;
use super::state::{receive_last_state, receive_state};
use super::wire::{
    END, HANDOVER_SOCKET, LISTENER, LISTENER_WITH_FILE, MESSAGE_TIMEOUT, REFUSE, RELEASE, STATE, TAKE_OVER, VERSION,
    check_user, invalid, is_closed, receive, receive_now, send,
};
use crate::gateway::socket_file::{ListeningSocket, OWNER_ONLY, SocketFile};
use tidegate_store::transfer::StoreState;

/// The pause before a retry if the predecessor closes the connection at once, because it is already ending.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// The old gateway, from which this one takes over.
#[derive(Debug)]
pub(crate) struct Predecessor {
    stream: UnixStream,
    sockets: Vec<ListeningSocket>,
    handover_socket: Socket,
    handover_file: Arc<SocketFile>,
    /// The files of all its sockets, including those that the new rule file does not use.
    files: Vec<Arc<SocketFile>>,
}

/// The predecessor's reply to the request to take over. In each case, this gateway may serve.
#[derive(Debug)]
pub(crate) enum TakeOverReply {
    /// The predecessor drains. `None` if it sent no state that this gateway can read.
    Released(Option<StoreState>),
    /// The predecessor had ended before it replied.
    Ended,
    /// The predecessor sent no valid reply in time.
    Failed(io::Error),
}

/// The predecessor while it drains.
#[derive(Debug)]
pub(crate) struct DrainingPredecessor(UnixStream);

// === impl DrainingPredecessor ===

impl DrainingPredecessor {
    /// Waits until the predecessor has ended. Returns the debts that it sent at its end, if there are any.
    pub(crate) async fn wait_for_end(self) -> Option<StoreState> {
        receive_last_state(&self.0).await
    }
}

// === impl Predecessor ===

impl Predecessor {
    /// Requests the sockets from the gateway that listens on the Unix socket `path`. Returns `None` if no process
    /// listens.
    ///
    /// # Errors
    /// The process belongs to another user, or does not hand over.
    pub(crate) async fn connect(path: &Path) -> io::Result<Option<Self>> {
        let attempts = async {
            loop {
                match Self::try_to_connect(path).await {
                    Err(error) if is_closed(&error) => sleep(RETRY_DELAY).await,
                    result => return result,
                }
            }
        };
        let late = |_| io::Error::new(ErrorKind::TimedOut, "the running gateway did not send its sockets in time");
        timeout(MESSAGE_TIMEOUT, attempts).await.map_err(late)?
    }

    async fn try_to_connect(path: &Path) -> io::Result<Option<Self>> {
        let stream = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        Self::receive(stream, path.to_owned()).await.map(Some)
    }

    /// Receives the sockets.
    ///
    /// # Errors
    /// The other process does not hand over.
    pub(super) async fn receive(stream: UnixStream, path: PathBuf) -> io::Result<Self> {
        check_user(&stream)?;
        // If the other process has sent a message and ended, the message can still be read.
        _ = send(&stream, VERSION, None).await;
        if receive(&stream).await?.0 != VERSION {
            return Err(invalid("the running gateway uses another version of the handover protocol"));
        }
        let (mut sockets, mut handover_socket) = (Vec::new(), None);
        loop {
            match receive(&stream).await? {
                (LISTENER, Some(socket)) => sockets.push(ListeningSocket { socket, file: None }),
                (LISTENER_WITH_FILE, Some(socket)) => {
                    let path = socket.local_addr()?.as_pathname().map(Path::to_owned);
                    let file = path.map(|path| Arc::new(SocketFile::unowned(&path)));
                    sockets.push(ListeningSocket { socket, file });
                }
                (HANDOVER_SOCKET, Some(socket)) => handover_socket = Some(socket),
                (END, None) => break,
                (REFUSE, None) => return Err(refused()),
                _ => return Err(invalid("the running process sent an unexpected message")),
            }
        }
        let handover_socket =
            handover_socket.ok_or_else(|| invalid("the running gateway did not send its handover socket"))?;
        let handover_file = Arc::new(SocketFile::unowned(&path));
        handover_file.request_mode(OWNER_ONLY);
        let files =
            sockets.iter().filter_map(|listening| listening.file.clone()).chain([Arc::clone(&handover_file)]).collect();
        Ok(Self { stream, sockets, handover_socket, handover_file, files })
    }

    /// Takes the listening sockets for clients and operators.
    pub(crate) fn take_sockets(&mut self) -> Vec<ListeningSocket> {
        std::mem::take(&mut self.sockets)
    }

    /// Takes over when this gateway is ready: requests the release, and claims all files. The files of unused sockets
    /// are removed. Returns the reply, the handover socket for this gateway's own successor, and the draining
    /// predecessor.
    ///
    /// # Errors
    /// The predecessor continues to serve, so this gateway must not serve.
    pub(crate) async fn take_over(self) -> io::Result<(TakeOverReply, io::Result<Handover>, DrainingPredecessor)> {
        let reply = self.request_release().await?;
        self.claim_files();
        Ok((reply, Handover::new(self.handover_socket, Some(self.handover_file)), DrainingPredecessor(self.stream)))
    }

    async fn request_release(&self) -> io::Result<TakeOverReply> {
        // If the predecessor has ended the connection, its last message may still be readable.
        _ = timeout(MESSAGE_TIMEOUT, send(&self.stream, TAKE_OVER, None)).await;
        let mut state = None;
        match timeout(MESSAGE_TIMEOUT, self.receive_reply(&mut state)).await.unwrap_or_else(|late| Err(late.into())) {
            Ok((RELEASE, _)) => Ok(TakeOverReply::Released(state)),
            Ok((REFUSE, _)) => Err(refused()),
            Ok(_) => Ok(TakeOverReply::Failed(invalid("the running process sent an unexpected message"))),
            Err(error) if is_closed(&error) => Ok(TakeOverReply::Ended),
            Err(error) => Ok(TakeOverReply::Failed(error)),
        }
    }

    /// Receives the reply, and the state of the store if it precedes the reply.
    async fn receive_reply(&self, state: &mut Option<StoreState>) -> io::Result<(u8, Option<Socket>)> {
        loop {
            match receive(&self.stream).await? {
                (STATE, _) => *state = receive_state(&self.stream).await?,
                reply => return Ok(reply),
            }
        }
    }

    /// Abandons the handover. If the predecessor has ended in the meantime, removes the files, which this process then
    /// owns.
    pub(crate) fn give_up(self) {
        if matches!(receive_now(&self.stream), Err(error) if is_closed(&error)) {
            self.claim_files();
        }
    }

    fn claim_files(&self) {
        for file in &self.files {
            if let Err(error) = file.claim() {
                tracing::warn!(path = %file.path().display(), %error, "cannot claim the file of a Unix socket");
            }
        }
    }
}

fn refused() -> io::Error {
    io::Error::other(
        "the running gateway continues to serve: a newer successor has connected, or this one took too long",
    )
}
