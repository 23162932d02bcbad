//! The upstream of the gateway that is timed: 100 bytes to everybody. It is served by the thread that sends the requests,
//! so that both take as little as can be of the processors that they share with the gateway.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use super::Result;

pub(super) struct Upstream {
    listener: TcpListener,
    connections: Vec<TcpStream>,
}

/// More than is ever sent on a connection before it is answered.
const ROOM: usize = 4096;

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

    /// A new connection, with its number, if there is one.
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

    /// Answers what has come on the connection of this number, and returns it if that is its end. Heads are short, and
    /// come whole.
    pub(super) fn answer(&mut self, number: usize) -> Result<Option<&TcpStream>> {
        let Some(stream) = self.connections.get_mut(number) else { return Ok(None) };
        let mut room = [0; ROOM];
        let request = match stream.read(&mut room) {
            Ok(0) => return Ok(Some(stream)),
            Ok(read) => &room[..read],
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if !request.ends_with(END_OF_HEAD) {
            return Err("a request to the upstream in pieces, or with a body".into());
        }
        stream.write_all(ANSWER)?;
        Ok(None)
    }
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\n\
    0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
