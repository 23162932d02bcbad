//! A scripted origin that records the requests it receives.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};

use super::raw::{Message, Raw};

/// An origin server on a free port.
#[derive(Clone, Debug)]
pub struct Origin {
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Message>>>,
}

/// One connection to the origin.
#[derive(Debug)]
pub struct OriginConnection {
    /// The number of earlier connections.
    pub index: usize,
    pub raw: Raw,
    requests: Arc<Mutex<Vec<Message>>>,
}

impl Origin {
    /// Starts an origin that runs `script` on every connection.
    pub async fn start<F, S>(script: S) -> Self
    where
        S: Fn(OriginConnection) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self::start_on(TcpListener::bind("127.0.0.1:0").await.expect("should bind"), script)
    }

    /// Starts an origin on this listener.
    pub fn start_on<F, S>(listener: TcpListener, script: S) -> Self
    where
        S: Fn(OriginConnection) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr().expect("should have an address");
        let origin = Self { address, accepted: Arc::default(), requests: Arc::default() };
        let (accepted, requests) = (origin.accepted.clone(), origin.requests.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let index = accepted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(script(OriginConnection { index, raw: Raw::new(stream), requests: requests.clone() }));
            }
        });
        origin
    }

    /// Starts an origin that answers every request with the same bytes.
    pub async fn with_response(answer: &'static str) -> Self {
        Self::start(move |mut conn| async move {
            while conn.request().await.is_some() {
                conn.raw.send(answer).await;
            }
        })
        .await
    }

    /// Returns an address that refuses connections. A socket that does not listen reserves the port until the process
    /// ends: no other test can listen on it.
    pub fn closed_port() -> SocketAddr {
        let socket = Box::leak(Box::new(TcpSocket::new_v4().expect("a socket")));
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("should bind");
        socket.local_addr().expect("should have an address")
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Returns the recorded requests.
    pub fn requests(&self) -> Vec<Message> {
        self.requests.lock().clone()
    }

    /// Clears the recorded requests.
    pub fn clear_requests(&self) {
        self.requests.lock().clear();
    }

    /// Returns the last recorded request.
    pub fn last_request(&self) -> Message {
        self.requests().pop().expect("should have received a request")
    }
}

impl OriginConnection {
    /// Reads and records a complete request. Returns `None` if the peer has closed the connection.
    pub async fn request(&mut self) -> Option<Message> {
        let request = self.raw.try_message(false, false).await.ok()?;
        self.requests.lock().push(request.clone());
        Some(request)
    }

    /// Reads and records the head of a request.
    pub async fn head(&mut self) -> Option<Message> {
        let head = self.raw.head().await.ok()?;
        self.requests.lock().push(head.clone());
        Some(head)
    }
}
