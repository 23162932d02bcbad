//! HTTP/2 frames on a socket, for clients and servers that break rules.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::soon;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const ACK: u8 = 1;

pub const NO_ERROR: u32 = 0;
pub const PROTOCOL_ERROR: u32 = 1;
pub const FLOW_CONTROL_ERROR: u32 = 3;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// SETTINGS_HEADER_TABLE_SIZE of 0, so that each header block can be decoded without state.
const NO_TABLE: [u8; 6] = [0, 1, 0, 0, 0, 0];

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// One end of an HTTP/2 connection.
#[derive(Debug)]
pub struct Frames {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Frame {
    pub fn bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(payload.len()).expect("a short payload").to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// Returns the number at this offset of the payload. The error code is at 0 in RST_STREAM and at 4 in GOAWAY.
    pub fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }

    pub fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    /// Returns the status of a response, which must be the first field of its HEADERS.
    pub fn status(&self) -> u16 {
        let size_updates = self.payload.iter().take_while(|byte| **byte & 0xe0 == 0x20).count();
        let block = &self.payload[size_updates..];
        match block {
            [byte @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(byte - 0x88)],
            [0x08 | 0x18 | 0x48, length, text @ ..] if *length & 0x80 == 0 => {
                String::from_utf8_lossy(&text[..usize::from(*length)]).parse().expect("a status")
            }
            [0x08 | 0x18 | 0x48, length, text @ ..] => digits(&text[..usize::from(length & 0x7f)]),
            _ => panic!("no status: {block:?}"),
        }
    }
}

/// Decodes three digits in the Huffman code of RFC 7541, appendix B.
fn digits(bytes: &[u8]) -> u16 {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0, |number, bit| number * 2 + u16::from(*bit));
    let (mut value, mut at) = (0, 0);
    for _ in 0..3 {
        let short = number(&bits[at..at + 5]);
        let (digit, length) = if short < 3 { (short, 5) } else { (number(&bits[at..at + 6]) - 0x19 + 3, 6) };
        value = value * 10 + digit;
        at += length;
    }
    value
}

/// Encodes fields as literals without indexing.
pub fn fields<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            match text.len() {
                short @ 0..127 => block.push(u8::try_from(short).expect("short")),
                long => {
                    block.push(127);
                    let mut rest = long - 127;
                    while rest >= 128 {
                        block.push(u8::try_from(rest % 128 + 128).expect("a byte"));
                        rest /= 128;
                    }
                    block.push(u8::try_from(rest).expect("a byte"));
                }
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

/// Returns the pseudo-header fields of a request.
pub fn request_fields<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", method), (":scheme", "http"), (":authority", "test.example"), (":path", path)]
}

impl Frames {
    /// Connects and sends the preface with these settings.
    pub async fn connect(address: SocketAddr, settings: &[u8]) -> Self {
        let stream = soon(TcpStream::connect(address)).await.expect("should connect");
        stream.set_nodelay(true).expect("no delay");
        let mut client = Self { stream, buffer: Vec::new() };
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        client.frame(SETTINGS, 0, 0, &[&NO_TABLE, settings].concat()).await;
        client
    }

    /// Serves a connection: reads the client's preface and sends these settings.
    pub async fn accept(stream: TcpStream, settings: &[u8]) -> Self {
        let mut server = Self { stream, buffer: Vec::new() };
        server.fill(24).await.expect("a preface");
        assert_eq!(server.buffer.drain(..24).collect::<Vec<_>>(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        server.frame(SETTINGS, 0, 0, &[&NO_TABLE, settings].concat()).await;
        server
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.stream.write_all(bytes.as_ref())).await.expect("should write");
    }

    /// Sends bytes. Returns `false` if the peer has closed the connection.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        soon(self.stream.write_all(bytes.as_ref())).await.is_ok()
    }

    pub async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.send(Frame::bytes(kind, flags, stream, payload)).await;
    }

    /// Sends the HEADERS of a request with further fields.
    pub async fn open(&mut self, stream: u32, method: &str, path: &str, more: &[(&str, &str)], ends: bool) {
        let block = fields(request_fields(method, path).into_iter().chain(more.iter().copied()));
        self.frame(HEADERS, END_HEADERS | u8::from(ends), stream, &block).await;
    }

    pub async fn get(&mut self, stream: u32, path: &str) {
        self.open(stream, "GET", path, &[], true).await;
    }

    pub async fn reset(&mut self, stream: u32) {
        self.frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()).await;
    }

    /// Reads the next frame. Returns an error if the peer has closed the connection.
    pub async fn next(&mut self) -> io::Result<Frame> {
        self.fill(9).await?;
        let length = usize::from(self.buffer[0]) << 16 | usize::from(self.buffer[1]) << 8 | usize::from(self.buffer[2]);
        self.fill(9 + length).await?;
        let bytes: Vec<u8> = self.buffer.drain(..9 + length).collect();
        let stream = u32::from_be_bytes(bytes[5..9].try_into().expect("four bytes"));
        Ok(Frame { kind: bytes[3], flags: bytes[4], stream, payload: bytes[9..].to_vec() })
    }

    /// Reads until a frame matches, and discards the frames before it.
    pub async fn find(&mut self, mut like: impl FnMut(&Frame) -> bool) -> Frame {
        loop {
            let frame = self.next().await.expect("the connection ended before a frame matched");
            if like(&frame) {
                return frame;
            }
        }
    }

    /// Reads the frames of a stream until END_STREAM or RST_STREAM, without WINDOW_UPDATE.
    pub async fn rest_of_stream(&mut self, stream: u32) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            let frame = self.find(|frame| frame.stream == stream && frame.kind != WINDOW_UPDATE).await;
            let ends = frame.ends_stream() || frame.kind == RST_STREAM;
            frames.push(frame);
            if ends {
                return frames;
            }
        }
    }

    /// Reads until the response of a stream begins, and returns its status.
    pub async fn status(&mut self, stream: u32) -> u16 {
        self.find(|frame| (frame.stream, frame.kind) == (stream, HEADERS)).await.status()
    }

    /// Reads until the stream is reset, and returns the error code.
    pub async fn reset_code(&mut self, stream: u32) -> u32 {
        self.find(|frame| (frame.stream, frame.kind) == (stream, RST_STREAM)).await.number(0)
    }

    /// Reads until the connection ends, and returns the error code of its GOAWAY.
    pub async fn goaway_code(&mut self) -> u32 {
        let reason = self.find(|frame| frame.kind == GOAWAY).await.number(4);
        while self.next().await.is_ok() {}
        reason
    }

    async fn fill(&mut self, count: usize) -> io::Result<()> {
        while self.buffer.len() < count {
            if soon(self.stream.read_buf(&mut self.buffer)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}
