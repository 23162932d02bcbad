//! Clients that ask one after the other, each on one connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::origin::Chance;

/// How much is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) connections: u16,
    pub(crate) lasts: Duration,
    /// Whether each client waits for up to 5 ms before it asks again.
    pub(crate) pauses: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) good: u64,
    pub(crate) bad: u64,
    pub(crate) none: u64,
}

impl Load {
    pub(crate) async fn ask(self, gateway: SocketAddr) -> Answers {
        let mut clients = tokio::task::JoinSet::new();
        for seed in 1..=u64::from(self.connections) {
            clients.spawn(self.client(gateway, Chance::new(seed)));
        }
        let mut sum = Answers::default();
        for Answers { good, bad, none } in clients.join_all().await {
            (sum.good, sum.bad, sum.none) = (sum.good + good, sum.bad + bad, sum.none + none);
        }
        sum
    }

    async fn client(self, gateway: SocketAddr, mut chance: Chance) -> Answers {
        let (mut answers, end) = (Answers::default(), Instant::now() + self.lasts);
        let mut connection = None;
        while Instant::now() < end {
            match timeout(Duration::from_secs(10), get(&mut connection, gateway)).await {
                Ok(Ok(200)) => answers.good += 1,
                Ok(Ok(_)) => answers.bad += 1,
                Ok(Err(_)) | Err(_) => {
                    answers.none += 1;
                    connection = None;
                }
            }
            if self.pauses {
                sleep(Duration::from_micros(chance.below(5000))).await;
            }
        }
        answers
    }
}

/// The status of an answer that was read to its end.
async fn get(connection: &mut Option<BufReader<TcpStream>>, gateway: SocketAddr) -> io::Result<u16> {
    if connection.is_none() {
        *connection = Some(BufReader::new(TcpStream::connect(gateway).await?));
    }
    let Some(stream) = connection else { return Err(io::ErrorKind::NotConnected.into()) };
    stream.write_all(b"GET / HTTP/1.1\r\nHost: stale.example\r\n\r\n").await?;
    let (mut status, mut length, mut line) = (0, 0, String::new());
    while stream.read_line(&mut line).await? > 2 {
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().map_err(io::Error::other)?;
        } else if status == 0 {
            status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        }
        line.clear();
    }
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    stream.read_exact(&mut vec![0; length]).await?;
    Ok(status)
}
