//! A proxy before a Redis, which does to its connections what networks do.

#![allow(dead_code, reason = "each user takes what it needs")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Ends with the runtime that it was started on.
pub struct FaultyProxy {
    /// The port it listens on, on loopback.
    pub port: u16,
    network: Arc<Network>,
}

/// The way between a client and Redis.
struct Network {
    faults: watch::Sender<Faults>,
    connections: AtomicU64,
    answers: AtomicU64,
}

/// What is wrong with it. Connections are numbered as they come.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// How long answers take beyond their time, in milliseconds: every other one this, the others that.
    delays: (u64, u64),
    /// How many bytes of answers pass in a second; any number, if it is 0.
    bytes_per_second: u64,
    /// Connections before this one are closed, and so is each that comes if it is the last number there is.
    closed_before: u64,
    /// Connections before this one pass nothing in either direction, for as long as they are there.
    silent_before: u64,
}

/// More connections than there will be.
const ALL: u64 = u64::MAX;

impl FaultyProxy {
    /// Starts one that lets everything pass.
    pub async fn start(redis: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (faults, _) = watch::channel(Faults::default());
        let network = Arc::new(Network { faults, connections: AtomicU64::new(0), answers: AtomicU64::new(0) });
        let shared = Arc::clone(&network);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, redis, Arc::clone(&shared)));
            }
        });
        Self { port, network }
    }

    /// From now on answers are delayed by these in turn, in milliseconds.
    pub fn delay(&self, of_even: u64, of_odd: u64) {
        self.change(|faults| faults.delays = (of_even, of_odd));
    }

    /// From now on so many bytes of answers pass in a second.
    pub fn throttle(&self, bytes_per_second: u64) {
        self.change(|faults| faults.bytes_per_second = bytes_per_second);
    }

    /// Closes all connections, and each that comes, until it is [healed](Self::heal).
    pub fn cut(&self) {
        self.change(|faults| faults.closed_before = ALL);
    }

    /// All connections stay open and pass nothing any more, and so does each that comes, until it is [healed](Self::heal).
    pub fn blackhole(&self) {
        self.change(|faults| faults.silent_before = ALL);
    }

    /// The connections that are there pass nothing any more; those that come are whole.
    pub fn half_open(&self) {
        let next = self.network.connections.load(Ordering::SeqCst);
        self.change(|faults| faults.silent_before = next);
    }

    /// Lets everything pass on the connections that come.
    pub fn heal(&self) {
        let next = self.network.connections.load(Ordering::SeqCst);
        let before = |number: u64| number.min(next);
        self.change(|faults| {
            let (closed_before, silent_before) = (before(faults.closed_before), before(faults.silent_before));
            *faults = Faults { closed_before, silent_before, ..Faults::default() };
        });
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) {
        self.network.faults.send_modify(change);
    }
}

impl Network {
    fn next_delay(&self) -> Duration {
        let (of_even, of_odd) = self.faults.borrow().delays;
        let is_even = self.answers.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        Duration::from_millis(if is_even { of_even } else { of_odd })
    }

    /// Returns when a connection is to be closed.
    async fn closes(&self, number: u64) {
        _ = self.faults.subscribe().wait_for(|faults| number < faults.closed_before).await;
    }

    fn is_silent(&self, number: u64) -> bool {
        number < self.faults.borrow().silent_before
    }
}

async fn connect(client: TcpStream, redis: u16, network: Arc<Network>) {
    let number = network.connections.fetch_add(1, Ordering::SeqCst);
    let forward = async {
        let Ok(redis) = TcpStream::connect(("127.0.0.1", redis)).await else { return };
        _ = (client.set_nodelay(true), redis.set_nodelay(true));
        let ((from_client, to_client), (from_redis, to_redis)) = (client.into_split(), redis.into_split());
        tokio::select! {
            () = forward(from_client, to_redis, &network, number, false) => {}
            () = forward(from_redis, to_client, &network, number, true) => {}
        }
    };
    tokio::select! {
        () = forward => {}
        () = network.closes(number) => {}
    }
}

/// What is delayed holds up nothing that comes behind it for longer than that.
async fn forward(mut from: OwnedReadHalf, to: OwnedWriteHalf, network: &Arc<Network>, number: u64, are_answers: bool) {
    let (send, receive) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let (pace, read) = (Arc::clone(network), async {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let delay = if are_answers { network.next_delay() } else { Duration::ZERO };
            if send.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    });
    tokio::select! {
        () = read => {}
        () = write(to, receive, pace, number, are_answers) => {}
    }
}

async fn write(
    mut to: OwnedWriteHalf,
    mut receive: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>,
    network: Arc<Network>,
    number: u64,
    are_answers: bool,
) {
    while let Some((due, bytes)) = receive.recv().await {
        sleep_until(due).await;
        if network.is_silent(number) {
            continue;
        }
        if to.write_all(&bytes).await.is_err() {
            return;
        }
        let pace = if are_answers { network.faults.borrow().bytes_per_second } else { 0 };
        if let Some(millis) = (bytes.len() as u64 * 1_000).checked_div(pace) {
            sleep(Duration::from_millis(millis)).await;
        }
    }
}
