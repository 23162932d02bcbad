//! An origin that does not allocate while it responds.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::Result;

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: bench\r\nDate: Sat, 21 Nov 2026 10:00:00 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: 13\r\nConnection: keep-alive\r\n\r\nhello, world!";

/// The last bytes of the response.
pub(crate) const END: &[u8] = b"hello, world!";

/// Starts the origin on a free port until the process exits.
pub(crate) fn start() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            // An error ends only the thread of this client.
            thread::spawn(move || _ = serve(stream));
        }
    });
    Ok(address)
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 4096];
    let mut end = 0;
    loop {
        match stream.read(&mut buffer[end..])? {
            0 => return Ok(()),
            count => end += count,
        }
        if buffer[..end].ends_with(b"\r\n\r\n") {
            stream.write_all(RESPONSE)?;
            end = 0;
        }
    }
}
