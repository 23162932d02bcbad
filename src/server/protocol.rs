//! HTTP/1 or HTTP/2, told by the first three bytes.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    /// With prior knowledge (RFC 9113 section 3.3).
    Http2,
}

/// The method that no client of HTTP/1 will ever use (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI";

/// A socket with a byte to peek at stays readable, so the wait for the next one is a wait.
const PATIENCE: Duration = Duration::from_millis(2);

/// Looks at the first bytes and leaves them where they are; nothing if the client closed without a word.
pub(crate) async fn detect(stream: &TcpStream) -> io::Result<Option<Protocol>> {
    let mut start = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut start).await?;
        match start.get(..count).unwrap_or_default() {
            [] => return Ok(None),
            PREFACE => return Ok(Some(Protocol::Http2)),
            part if PREFACE.starts_with(part) => sleep(PATIENCE).await,
            _ => return Ok(Some(Protocol::Http1)),
        }
    }
}
