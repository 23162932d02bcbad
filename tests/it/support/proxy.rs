//! A proxy before a Redis, which delays its answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Ends with the runtime of the test.
pub struct DelayingProxy {
    /// The port it listens on, on loopback.
    pub port: u16,
    delay: Arc<Delay>,
}

/// In milliseconds; each answer has the next of both.
#[derive(Default)]
struct Delay {
    of_even: AtomicU64,
    of_odd: AtomicU64,
    answers: AtomicU64,
}

impl DelayingProxy {
    /// Starts one that delays nothing.
    pub async fn start(redis: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (port, delay) = (listener.local_addr().expect("an address").port(), Arc::<Delay>::default());
        let shared = Arc::clone(&delay);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(redis) = TcpStream::connect(("127.0.0.1", redis)).await else { continue };
                let ((from_client, to_client), (from_redis, to_redis)) = (client.into_split(), redis.into_split());
                tokio::spawn(forward(from_client, to_redis, Arc::default()));
                tokio::spawn(forward(from_redis, to_client, Arc::clone(&shared)));
            }
        });
        Self { port, delay }
    }

    /// From now on answers are delayed by these in turn, in milliseconds.
    pub fn delay(&self, of_even: u64, of_odd: u64) {
        self.delay.of_even.store(of_even, Ordering::SeqCst);
        self.delay.of_odd.store(of_odd, Ordering::SeqCst);
    }
}

impl Delay {
    fn next(&self) -> Duration {
        let is_even = self.answers.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        let delay = if is_even { &self.of_even } else { &self.of_odd };
        Duration::from_millis(delay.load(Ordering::SeqCst))
    }
}

/// What is delayed holds up nothing that comes behind it for longer than that.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Arc<Delay>) {
    let (send, mut receive) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        while let Some((due, bytes)) = receive.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let due = Instant::now() + delay.next();
        if send.send((due, buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}
