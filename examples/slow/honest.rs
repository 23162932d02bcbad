//! A client that sends 50 requests per second, each on a new connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_limit::clock::Stopwatch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

const REQUEST: &[u8] = b"GET /honest HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

/// The response times, and the number of failed requests.
#[derive(Clone, Debug, Default)]
pub struct Results {
    pub response_times: Vec<Duration>,
    pub failed: usize,
}

/// A running client, on another thread.
#[derive(Debug)]
pub struct HonestClient(Arc<Mutex<Results>>);

impl Results {
    pub fn requests(&self) -> usize {
        self.response_times.len() + self.failed
    }

    /// Returns a percentile of the response times.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.response_times.clone();
        sorted.sort_unstable();
        let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(index).copied().unwrap_or_default()
    }
}

impl HonestClient {
    pub fn start(gateway: SocketAddr) -> Self {
        let results: Arc<Mutex<Results>> = Arc::default();
        let shared = Arc::clone(&results);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(send_requests(gateway, &shared)))
        });
        Self(results)
    }

    /// Returns the results since the last call.
    pub fn take(&self) -> Results {
        std::mem::take(&mut *self.0.lock())
    }
}

async fn send_requests(gateway: SocketAddr, results: &Mutex<Results>) {
    let mut ticks = interval(Duration::from_millis(20));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let begin = Stopwatch::start();
        let succeeded = timeout(Duration::from_secs(5), get(gateway)).await.is_ok_and(|result| result.unwrap_or(false));
        let mut results = results.lock();
        if succeeded {
            results.response_times.push(begin.elapsed());
        } else {
            results.failed += 1;
        }
    }
}

async fn get(gateway: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(gateway).await?;
    stream.write_all(REQUEST).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    Ok(response.starts_with(b"HTTP/1.1 200 "))
}
