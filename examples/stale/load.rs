//! Clients that send requests one after another, on one connection each.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::origin::Random;

/// The load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) connections: u16,
    pub(crate) duration: Duration,
    /// Whether each client pauses for up to 5 ms between requests.
    pub(crate) pauses: bool,
}

/// The number of responses with status 200, of other responses, and of requests without a response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) ok: u64,
    pub(crate) not_ok: u64,
    pub(crate) missing: u64,
}

impl Load {
    pub(crate) async fn run(self, gateway: SocketAddr) -> Outcomes {
        let mut clients = tokio::task::JoinSet::new();
        for seed in 1..=u64::from(self.connections) {
            clients.spawn(self.client(gateway, Random::new(seed)));
        }
        let mut sum = Outcomes::default();
        for Outcomes { ok, not_ok, missing } in clients.join_all().await {
            (sum.ok, sum.not_ok, sum.missing) = (sum.ok + ok, sum.not_ok + not_ok, sum.missing + missing);
        }
        sum
    }

    async fn client(self, gateway: SocketAddr, mut random: Random) -> Outcomes {
        let (mut outcomes, end) = (Outcomes::default(), Instant::now() + self.duration);
        let mut connection = None;
        while Instant::now() < end {
            match timeout(Duration::from_secs(10), get(&mut connection, gateway)).await {
                Ok(Ok(200)) => outcomes.ok += 1,
                Ok(Ok(_)) => outcomes.not_ok += 1,
                Ok(Err(_)) | Err(_) => {
                    outcomes.missing += 1;
                    connection = None;
                }
            }
            if self.pauses {
                sleep(Duration::from_micros(random.below(5000))).await;
            }
        }
        outcomes
    }
}

/// Sends a request, and reads the response to its end. Returns its status.
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
