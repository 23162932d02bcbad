//! Clients that ask two gateways in turn while their master is replaced, and what became of their permits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::interval;

use super::{RATE, config, remaining};
use crate::support::gateway::{TestGateway, get};
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::soon;

const CLIENTS: u32 = 4;

/// Ends when it is told so, or fails when somebody is told of an error.
pub struct Load {
    is_over: Arc<AtomicBool>,
    clients: JoinSet<Tally>,
}

/// What clients were granted.
#[derive(Debug, Default)]
pub struct Tally {
    /// By the store or without it.
    pub granted: u32,
    /// Of these, by a gateway alone.
    pub alone: u32,
    /// What the store knows of.
    pub known: u32,
}

impl Load {
    /// Asks both from now on.
    pub fn on(gateways: [&TestGateway; 2]) -> Self {
        let (is_over, mut clients) = (Arc::<AtomicBool>::default(), JoinSet::new());
        let addresses = gateways.map(|gateway| gateway.address);
        for number in 0..CLIENTS {
            clients.spawn(client(number, addresses, Arc::clone(&is_over)));
        }
        Self { is_over, clients }
    }

    /// What they were granted in all, and what the store knows of it when all connections of the gateways are open again and
    /// nothing is owed any more.
    pub async fn end(self, gateways: [&TestGateway; 2]) -> Tally {
        self.is_over.store(true, Ordering::SeqCst);
        let tallies = self.clients.join_all().await;
        for gateway in gateways {
            soon(async { while gateway.counter("tidegate_store_up").await == 0 {} }).await;
            soon(async { while !config(gateway).await.contains(r#""owed":0,"#) {} }).await;
        }
        let mut all = Tally::default();
        for (number, one) in (0..).zip(tallies) {
            let last = gateways[0].get("/", &key(number)).await;
            all.granted += one.granted + 1;
            all.alone += one.alone;
            all.known += RATE - remaining(&last).expect("a decision of the store");
        }
        all
    }
}

/// What tells a client from the others.
fn key(number: u32) -> String {
    format!("k: of load {number}\r\n")
}

async fn client(number: u32, addresses: [SocketAddr; 2], is_over: Arc<AtomicBool>) -> Tally {
    let mut connections = [Raw::connect(addresses[0]).await, Raw::connect(addresses[1]).await];
    let mut pace = interval(Duration::from_millis(5));
    let (fields, mut tally) = (key(number), Tally::default());
    loop {
        let was_over = is_over.load(Ordering::SeqCst);
        for connection in &mut connections {
            let answer: Message = get(connection, "/", &fields).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
            tally.granted += 1;
            tally.alone += u32::from(remaining(&answer).is_none());
        }
        if was_over {
            return tally;
        }
        pace.tick().await;
    }
}
