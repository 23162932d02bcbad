//! A TCP proxy in front of a Redis that injects network faults.

#![allow(dead_code, reason = "each user needs only some of the items")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// A proxy for all connections to a port. It ends with the runtime that it was started on.
pub struct FaultyProxy {
    /// The port of the proxy on loopback.
    pub port: u16,
    network: Arc<Network>,
}

/// The state that all connections of a proxy share.
struct Network {
    faults: watch::Sender<Faults>,
    connections: AtomicU64,
    replies: AtomicU64,
}

/// The injected faults. Connections are numbered in the order of arrival.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// The extra delay of even and of odd replies, in milliseconds.
    delays: (u64, u64),
    /// The extra delay of requests on even and on odd connections, in milliseconds.
    request_delays: (u64, u64),
    /// The rate of reply bytes; 0 is unlimited.
    bytes_per_second: u64,
    /// Connections with a smaller number are closed. [`ALL`] includes future connections.
    closed_before: u64,
    /// Connections with a smaller number forward nothing in either direction, even after the proxy is healed.
    silent_before: u64,
}

/// Larger than the number of any connection.
const ALL: u64 = u64::MAX;

impl FaultyProxy {
    /// Starts a proxy that forwards everything.
    pub async fn start(redis: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (faults, _) = watch::channel(Faults::default());
        let network = Arc::new(Network { faults, connections: AtomicU64::new(0), replies: AtomicU64::new(0) });
        let shared = Arc::clone(&network);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, redis, Arc::clone(&shared)));
            }
        });
        Self { port, network }
    }

    /// Sets the delays of even and of odd replies, in milliseconds.
    pub fn delay(&self, of_even: u64, of_odd: u64) {
        self.change(|faults| faults.delays = (of_even, of_odd));
    }

    /// Sets the delays of requests on even and on odd connections, in milliseconds. Requests of one connection keep their order.
    pub fn delay_requests(&self, on_even: u64, on_odd: u64) {
        self.change(|faults| faults.request_delays = (on_even, on_odd));
    }

    /// Sets the rate of reply bytes.
    pub fn throttle(&self, bytes_per_second: u64) {
        self.change(|faults| faults.bytes_per_second = bytes_per_second);
    }

    /// Closes all connections, including new ones, until the proxy is [healed](Self::heal).
    pub fn cut(&self) {
        self.change(|faults| faults.closed_before = ALL);
    }

    /// Keeps all connections open, including new ones, but forwards nothing until the proxy is [healed](Self::heal).
    pub fn blackhole(&self) {
        self.change(|faults| faults.silent_before = ALL);
    }

    /// Stops forwarding on all present connections without closing them. New connections work.
    pub fn half_open(&self) {
        let next = self.network.connections.load(Ordering::SeqCst);
        self.change(|faults| faults.silent_before = next);
    }

    /// Ends all faults for new connections.
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
        let is_even = self.replies.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        Duration::from_millis(if is_even { of_even } else { of_odd })
    }

    fn request_delay(&self, number: u64) -> Duration {
        let (on_even, on_odd) = self.faults.borrow().request_delays;
        Duration::from_millis(if number.is_multiple_of(2) { on_even } else { on_odd })
    }

    /// Waits until the connection must be closed.
    async fn wait_until_closed(&self, number: u64) {
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
        () = network.wait_until_closed(number) => {}
    }
}

/// Forwards one direction of a connection. Reading continues during a delay, so that delays do not add up.
async fn forward(mut from: OwnedReadHalf, to: OwnedWriteHalf, network: &Arc<Network>, number: u64, are_replies: bool) {
    let (send, receive) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let delay = if are_replies { network.next_delay() } else { network.request_delay(number) };
            if send.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write(to, receive, Arc::clone(network), number, are_replies) => {}
    }
}

async fn write(
    mut to: OwnedWriteHalf,
    mut receive: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>,
    network: Arc<Network>,
    number: u64,
    are_replies: bool,
) {
    while let Some((due, bytes)) = receive.recv().await {
        sleep_until(due).await;
        if network.is_silent(number) {
            continue;
        }
        if to.write_all(&bytes).await.is_err() {
            return;
        }
        let rate = if are_replies { network.faults.borrow().bytes_per_second } else { 0 };
        if let Some(millis) = (bytes.len() as u64 * 1_000).checked_div(rate) {
            sleep(Duration::from_millis(millis)).await;
        }
    }
}
