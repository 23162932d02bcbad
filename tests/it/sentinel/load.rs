//! Clients that send requests to two gateways in turn during a failover, and the number of their grants.

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

/// Clients that send requests until they are stopped. They panic if a response is not 200.
pub struct Load {
    is_over: Arc<AtomicBool>,
    clients: JoinSet<Tally>,
}

/// The grants of all clients.
#[derive(Debug, Default)]
pub struct Tally {
    /// Grants of the store and of gateways.
    pub granted: u32,
    /// Grants that a gateway decided locally.
    pub local: u32,
    /// Grants that the store has counted.
    pub known: u32,
}

impl Load {
    /// Starts clients of both gateways.
    pub fn start(gateways: [&TestGateway; 2]) -> Self {
        let (is_over, mut clients) = (Arc::<AtomicBool>::default(), JoinSet::new());
        let addresses = gateways.map(|gateway| gateway.address);
        for number in 0..CLIENTS {
            clients.spawn(client(number, addresses, Arc::clone(&is_over)));
        }
        Self { is_over, clients }
    }

    /// Stops the clients, and waits until the gateways have reconnected and charged all debts. Returns the grants.
    pub async fn stop(self, gateways: [&TestGateway; 2]) -> Tally {
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
            all.local += one.local;
            all.known += RATE - remaining(&last).expect("a decision of the store");
        }
        all
    }
}

/// Returns the field with the client key.
fn key(number: u32) -> String {
    format!("k: of load {number}\r\n")
}

async fn client(number: u32, addresses: [SocketAddr; 2], is_over: Arc<AtomicBool>) -> Tally {
    let mut connections = [Raw::connect(addresses[0]).await, Raw::connect(addresses[1]).await];
    let mut ticks = interval(Duration::from_millis(5));
    let (fields, mut tally) = (key(number), Tally::default());
    loop {
        let is_last_round = is_over.load(Ordering::SeqCst);
        for connection in &mut connections {
            let response: Message = get(connection, "/", &fields).await;
            assert_eq!(response.status(), 200, "{}", response.text());
            tally.granted += 1;
            tally.local += u32::from(remaining(&response).is_none());
        }
        if is_last_round {
            return tally;
        }
        ticks.tick().await;
    }
}
