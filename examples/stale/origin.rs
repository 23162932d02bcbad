//! Upstreams that close connections without having said so.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// When it closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// After a tenth of its answers.
    Closes,
    /// When no request has come for 0 to 5 ms.
    Tires,
    /// After a tenth of its answers, with a reset.
    Resets,
}

/// Numbers that look like chance, and are the same each time.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
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

pub(crate) async fn start(habit: Habit) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        for seed in 1.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            tokio::spawn(serve(stream, habit, Chance::new(seed)));
        }
    });
    Ok(address)
}

async fn serve(mut stream: TcpStream, habit: Habit, mut chance: Chance) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = Vec::new();
    for answered in 0.. {
        let patience = match habit {
            Habit::Tires if answered > 0 => Duration::from_micros(chance.below(5000)),
            _ => Duration::from_secs(10),
        };
        while !head.ends_with(b"\r\n\r\n") {
            // Only what has not begun is given up.
            let read = stream.read_buf(&mut head);
            if timeout(patience, read).await?? == 0 {
                return Ok(());
            }
        }
        head.clear();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await?;
        if habit != Habit::Tires && chance.below(10) == 0 {
            if habit == Habit::Resets {
                SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            }
            return Ok(());
        }
    }
    Ok(())
}
