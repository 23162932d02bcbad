//! An HTTP/1 client that reuses its connection.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends a GET request with these header fields. Reuses the idle connection or opens one, and keeps it if the response
/// is complete. Returns status and body.
pub async fn get(
    idle: &mut Option<TcpStream>,
    address: SocketAddr,
    path: &str,
    fields: &str,
) -> io::Result<(u16, String)> {
    let mut stream = match idle.take() {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            stream
        }
    };
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").as_bytes()).await?;
    let (response, is_last) = read_response(&mut stream).await?;
    *idle = (!is_last).then_some(stream);
    Ok(response)
}

/// Reads a response. Returns its status and body, and whether the server closes the connection.
async fn read_response(stream: &mut TcpStream) -> io::Result<((u16, String), bool)> {
    let mut buffer = Vec::with_capacity(1024);
    let head = loop {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
    let number = |after: &str| {
        let rest = text.split_once(after).map(|(_, rest)| rest.trim_start());
        rest.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<usize>().ok())
    };
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let length = number("\r\ncontent-length:").ok_or_else(invalid)?;
    while buffer.len() < head + length {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let status = number("http/1.1 ").and_then(|status| u16::try_from(status).ok()).ok_or_else(invalid)?;
    Ok(((status, String::from_utf8_lossy(&buffer[head..]).into_owned()), text.contains("\r\nconnection: close\r\n")))
}
