//! Accepts connections, and pauses when the system has no resources for them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::listener::Listener;
use crate::metrics::Metrics;
use crate::transport::Transport;

/// How long to wait when file descriptors or memory have run out. Connections end all the time, and until one does,
/// trying again only burns CPU.
const BACK_OFF: Duration = Duration::from_millis(75);

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Accept {
    listener: Arc<Listener>,
    metrics: Arc<Metrics>,
    /// Whether the last accept failed; logged when it begins and when it ends.
    failing: bool,
}

impl Accept {
    pub(crate) fn new(listener: Arc<Listener>, metrics: Arc<Metrics>) -> Self {
        Self { listener, metrics, failing: false }
    }

    /// The next connection.
    pub(crate) async fn next(&mut self) -> (Transport, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok(accepted) => {
                    self.note(None);
                    return accepted;
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    self.metrics.accept_failed();
                    self.note(Some(&error));
                    sleep(BACK_OFF).await;
                }
            }
        }
    }

    /// A connection that is already in the kernel's queue, whether or not the runtime has been told of it.
    pub(crate) fn now(&self) -> Option<(Transport, SocketAddr)> {
        loop {
            match self.listener.accept_now() {
                Ok(accepted) => return Some(accepted),
                Err(error) if is_of_one_connection(&error) => {}
                Err(_) => return None,
            }
        }
    }

    fn note(&mut self, error: Option<&io::Error>) {
        match (self.failing, error) {
            (false, Some(error)) => tracing::error!(%error, "cannot accept connections"),
            (true, None) => tracing::info!("accepting connections again"),
            _ => {}
        }
        self.failing = error.is_some();
    }
}

/// Whether only this connection failed, since its client gave up; accepting goes on.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
