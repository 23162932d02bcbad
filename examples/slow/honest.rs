//! One client that asks fifty times a second, each time on a connection of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::internals::clock::Stopwatch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

const REQUEST: &[u8] = b"GET /honest HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

/// How long answers took, and how many never came.
#[derive(Clone, Debug, Default)]
pub struct Times {
    pub answered: Vec<Duration>,
    pub failed: usize,
}

/// The client, on a thread of its own.
#[derive(Debug)]
pub struct Honest(Arc<Mutex<Times>>);

impl Times {
    pub fn asked(&self) -> usize {
        self.answered.len() + self.failed
    }

    /// Of the answers that came.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.answered.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(at).copied().unwrap_or_default()
    }
}

impl Honest {
    pub fn start(gateway: SocketAddr) -> Self {
        let times: Arc<Mutex<Times>> = Arc::default();
        let shared = Arc::clone(&times);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(ask_for_ever(gateway, &shared)))
        });
        Self(times)
    }

    /// What there is since the last time.
    pub fn take(&self) -> Times {
        std::mem::take(&mut *self.0.lock())
    }
}

async fn ask_for_ever(gateway: SocketAddr, times: &Mutex<Times>) {
    let mut ticks = interval(Duration::from_millis(20));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let begin = Stopwatch::start();
        let answered = timeout(Duration::from_secs(5), ask(gateway)).await.is_ok_and(|asked| asked.unwrap_or(false));
        let mut times = times.lock();
        if answered {
            times.answered.push(begin.elapsed());
        } else {
            times.failed += 1;
        }
    }
}

async fn ask(gateway: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(gateway).await?;
    stream.write_all(REQUEST).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200 "))
}
