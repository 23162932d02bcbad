//! The connections to a node. A connection manager is a task that opens a connection and reopens it when it breaks.
//!
//! Callers share clones of the connection and never wait for one that is known to be down. So decisions fail
//! immediately while a node is unreachable, and only the manager retries, with growing pauses. A node that is slow for
//! all callers also counts as down until it replies to a probe in time ([`Breaker`]).

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
use crate::StoreError;
use tidegate_metrics::BreakerGauge;

/// Keeps a connection open. Dropping the manager ends its task.
#[derive(Debug)]
pub(crate) struct ConnectionManager {
    connection_state: Arc<ManagedConnection>,
    task: JoinHandle<()>,
}

/// The state that a connection manager and its task share.
#[derive(Debug)]
struct ManagedConnection {
    /// The longest time for a decision.
    timeout: Duration,
    status: watch::Sender<ConnectionStatus>,
    breaker: Mutex<Breaker>,
}

/// The task of a connection manager.
struct Keeper {
    node: Arc<Node>,
    connection_state: Arc<ManagedConnection>,
    backoff: Backoff,
    outage: Option<Outage>,
    /// The address of the master, when it was last verified.
    moves: watch::Receiver<Option<String>>,
    /// Changes when another connection to the node was opened after an outage.
    reconnected: watch::Receiver<()>,
}

// === impl ConnectionManager ===

impl ConnectionManager {
    /// Starts to connect. Must be called on a Tokio runtime; the task ends with that runtime.
    pub(crate) fn start(node: Arc<Node>, timeout: Duration, open_breakers: BreakerGauge) -> Self {
        let breaker = Mutex::new(Breaker::new(timeout, Instant::now(), open_breakers));
        let connection_state =
            Arc::new(ManagedConnection { timeout, status: watch::Sender::new(ConnectionStatus::Connecting), breaker });
        let kept = Arc::clone(&connection_state);
        let task = tokio::spawn(async move {
            tokio::select! { () = Keeper::new(Arc::clone(&node), kept).run() => {}, () = node.locator.watch() => {} }
        });
        Self { connection_state, task }
    }

    pub(crate) fn status(&self) -> watch::Receiver<ConnectionStatus> {
        self.connection_state.status.subscribe()
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(&*self.connection_state.status.borrow(), ConnectionStatus::Up(connection) if connection.is_open())
    }

    /// Returns the connection. Waits only for the first attempt to open it after the start or a break.
    async fn connection(&self) -> Result<NodeConnection, StoreError> {
        let mut status = self.connection_state.status.subscribe();
        let settled = status.wait_for(|status| !matches!(status, ConnectionStatus::Connecting)).await;
        match settled.as_deref() {
            Ok(ConnectionStatus::Up(connection)) => Ok(connection.clone()),
            _ => Err(StoreError::Unreachable),
        }
    }

    /// Waits for the connection and for the result of `call`, until the deadline. A connection that failed or did not
    /// reply in time is not used again.
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

    /// Records an error of a call that was sent `took` ago. A connection that does not work is discarded, so that no
    /// caller receives a late reply.
    pub(crate) fn record_error(&self, connection: &NodeConnection, error: &StoreError, took: Duration) {
        match error {
            // The call was sent late, so the timeout does not show that the connection is slow.
            StoreError::Timeout if took < self.connection_state.timeout / 2 => {}
            StoreError::Broken | StoreError::UnexpectedReply => self.discard(connection, ConnectionStatus::Connecting),
            // The node rejects all calls: requests fail immediately instead of waiting for it.
            error if error.breaks_connection() => self.discard(connection, ConnectionStatus::Down(error.to_string())),
            _ => {}
        }
    }

    /// Records how long a reply took. Marks the connection as down if the node is slow for all callers.
    pub(crate) fn record_reply(&self, connection: &NodeConnection, took: Duration) {
        if let Some(cause) = self.connection_state.breaker.lock().record_reply(Instant::now(), took) {
            self.discard(connection, ConnectionStatus::Down(cause));
        }
    }

    fn discard(&self, connection: &NodeConnection, instead: ConnectionStatus) {
        self.connection_state.status.send_if_modified(|status| {
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

// === impl Keeper ===

impl Keeper {
    fn new(node: Arc<Node>, connection_state: Arc<ManagedConnection>) -> Self {
        let (moves, reconnected) = (node.locator.moves(), node.reconnected());
        Self { node, connection_state, backoff: Backoff::default(), outage: None, moves, reconnected }
    }

    async fn run(mut self) {
        let mut connected = self.node.connect(None).await;
        loop {
            let pause = match connected {
                Ok(connection) => self.keep_open(connection).await,
                Err(error) => self.record_failure(error),
            };
            if !pause.is_zero() {
                self.connection_state.end_connecting();
            }
            self.node.slots().request_refresh();
            if let ConnectionStatus::Down(cause) = &*self.connection_state.status.borrow() {
                self.outage.get_or_insert_with(|| self.node.outages.begin(cause));
            }
            if self.node.slots().is_empty() {
                // The node has left the cluster, which is no outage.
                self.outage = None;
                self.node.refusals.forget();
                self.node.slots().wait_until_any().await;
            }
            connected = self.connect_after(pause).await;
        }
    }

    /// Keeps a new connection open until it is closed or discarded. Returns the pause before the next attempt.
    async fn keep_open(&mut self, connection: NodeConnection) -> Duration {
        let ManagedConnection { status, breaker, .. } = &*self.connection_state;
        self.outage.take().into_iter().for_each(Outage::recovered);
        breaker.lock().close();
        let since = Instant::now();
        status.send_replace(ConnectionStatus::Up(connection.clone()));
        self.moves.mark_unchanged();
        self.node.run_until_closed(connection, status).await;
        self.reconnected.mark_unchanged();
        match &*status.borrow() {
            ConnectionStatus::Down(_) => self.backoff.after_connection(since.elapsed()),
            _ => self.backoff.after_close(since.elapsed()),
        }
    }

    /// Records that an attempt to connect failed. Returns the pause before the next one.
    fn record_failure(&mut self, error: String) -> Duration {
        self.outage.get_or_insert_with(|| self.node.outages.begin(&error)).record_failure(&error);
        self.connection_state.status.send_replace(ConnectionStatus::Down(error));
        self.backoff.after_failure()
    }

    /// Connects again after a pause.
    async fn connect_after(&mut self, pause: Duration) -> Result<NodeConnection, String> {
        let Self { node, connection_state, backoff, outage, moves, reconnected } = self;
        let breaker = outage.is_some().then_some(&connection_state.breaker);
        let attempt = async {
            tokio::select! {
                () = sleep(jittered(pause)) => {}
                // Another connection to the node was just opened.
                Ok(()) = reconnected.changed() => {}
            }
            match breaker {
                Some(breaker) => node.reconnect(breaker).await,
                None => node.connect(None).await,
            }
        };
        tokio::select! {
            biased;
            connected = attempt => connected,
            // The master was just verified at another address: connect without a pause, and start again with short
            // pauses.
            Ok(()) = moves.changed() => {
                *backoff = Backoff::default();
                node.connect(breaker).await
            }
        }
    }
}

// === impl ManagedConnection ===

impl ManagedConnection {
    /// Marks a connection that is not down as down, so that calls do not wait for the next attempt.
    fn end_connecting(&self) {
        self.status.send_if_modified(|status| {
            let is_new = matches!(status, ConnectionStatus::Connecting);
            if is_new {
                *status = ConnectionStatus::Down(StoreError::Broken.to_string());
            }
            is_new
        });
    }
}
