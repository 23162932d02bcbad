//! An upstream that counts the requests in flight, and clients of gateways in front of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::upstream::{Origin, OriginConnection};
use crate::upgrade::http2::switch;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Counts the requests that an upstream has at once.
#[derive(Debug, Default)]
pub struct Load {
    pub now: AtomicUsize,
    /// The highest value of `now`.
    pub peak: AtomicUsize,
    /// The requests that end when their connection is closed.
    pub held: AtomicUsize,
    changed: Notify,
}

struct Counted<'l>(&'l Load);

impl Load {
    fn begin(&self) -> Counted<'_> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(now, Ordering::SeqCst);
        self.changed.notify_waiters();
        Counted(self)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

/// Starts an upstream whose responses take a few milliseconds. A request for `/hold` and a WebSocket end when their
/// connection is closed.
pub async fn upstream(load: &Arc<Load>) -> Origin {
    let load = Arc::clone(load);
    Origin::start(move |mut conn: OriginConnection| {
        let load = Arc::clone(&load);
        async move {
            while let Some(request) = conn.request().await {
                let counted = load.begin();
                let is_tunnel = request.field("upgrade").is_some();
                if is_tunnel {
                    conn.raw.send(switch(&request)).await;
                }
                if is_tunnel || request.start.contains("/hold") {
                    load.held.fetch_add(1, Ordering::SeqCst);
                    load.changed.notify_waiters();
                    _ = conn.raw.take_all().await; // until the connection is closed
                    load.held.fetch_sub(1, Ordering::SeqCst);
                    load.changed.notify_waiters();
                    return;
                }
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                drop(counted);
                conn.raw.send(OK).await;
            }
        }
    })
    .await
}

/// Sends requests for this path one after the other. Returns how many were admitted.
async fn send(address: SocketAddr, path: &str, until: Instant) -> usize {
    let (mut client, mut admitted) = (Raw::connect(address).await, 0);
    while Instant::now() < until {
        let response = client.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert!(matches!(response.status(), 200 | 429 | 503), "{}: {}", response.start, response.text());
        admitted += usize::from(response.status() == 200);
        if response.field("connection").is_some() {
            client = Raw::connect(address).await; // the gateway drains
        }
    }
    admitted
}

/// Sends requests through all gateways for a second. Returns how many were admitted.
pub async fn send_all(gateways: &[SocketAddr]) -> usize {
    send_all_to("/", gateways).await
}

/// Sends requests for this path through all gateways for a second. Returns how many were admitted.
pub async fn send_all_to(path: &'static str, gateways: &[SocketAddr]) -> usize {
    let until = Instant::now() + Duration::from_secs(1);
    let senders: Vec<_> =
        gateways.iter().flat_map(|one| (0..15).map(|_| tokio::spawn(send(*one, path, until)))).collect();
    let mut admitted = 0;
    for sender in senders {
        admitted += sender.await.expect("responses");
    }
    admitted
}

/// Sends a request that is held, and waits until the upstream has it.
pub async fn hold(gateway: SocketAddr, load: &Load) -> Raw {
    hold_at("/hold", gateway, load).await
}

/// Sends a request for this target, which must contain `/hold`, and waits until the upstream has it.
pub async fn hold_at(target: &str, gateway: SocketAddr, load: &Load) -> Raw {
    try_to_hold(target, gateway, load).await.expect("an admitted request")
}

/// Sends a held request again until it is admitted.
pub async fn hold_when_admitted(gateway: SocketAddr, load: &Load) -> Raw {
    let admitted = async {
        loop {
            match try_to_hold("/hold", gateway, load).await {
                Ok(client) => return client,
                Err(rejected) => assert_eq!(rejected.status(), 503),
            }
        }
    };
    timeout(Duration::from_secs(60), admitted).await.expect("an admitted request within 60 s")
}

/// Sends a request for this target, and waits until the upstream has it. Returns the response if it is rejected.
async fn try_to_hold(target: &str, gateway: SocketAddr, load: &Load) -> Result<Raw, Message> {
    let before = load.held.load(Ordering::SeqCst);
    let mut client = Raw::connect(gateway).await;
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
    tokio::select! {
        biased;
        () = until(load, |load| load.held.load(Ordering::SeqCst) > before) => Ok(client),
        rejected = client.response(false) => Err(rejected),
    }
}

/// Waits until `condition` holds, or panics after 30 s.
pub async fn until(load: &Load, mut condition: impl FnMut(&Load) -> bool) {
    let holds = async {
        loop {
            let changed = load.changed.notified();
            if condition(load) {
                return;
            }
            changed.await;
        }
    };
    timeout(Duration::from_secs(60), holds).await.expect("the condition within 60 s");
}
