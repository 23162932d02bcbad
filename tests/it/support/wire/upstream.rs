//! An origin that does what a test tells it, and remembers what it was sent.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::raw::{Message, Raw};

/// An origin on a port of its own.
#[derive(Clone, Debug)]
pub struct Origin {
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Message>>>,
}

/// One connection to it.
#[derive(Debug)]
pub struct Visit {
    /// How many connections came before.
    pub index: usize,
    pub raw: Raw,
    requests: Arc<Mutex<Vec<Message>>>,
}

impl Origin {
    /// Runs `script` on every connection.
    pub async fn start<F, S>(script: S) -> Self
    where
        S: Fn(Visit) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("should bind");
        let address = listener.local_addr().expect("should have an address");
        let origin = Self { address, accepted: Arc::default(), requests: Arc::default() };
        let (accepted, requests) = (origin.accepted.clone(), origin.requests.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let index = accepted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(script(Visit { index, raw: Raw::new(stream), requests: requests.clone() }));
            }
        });
        origin
    }

    /// Answers every request with the same bytes.
    pub async fn saying(answer: &'static str) -> Self {
        Self::start(move |mut visit| async move {
            while visit.request().await.is_some() {
                visit.raw.send(answer).await;
            }
        })
        .await
    }

    /// Nobody listens at its address.
    pub async fn absent() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("should bind");
        listener.local_addr().expect("should have an address")
    }

    /// How many connections it has had.
    pub fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// The requests it was sent.
    pub fn requests(&self) -> Vec<Message> {
        self.requests.lock().clone()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.requests.lock().clear();
    }

    /// The last of them.
    pub fn last(&self) -> Message {
        self.requests().pop().expect("should have been sent a request")
    }
}

impl Visit {
    /// Reads a request to its end and remembers it; nothing once the other side has closed.
    pub async fn request(&mut self) -> Option<Message> {
        let request = self.raw.try_message(false, false).await.ok()?;
        self.requests.lock().push(request.clone());
        Some(request)
    }

    /// Reads a head and remembers it.
    pub async fn head(&mut self) -> Option<Message> {
        let head = self.raw.head().await.ok()?;
        self.requests.lock().push(head.clone());
        Some(head)
    }
}
