//! Clients with valid credentials.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinHandle;

use crate::support::gateway::get;
use crate::support::wire::raw::Raw;
use crate::support::wire::until;

/// Clients that send requests until they are stopped, each on its own connection. Each response must have status 200.
#[derive(Default)]
pub struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Adds a client that sends requests with these header lines.
    pub fn add(&mut self, gateway: SocketAddr, fields: String) {
        let (stop, answered) = (Arc::clone(&self.stop), Arc::clone(&self.answered));
        self.clients.push(tokio::spawn(async move {
            let mut client = Raw::connect(gateway).await;
            while !stop.load(Ordering::SeqCst) {
                let response = get(&mut client, "/", &fields).await;
                assert_eq!(response.status(), 200, "{fields}: {}", response.text());
                answered.fetch_add(1, Ordering::SeqCst);
                if response.field("connection").is_some() {
                    client = Raw::connect(gateway).await; // after 10,000 requests
                }
            }
        }));
    }

    /// Waits until 100 more requests have been answered, or a client has failed.
    pub async fn wait_for_progress(&self) {
        let before = self.answered.load(Ordering::SeqCst);
        let has_progress = || self.answered.load(Ordering::SeqCst) >= before + 100;
        until(|| has_progress() || self.clients.iter().any(JoinHandle::is_finished)).await;
    }

    /// Stops the clients. Panics if a request failed, or took 10 s.
    pub async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.await.expect("no failed request");
        }
    }
}
