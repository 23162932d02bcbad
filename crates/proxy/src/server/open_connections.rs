//! The open connections of a worker on one listener. Selects the connection that is closed when a new one needs its
//! slot.
//!
//! Connections are not kept sorted. When a slot is needed, all connections are examined once. Those that wait for
//! their clients are then closed one by one as new ones arrive, unless they have made progress since.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::activity::{Activity, ClientWait, WaitReason};
use super::connection_slots::ConnectionSlot;
use super::rank::{Candidate, rank};
use tidegate_metrics::Metrics;

/// How many candidates one examination finds.
const MAX_CANDIDATES: usize = 128;

/// The pause after an examination that found fewer than [`MAX_CANDIDATES`] is this time for each open connection: about
/// ten times the duration of the examination. So a flood of connections cannot make examinations costly.
const EXAMINATION_PAUSE: Duration = Duration::from_micros(3);

/// A warning is logged again if no connection was evicted for this long.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// The open connections.
#[derive(Debug, Default)]
pub(crate) struct OpenConnections {
    tasks: JoinSet<()>,
    connections: HashMap<Id, OpenConnection>,
    /// Connections to close next, in reverse order.
    candidates: Vec<Id>,
    /// The earliest time of the next examination, after one that found all candidates.
    next_examination: Option<Instant>,
    last_eviction: Option<Instant>,
}

#[derive(Debug)]
struct OpenConnection {
    activity: Arc<Activity>,
    slot: Arc<ConnectionSlot>,
    task: AbortHandle,
}

impl OpenConnections {
    /// Serves a connection that has this slot.
    pub(crate) fn spawn(
        &mut self,
        slot: Arc<ConnectionSlot>,
        activity: Arc<Activity>,
        serving: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.tasks.spawn(serving);
        self.connections.insert(task.id(), OpenConnection { activity, slot, task });
    }

    /// Waits until a connection is closed. Returns `None` if none is open.
    pub(crate) async fn join_next(&mut self) -> Option<()> {
        let ended = self.tasks.join_next_with_id().await?;
        self.connections.remove(&ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id));
        // A panic ends only its own connection.
        if ended.is_err_and(|error| error.is_panic()) {
            Metrics::panicked();
        }
        Some(())
    }

    /// Returns the number of open connections.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Closes idle HTTP/1 connections. Their tasks do not observe the drain.
    pub(crate) fn close_idle(&self) {
        self.connections
            .values()
            .filter(|connection| connection.activity.is_idle())
            .for_each(|connection| connection.task.abort());
    }

    /// Aborts all connections.
    pub(crate) async fn abort_all(&mut self) {
        self.tasks.shutdown().await;
        self.connections.clear();
    }

    /// Closes the connection that is least in use, and releases its slot at once. Returns the reason of its wait, or
    /// `None` if all connections are in use.
    pub(crate) fn evict_one(&mut self) -> Option<WaitReason> {
        loop {
            let Some(id) = self.candidates.pop() else {
                self.find_candidates();
                self.candidates.last()?;
                continue;
            };
            let Some(ClientWait { reason, .. }) = self.connections.get(&id).and_then(OpenConnection::evictable) else {
                continue;
            };
            let connection = self.connections.remove(&id)?;
            self.log_eviction(&connection, reason);
            connection.close();
            return Some(reason);
        }
    }

    /// Finds the connections that may be closed.
    fn find_candidates(&mut self) {
        let now = Instant::now();
        if self.next_examination.is_some_and(|at| now < at) {
            return;
        }
        let ranked = self.connections.iter().filter_map(|(id, connection)| {
            let wait = connection.evictable()?;
            let client = connection.slot.client();
            let held = client.map_or(1, |client| connection.slot.count_of(&client));
            Some(Candidate { key: *id, client, held, wait })
        });
        self.candidates = rank(ranked.collect());
        let pause = EXAMINATION_PAUSE * u32::try_from(self.connections.len()).unwrap_or(u32::MAX);
        self.next_examination = (self.candidates.len() < MAX_CANDIDATES).then_some(now + pause);
        self.candidates.truncate(MAX_CANDIDATES);
        self.candidates.reverse();
    }

    fn log_eviction(&mut self, connection: &OpenConnection, reason: WaitReason) {
        let (now, peer, cause) = (Instant::now(), connection.slot.peer().ip(), reason.cause());
        if self.last_eviction.is_none_or(|last| now - last >= LOG_PAUSE) {
            tracing::warn!(%peer, cause, "connection limit reached, closing connections that wait for their client");
        } else {
            tracing::debug!(%peer, cause, "closed a connection to free its slot");
        }
        self.last_eviction = Some(now);
    }
}

impl OpenConnection {
    /// Returns the connection's wait for its client, if it has lasted long enough to evict the connection.
    fn evictable(&self) -> Option<ClientWait> {
        self.activity.client_wait().filter(|wait| wait.duration >= wait.reason.min_wait_to_evict())
    }

    fn close(self) {
        if self.activity.is_busy() {
            self.activity.abort_response();
        }
        self.slot.release();
        self.task.abort();
    }
}
