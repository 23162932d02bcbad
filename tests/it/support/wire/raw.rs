//! HTTP/1 bytes on a socket, for clients and servers.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::soon;

/// One end of a connection: plaintext by default, or another stream `S`.
#[derive(Debug)]
pub struct Raw<S = TcpStream> {
    pub stream: S,
    buffer: Vec<u8>,
}

/// A complete message.
#[derive(Debug, Default, Clone)]
pub struct Message {
    /// The request line or status line.
    pub start: String,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl Message {
    /// Returns the status of a response.
    pub fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line")
    }

    /// Returns the values of a field, joined with ` | `.
    pub fn field(&self, name: &str) -> Option<String> {
        let values: Vec<_> = self
            .fields
            .iter()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect();
        (!values.is_empty()).then(|| values.join(" | "))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Raw {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::new(soon(TcpStream::connect(address)).await.expect("should connect"))
    }

    /// Connects from another loopback address.
    pub async fn connect_from(source: &str, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(source.parse().expect("an address"), 0)).expect("should bind");
        Self::new(soon(socket.connect(address)).await.expect("should connect"))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sending = async {
            self.stream.write_all(bytes.as_ref()).await?;
            self.stream.flush().await
        };
        soon(sending).await.expect("should write");
    }

    /// Sends a request and reads the response.
    pub async fn ask(&mut self, request: impl AsRef<[u8]>) -> Message {
        let bodiless = request.as_ref().starts_with(b"HEAD ");
        self.send(request).await;
        self.response(bodiless).await
    }

    /// Reads this number of responses with bodies.
    pub async fn responses(&mut self, count: usize) {
        for _ in 0..count {
            self.response(false).await;
        }
    }

    /// Reads a response, and discards informational responses except 100 and 101.
    pub async fn response(&mut self, bodiless: bool) -> Message {
        loop {
            let answer = self.try_message(bodiless, true).await.expect("should be a complete response");
            if !matches!(answer.status(), 102..200) {
                return answer;
            }
        }
    }

    /// Reads a request. Returns `None` if the peer has closed the connection.
    pub async fn request(&mut self) -> Option<Message> {
        self.try_message(false, false).await.ok()
    }

    /// Reads a complete message: a response if `answer` is set, or a request.
    pub async fn try_message(&mut self, bodiless: bool, answer: bool) -> io::Result<Message> {
        let mut message = self.head().await?;
        self.body(&mut message, bodiless, answer).await?;
        Ok(message)
    }

    /// Reads the body of a message whose head was read.
    pub async fn body(&mut self, message: &mut Message, bodiless: bool, answer: bool) -> io::Result<()> {
        let status = if answer { message.status() } else { 0 };
        if bodiless || matches!(status, 100..200 | 204 | 304) {
            return Ok(());
        }
        if message.field("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            self.chunked(message).await?;
        } else if let Some(length) = message.field("content-length") {
            message.body = self.exactly(length.parse().expect("one length")).await?;
        } else if answer {
            message.body = self.rest().await?;
        }
        Ok(())
    }

    /// Reads the start line and the fields of a message.
    pub async fn head(&mut self) -> io::Result<Message> {
        let start = self.line().await?;
        Ok(Message { start, fields: self.fields().await?, ..Message::default() })
    }

    async fn fields(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.line().await?;
            match line.split_once(':') {
                Some((name, value)) => fields.push((name.to_owned(), value.trim().to_owned())),
                None if line.is_empty() => return Ok(fields),
                None => panic!("a field without a colon: {line:?}"),
            }
        }
    }

    async fn chunked(&mut self, message: &mut Message) -> io::Result<()> {
        loop {
            let chunk = self.chunk().await?;
            if chunk.is_empty() {
                message.trailers = self.fields().await?;
                return Ok(());
            }
            message.body.extend(chunk);
        }
    }

    /// Reads one chunk. The last chunk is empty; its trailers are not read.
    pub async fn chunk(&mut self) -> io::Result<Vec<u8>> {
        let size = self.line().await?;
        let size = usize::from_str_radix(&size, 16).expect("a chunk size");
        if size == 0 {
            return Ok(Vec::new());
        }
        let chunk = self.exactly(size).await?;
        assert_eq!(self.line().await?, "");
        Ok(chunk)
    }

    /// Reads a line that ends in CR LF.
    pub async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            self.more().await?;
        }
    }

    pub async fn exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < count {
            self.more().await?;
        }
        Ok(self.buffer.drain(..count).collect())
    }

    /// Waits until the peer closes the connection. Panics if it sends a byte; returns an error for a reset.
    pub async fn closed(&mut self) -> io::Result<()> {
        assert!(self.buffer.is_empty(), "unread: {:?}", String::from_utf8_lossy(&self.buffer));
        match self.fill().await? {
            0 => Ok(()),
            _ => panic!("unexpected: {:?}", String::from_utf8_lossy(&self.buffer)),
        }
    }

    /// Reads until the peer closes the connection.
    pub async fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.fill().await? > 0 {}
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Reads until the peer closes the connection, without a timeout. Returns the number of bytes.
    pub async fn take_all(&mut self) -> io::Result<usize> {
        let mut count = 0;
        loop {
            self.buffer.clear();
            match self.stream.read_buf(&mut self.buffer).await? {
                0 => return Ok(count),
                more => count += more,
            }
        }
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.fill().await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        soon(self.stream.read_buf(&mut self.buffer)).await
    }
}
