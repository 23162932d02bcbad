//! A connection that carries decisions, and nothing but these: no task of its own, no channels, no parts of a general
//! client, which together cost more than a forwarded request. Whoever has it writes and reads.
//!
//! Everything else that is asked of a Redis goes through the client library.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use deadpool_redis::redis::{ConnectionAddr, IntoConnectionInfo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::resp::{Command, Reply};

/// A connection. What is written leaves with the next flush.
pub(super) struct Wire {
    stream: Box<dyn Stream>,
    unsent: Vec<u8>,
    /// So many of the unsent bytes are sent already.
    sent: usize,
    received: Vec<u8>,
    /// Where what nobody has taken yet begins and ends in what was received.
    begin: usize,
    end: usize,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Room for what is received, at first: the answers to some hundred requests.
const ROOM: usize = 4 * 1024;

impl Wire {
    /// Connects, authenticates, and selects the database. Redis has answered by then: one that has too many clients accepts
    /// another, and closes it with its first words.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub(super) async fn open(url: &str) -> Result<Self, String> {
        let info = url.into_connection_info().map_err(|error| error.to_string())?;
        let mut wire = Self::new(dial(info.addr()).await.map_err(|error| error.to_string())?);
        let settings = info.redis_settings();
        match (settings.username(), settings.password()) {
            (Some(username), Some(password)) => wire.greet(&["AUTH", username, password]).await?,
            (None, Some(password)) => wire.greet(&["AUTH", password]).await?,
            (_, None) => {}
        }
        if settings.db() != 0 {
            wire.greet(&["SELECT", &settings.db().to_string()]).await?;
        }
        match wire.greet(&["PING"]).await {
            // It answers, though this user may not ask for that.
            Err(error) if !error.starts_with("NOPERM ") => Err(error),
            _ => Ok(wire),
        }
    }

    fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, unsent: Vec::new(), sent: 0, received: vec![0; ROOM], begin: 0, end: 0 }
    }

    async fn greet(&mut self, words: &[&str]) -> Result<(), String> {
        let mut command = Command::begin(self.unsent(), words.len());
        words.iter().for_each(|word| _ = command.arg(word.as_bytes()));
        let asked = poll_fn(|cx| {
            _ = self.poll_flush(cx)?;
            self.poll_reply(cx)
        });
        asked.await.map_err(|error| error.to_string())?;
        match self.take_reply() {
            Some(Reply::Error(word, rest)) => Err(format!("{word} {rest}")),
            _ => Ok(()),
        }
    }

    /// Where commands are written.
    pub(super) fn unsent(&mut self) -> &mut Vec<u8> {
        &mut self.unsent
    }

    /// Sends what was written.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.unsent.len() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.unsent[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        self.unsent.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Waits for a whole reply to [take](Self::take_reply).
    ///
    /// # Errors
    /// The connection broke, or what came is no reply.
    pub(super) fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match Reply::read(&self.received[self.begin..self.end]) {
                Ok(Some(_)) => return Poll::Ready(Ok(())),
                Ok(None) => self.make_room(),
                Err(_) => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            }
            let mut room = ReadBuf::new(&mut self.received[self.end..]);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
            match room.filled().len() {
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                more => self.end += more,
            }
        }
    }

    /// Takes the reply that has come.
    pub(super) fn take_reply(&mut self) -> Option<Reply<'_>> {
        let (reply, rest) = Reply::read(&self.received[self.begin..self.end]).ok()??;
        self.begin = self.end - rest.len();
        Some(reply)
    }

    /// Room for more behind what is there: all that nothing is in, or more of it.
    fn make_room(&mut self) {
        self.received.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        if self.end == self.received.len() {
            self.received.resize(2 * self.end, 0);
        }
    }
}

async fn dial(address: &ConnectionAddr) -> io::Result<Box<dyn Stream>> {
    match address {
        ConnectionAddr::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
        ConnectionAddr::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "neither TCP nor a Unix socket")),
    }
}
