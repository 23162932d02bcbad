//! The connections to a node. Each is shared by a task, its connection manager, which opens it, and opens it
//! again when it breaks.
//!
//! Callers clone the connection and share it; they never wait for one that is known to be down. So while a node is away a
//! decision fails at once, and it is the manager alone that keeps trying, with growing backoff. A node that is slow for
//! everybody is down, too, until it answers a probe in time ([`Breaker`]).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::super::backoff::{Backoff, jittered};
use super::breaker::Breaker;
use super::outages::Outage;
use super::{ConnectionStatus, Node, NodeConnection};
use crate::store::StoreError;

/// Keeps a connection open; its task ends with it.
#[derive(Debug)]
pub(crate) struct ConnectionManager {
    shared: Arc<ManagedConnection>,
    task: JoinHandle<()>,
}

/// What a connection manager and its task share.
#[derive(Debug)]
struct ManagedConnection {
    /// The longest that a decision may take.
    timeout: Duration,
    status: watch::Sender<ConnectionStatus>,
    breaker: Mutex<Breaker>,
}

// === impl ConnectionManager ===

impl ConnectionManager {
    /// Connects at once. Must be called on a Tokio runtime, which it lives on.
    pub(crate) fn start(node: Arc<Node>, timeout: Duration) -> Self {
        let breaker = Mutex::new(Breaker::new(timeout, Instant::now()));
        let shared =
            Arc::new(ManagedConnection { timeout, status: watch::Sender::new(ConnectionStatus::Connecting), breaker });
        let keep_connected = keep_connected(Arc::clone(&node), Arc::clone(&shared));
        let task = tokio::spawn(async move {
            tokio::select! { () = keep_connected => {}, () = node.locator.watch() => {} }
        });
        Self { shared, task }
    }

    /// What is known of the connection, now and whenever that changes.
    pub(crate) fn status(&self) -> watch::Receiver<ConnectionStatus> {
        self.shared.status.subscribe()
    }

    /// The connection, waiting for it only while it is first being opened, after one that is known to be broken too.
    async fn connection(&self) -> Result<NodeConnection, StoreError> {
        let mut status = self.shared.status.subscribe();
        let settled = status.wait_for(|status| !matches!(status, ConnectionStatus::Connecting)).await;
        match settled.as_deref() {
            Ok(ConnectionStatus::Up(connection)) => Ok(connection.clone()),
            _ => Err(StoreError::Unreachable),
        }
    }

    /// Waits for the connection and for what `call` asks on it, all until then. A connection that failed, or did not
    /// answer in time, is never used again.
    pub(crate) async fn call<T>(
        &self,
        deadline: Instant,
        call: impl AsyncFnOnce(&mut NodeConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut used = None;
        let called = async {
            let (connection, _) = used.insert((self.connection().await?, Instant::now()));
            call(connection).await
        };
        let answer = timeout_at(deadline, called).await.unwrap_or(Err(StoreError::Timeout));
        if let (Some((connection, sent)), Err(error)) = (&used, &answer) {
            self.record_error(connection, error, sent.elapsed());
        }
        answer
    }

    /// Says what went wrong on a connection, how long after the call was sent. One that does not work is not used again: a
    /// late answer meets nobody.
    pub(crate) fn record_error(&self, connection: &NodeConnection, error: &StoreError, took: Duration) {
        match error {
            // That a call which was sent late had no answer in time says nothing about the connection.
            StoreError::Timeout if took < self.shared.timeout / 2 => {}
            StoreError::Broken | StoreError::UnexpectedReply => self.discard(connection, ConnectionStatus::Connecting),
            // Such a node refuses everybody: requests fail at once instead of waiting for it.
            error if error.breaks_connection() => self.discard(connection, ConnectionStatus::Down(error.to_string())),
            _ => {}
        }
    }

    /// Says how long an answer took. Nobody waits for a node that is slow for everybody.
    pub(crate) fn record_reply(&self, connection: &NodeConnection, took: Duration) {
        if let Some(cause) = self.shared.breaker.lock().record_reply(Instant::now(), took) {
            self.discard(connection, ConnectionStatus::Down(cause));
        }
    }

    fn discard(&self, connection: &NodeConnection, instead: ConnectionStatus) {
        self.shared.status.send_if_modified(|status| {
            let is_current = matches!(status, ConnectionStatus::Up(current) if current.is(connection));
            if is_current {
                *status = instead;
            }
            is_current
        });
    }
}

impl Drop for ConnectionManager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep_connected(node: Arc<Node>, shared: Arc<ManagedConnection>) {
    let (status, mut backoff, mut outage) = (&shared.status, Backoff::default(), None::<Outage<'_>>);
    let (mut moves, mut reconnected) = (node.locator.moves(), node.reconnected());
    let mut connected = node.connect(None).await;
    loop {
        let pause = match connected {
            Ok(connection) => {
                outage.take().into_iter().for_each(Outage::recovered);
                let since = Instant::now();
                status.send_replace(ConnectionStatus::Up(connection.clone()));
                moves.mark_unchanged();
                node.run_until_closed(connection, status).await;
                reconnected.mark_unchanged();
                backoff.after_connection(since.elapsed())
            }
            Err(error) => {
                outage.get_or_insert_with(|| node.outages.begin(&error)).record_failure(&error);
                status.send_replace(ConnectionStatus::Down(error));
                backoff.after_failure()
            }
        };
        if !pause.is_zero() {
            status.send_if_modified(|status| {
                let is_new = matches!(status, ConnectionStatus::Connecting);
                if is_new {
                    *status = ConnectionStatus::Down(StoreError::Broken.to_string());
                }
                is_new
            });
        }
        node.slots().request_refresh();
        if let ConnectionStatus::Down(cause) = &*status.borrow() {
            outage.get_or_insert_with(|| node.outages.begin(cause));
        }
        if node.slots().is_empty() {
            // That a node has left the cluster is no outage.
            outage = None;
            node.slots().wait_until_any().await;
        }
        let attempt = async {
            tokio::select! {
                () = sleep(jittered(pause)) => {}
                // It was there for another connection just now.
                Ok(()) = reconnected.changed() => {}
            }
            match outage {
                Some(_) => node.reconnect(&shared.breaker).await,
                None => node.connect(None).await,
            }
        };
        connected = tokio::select! {
            biased;
            connected = attempt => connected,
            // The master was verified at another address just now: no pause and no next_attempt, and short backoff if it fails.
            Ok(()) = moves.changed() => {
                backoff = Backoff::default();
                node.connect(outage.is_some().then_some(&shared.breaker)).await
            }
        };
    }
}
