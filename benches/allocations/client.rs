//! A client that does not allocate while it sends requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::Result;

const REQUEST: &[u8] =
    b"GET /things/7?page=2 HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n";

/// One keep-alive connection.
pub(crate) struct Client {
    stream: TcpStream,
    buffer: [u8; 4096],
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: [0; 4096] })
    }

    /// Sends `times` requests, one after another.
    pub(crate) fn send_requests(&mut self, times: u32) -> Result<()> {
        for _ in 0..times {
            self.stream.write_all(REQUEST)?;
            self.read_response()?;
        }
        Ok(())
    }

    /// Reads until the end of the origin's body.
    fn read_response(&mut self) -> Result<()> {
        let mut end = 0;
        while !self.buffer[..end].ends_with(super::origin::END) {
            match self.stream.read(&mut self.buffer[end..])? {
                0 => return Err("the response is incomplete".into()),
                count => end += count,
            }
        }
        let is_ok = self.buffer.starts_with(b"HTTP/1.1 200");
        if is_ok { Ok(()) } else { Err(String::from_utf8_lossy(&self.buffer[..end]).into()) }
    }
}
