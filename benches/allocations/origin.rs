//! An origin that allocates nothing while it answers.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::Result;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: bench\r\nDate: Sat, 21 Nov 2026 10:00:00 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: 13\r\nConnection: keep-alive\r\n\r\nhello, world!";

/// How its answer ends.
pub(crate) const END: &[u8] = b"hello, world!";

/// Answers on a port of its own for as long as the process lives.
pub(crate) fn start() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            // A client that leaves ends its own thread.
            thread::spawn(move || _ = answer(stream));
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 4096];
    let mut end = 0;
    loop {
        match stream.read(&mut buffer[end..])? {
            0 => return Ok(()),
            count => end += count,
        }
        if buffer[..end].ends_with(b"\r\n\r\n") {
            stream.write_all(ANSWER)?;
            end = 0;
        }
    }
}
