//! The upstream of the measured gateway. It sends 100 bytes as each response. The thread that sends the requests also
//! serves the upstream, so that both use as little as possible of the processors that they share with the gateway.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use super::Result;

pub(super) struct Upstream {
    listener: TcpListener,
    connections: Vec<TcpStream>,
}

/// The size of the read buffer, larger than any request.
const BUFFER_SIZE: usize = 4096;

const END_OF_HEAD: &[u8] = b"\r\n\r\n";

impl Upstream {
    pub(super) fn listen(port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, connections: Vec::new() })
    }

    pub(super) fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// Accepts a connection. Returns its number and socket, or `None` if there is no new connection.
    pub(super) fn accept(&mut self) -> Result<Option<(usize, &TcpStream)>> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let number = self.connections.len();
        self.connections.push(stream);
        Ok(self.connections.last().map(|stream| (number, stream)))
    }

    /// Responds to a request on connection `number`. Returns the socket if the client has closed it. Request heads are
    /// short, and arrive in one piece.
    pub(super) fn respond(&mut self, number: usize) -> Result<Option<&TcpStream>> {
        let Some(stream) = self.connections.get_mut(number) else { return Ok(None) };
        let mut buffer = [0; BUFFER_SIZE];
        let request = match stream.read(&mut buffer) {
            Ok(0) => return Ok(Some(stream)),
            Ok(read) => &buffer[..read],
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if !request.ends_with(END_OF_HEAD) {
            return Err("the request to the upstream is fragmented or has a body".into());
        }
        stream.write_all(RESPONSE)?;
        Ok(None)
    }
}

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\n\
    0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
