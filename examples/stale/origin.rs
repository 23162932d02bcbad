//! Upstreams that close connections without an announcement.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// When and how the upstream closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// Closes after a tenth of the responses.
    Closes,
    /// Closes after 0 to 5 ms without a request.
    Idle,
    /// Resets after a tenth of the responses.
    Resets,
}

/// Pseudo-random numbers, the same in each run.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

pub(crate) async fn start(mode: CloseMode) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        for seed in 1.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            tokio::spawn(serve(stream, mode, Random::new(seed)));
        }
    });
    Ok(address)
}

async fn serve(mut stream: TcpStream, mode: CloseMode, mut random: Random) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = Vec::new();
    for responses in 0.. {
        let idle_timeout = match mode {
            CloseMode::Idle if responses > 0 => Duration::from_micros(random.below(5000)),
            _ => Duration::from_secs(10),
        };
        while !head.ends_with(b"\r\n\r\n") {
            // Closes only if the next request has not started.
            let read = stream.read_buf(&mut head);
            if timeout(idle_timeout, read).await?? == 0 {
                return Ok(());
            }
        }
        head.clear();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await?;
        if mode != CloseMode::Idle && random.below(10) == 0 {
            if mode == CloseMode::Resets {
                SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            }
            return Ok(());
        }
    }
    Ok(())
}
