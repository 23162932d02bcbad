//! Accepts connections, and pauses when the system runs out of resources.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::listener::Listener;
use super::precedence::Precedence;
use crate::transport::Transport;
use tidegate_metrics::Metrics;

/// How long to wait when file descriptors or memory have run out. Retrying at once would only burn CPU time until a
/// connection closes.
const BACKOFF: Duration = Duration::from_millis(75);

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: Arc<Listener>,
    metrics: Arc<Metrics>,
    /// Whether the last accept failed. Only changes are logged.
    is_failing: bool,
}

impl Acceptor {
    pub(crate) fn new(listener: Arc<Listener>, metrics: Arc<Metrics>) -> Self {
        Self { listener, metrics, is_failing: false }
    }

    /// Returns the next connection.
    pub(crate) async fn accept(&mut self) -> (Transport, SocketAddr) {
        loop {
            while self.is_failing && Precedence::is_taken() {
                sleep(BACKOFF).await;
            }
            match self.listener.accept().await {
                Ok(accepted) => {
                    self.log_change(None);
                    return accepted;
                }
                Err(error) if is_connection_error(&error) => {}
                Err(error) => {
                    self.metrics.accept_failed();
                    self.log_change(Some(&error));
                    sleep(BACKOFF).await;
                }
            }
        }
    }

    /// Returns a connection from the kernel's accept queue, even if the runtime has not been notified of it.
    pub(crate) fn accept_queued(&self) -> Option<(Transport, SocketAddr)> {
        loop {
            match self.listener.accept_queued() {
                Ok(accepted) => return Some(accepted),
                Err(error) if is_connection_error(&error) => {}
                Err(_) => return None,
            }
        }
    }

    fn log_change(&mut self, error: Option<&io::Error>) {
        match (self.is_failing, error) {
            (false, Some(error)) => tracing::error!(%error, "cannot accept connections"),
            (true, None) => tracing::info!("accepting connections again"),
            _ => {}
        }
        self.is_failing = error.is_some();
    }
}

/// Returns `true` if only this connection failed, because its client gave up.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use socket2::Socket;
    use tidegate_config::ListenAddress;
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::super::bind_one;
    use super::*;

    #[tokio::test]
    async fn precedence_of_an_admin_listener_delays_clients() {
        let socket = Socket::from(bind_one(&ListenAddress::parse("127.0.0.1:0").unwrap()));
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let mut acceptor = Acceptor::new(Arc::new(Listener::new(socket).unwrap()), Arc::default());
        acceptor.is_failing = true;
        let _client = TcpStream::connect(address).await.unwrap();
        let precedence = Precedence::take();
        timeout(2 * BACKOFF, acceptor.accept()).await.unwrap_err();
        drop(precedence);
        acceptor.accept().await;
    }
}
