//! The side of the new process.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::listener::Handover;
use super::state::{last_state, receive_state};
use super::wire::{
    END, OF_CLIENTS, OF_SUCCESSORS, PATIENCE, REFUSES, RELEASES, STATE, TAKES_OVER, VERSION, WITH_FILE, check_user,
    invalid, is_end, receive, receive_now, send,
};
use crate::gateway::socket_file::{Listening, OWNER_ALONE, SocketFile};
use crate::store::transfer::StoreState;

/// The pause before another try if the gateway there ends the connection at once: it is being succeeded, or ends.
const RETRY: Duration = Duration::from_millis(50);

/// The gateway whose place this one takes.
#[derive(Debug)]
pub(crate) struct Predecessor {
    stream: UnixStream,
    sockets: Vec<Listening>,
    of_successors: Socket,
    own_file: Arc<SocketFile>,
    /// All files of its sockets, also of those that the new rules do not name.
    files: Vec<Arc<SocketFile>>,
}

/// The predecessor's reply to a successor that may serve.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It drains. Without a state, it could not send one that this gateway can read.
    Releases(Option<StoreState>),
    /// It had ended before it replied.
    HasEnded,
    /// It did not reply in time.
    Fails(io::Error),
}

/// The predecessor while it drains.
#[derive(Debug)]
pub(crate) struct Draining(UnixStream);

// === impl Draining ===

impl Draining {
    /// Waits until it has ended; returns the debts that it has sent, if there are any.
    pub(crate) async fn end(self) -> Option<StoreState> {
        last_state(&self.0).await
    }
}

// === impl Predecessor ===

impl Predecessor {
    /// Asks the gateway that listens at `path`, if there is one, for its sockets.
    ///
    /// # Errors
    /// The process there is another user's, or does not hand over.
    pub(crate) async fn ask(path: &Path) -> io::Result<Option<Self>> {
        let asking = async {
            loop {
                match Self::try_to_ask(path).await {
                    Err(error) if is_end(&error) => sleep(RETRY).await,
                    asked => return asked,
                }
            }
        };
        let late = |_| io::Error::new(ErrorKind::TimedOut, "the process there does not hand over in time");
        timeout(PATIENCE, asking).await.map_err(late)?
    }

    async fn try_to_ask(path: &Path) -> io::Result<Option<Self>> {
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
    /// The process there does not hand over.
    pub(super) async fn receive(stream: UnixStream, path: PathBuf) -> io::Result<Self> {
        check_user(&stream)?;
        // If the process there has sent a message and ended, the message is still there to read.
        _ = send(&stream, VERSION, None).await;
        if receive(&stream).await?.0 != VERSION {
            return Err(invalid("the gateway there speaks another version"));
        }
        let (mut sockets, mut of_successors) = (Vec::new(), None);
        loop {
            match receive(&stream).await? {
                (OF_CLIENTS, Some(socket)) => sockets.push(Listening { socket, file: None }),
                (WITH_FILE, Some(socket)) => {
                    let path = socket.local_addr()?.as_pathname().map(Path::to_owned);
                    let file = path.map(|path| Arc::new(SocketFile::of_another(&path)));
                    sockets.push(Listening { socket, file });
                }
                (OF_SUCCESSORS, Some(socket)) => of_successors = Some(socket),
                (END, None) => break,
                (REFUSES, None) => return Err(refused()),
                _ => return Err(invalid("the process there hands over something else")),
            }
        }
        let of_successors = of_successors.ok_or_else(|| invalid("the gateway there keeps its own socket"))?;
        let own_file = Arc::new(SocketFile::of_another(&path));
        own_file.request_mode(OWNER_ALONE);
        let files =
            sockets.iter().filter_map(|listening| listening.file.clone()).chain([Arc::clone(&own_file)]).collect();
        Ok(Self { stream, sockets, of_successors, own_file, files })
    }

    /// The sockets that clients and operators connect to.
    pub(crate) fn take_sockets(&mut self) -> Vec<Listening> {
        std::mem::take(&mut self.sockets)
    }

    /// Requests the release, since this gateway can serve. Then owns all files, and removes the files of sockets that it does
    /// not serve. Returns the socket for this gateway's own successor, and the predecessor as it drains, too.
    ///
    /// # Errors
    /// The predecessor serves on, so this gateway must not.
    pub(crate) async fn take_over(self) -> io::Result<(Answer, io::Result<Handover>, Draining)> {
        let answer = self.ask_for_release().await?;
        self.claim_files();
        Ok((answer, Handover::new(self.of_successors, Some(self.own_file)), Draining(self.stream)))
    }

    async fn ask_for_release(&self) -> io::Result<Answer> {
        // If the predecessor has ended the connection, its last message may still be there to read.
        _ = timeout(PATIENCE, send(&self.stream, TAKES_OVER, None)).await;
        let mut state = None;
        match timeout(PATIENCE, self.reply(&mut state)).await.unwrap_or_else(|late| Err(late.into())) {
            Ok((RELEASES, _)) => Ok(Answer::Releases(state)),
            Ok((REFUSES, _)) => Err(refused()),
            Ok(_) => Ok(Answer::Fails(invalid("the process there sends something else"))),
            Err(error) if is_end(&error) => Ok(Answer::HasEnded),
            Err(error) => Ok(Answer::Fails(error)),
        }
    }

    /// Receives the reply, and the state of the store before it.
    async fn reply(&self, state: &mut Option<StoreState>) -> io::Result<(u8, Option<Socket>)> {
        loop {
            match receive(&self.stream).await? {
                (STATE, _) => *state = receive_state(&self.stream).await?,
                reply => return Ok(reply),
            }
        }
    }

    /// Does not take over. If the predecessor has ended in the meantime, removes the files that it left to this process.
    pub(crate) fn give_up(self) {
        if matches!(receive_now(&self.stream), Err(error) if is_end(&error)) {
            self.claim_files();
        }
    }

    fn claim_files(&self) {
        for file in &self.files {
            if let Err(error) = file.claim() {
                tracing::warn!(path = %file.path().display(), %error, "cannot own the file of a socket");
            }
        }
    }
}

fn refused() -> io::Error {
    io::Error::other("the gateway there serves on: another successor has connected, or this one has taken too long")
}
