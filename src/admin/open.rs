//! The open connections of the admin listener, and which of them is closed for a new one.

use std::time::Duration;

use tokio::task::{AbortHandle, JoinError, JoinSet, yield_now};
use tokio::time::{Instant, timeout};

use super::phase::Observer;
use tidegate_metrics::Metrics;

/// The highest number of open connections.
pub(super) const MAX_CONNECTIONS: usize = 64;

/// How long a response takes at least before its connection may be closed for a new one.
const MIN_RESPONSE_TIME: Duration = Duration::from_secs(1);

/// How long to wait before the next attempt when no connection may be closed.
const PAUSE: Duration = Duration::from_millis(50);

/// Log again when the listener was not full for this long.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// Connections that are served.
#[derive(Debug, Default)]
pub(super) struct Open {
    tasks: JoinSet<()>,
    connections: Vec<OpenConnection>,
    last_eviction: Option<Instant>,
}

#[derive(Debug)]
struct OpenConnection {
    phase: Observer,
    task: AbortHandle,
}

impl Open {
    /// Serves a connection.
    pub(super) fn spawn(&mut self, phase: Observer, serving: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(serving);
        self.connections.push(OpenConnection { phase, task });
    }

    /// Waits until a connection ends. Returns `None` if none is open.
    pub(super) async fn next_end(&mut self) -> Option<()> {
        let ended = self.tasks.join_next().await?;
        self.remove_ended(ended);
        Some(())
    }

    /// Returns when there is a slot for one more connection. If all are taken, closes the connection that has waited
    /// for its client for the longest time: a health check is served even if an attacker holds all slots with half
    /// requests.
    pub(super) async fn make_room(&mut self) {
        while self.connections.len() >= MAX_CONNECTIONS {
            // Requests that have arrived are read first: their connections do not wait for their clients.
            yield_now().await;
            while let Some(ended) = self.tasks.try_join_next() {
                self.remove_ended(ended);
            }
            if self.connections.len() >= MAX_CONNECTIONS && !self.evict_one() {
                _ = timeout(PAUSE, self.next_end()).await;
            }
        }
    }

    /// Closes a connection. Returns `false` if all of them are sending responses that began a short time ago.
    fn evict_one(&mut self) -> bool {
        let now = Instant::now();
        let oldest = |rank: &dyn Fn(&Observer) -> Option<Instant>| {
            let ranks = self.connections.iter().enumerate();
            ranks.filter_map(|(index, open)| Some((rank(&open.phase)?, index))).min().map(|(_, index)| index)
        };
        let slow = |phase: &Observer| Some(phase.since()).filter(|since| now - *since >= MIN_RESPONSE_TIME);
        let Some(index) = oldest(&Observer::waits_since).or_else(|| oldest(&slow)) else { return false };
        self.connections.swap_remove(index).task.abort();
        if self.last_eviction.is_none_or(|last| now - last >= LOG_PAUSE) {
            tracing::warn!(
                max_connections = MAX_CONNECTIONS,
                "admin listener has too many connections, closing those that wait for their clients"
            );
        }
        self.last_eviction = Some(now);
        true
    }

    fn remove_ended(&mut self, ended: Result<(), JoinError>) {
        self.connections.retain(|open| !open.task.is_finished());
        if ended.is_err_and(|error| error.is_panic()) {
            Metrics::panicked();
        }
    }
}
