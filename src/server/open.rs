//! The open connections of a worker on one listener, and which of them is closed when a new one needs its slot.
//!
//! Connections are not kept sorted. When a slot is needed, all connections are examined once; those that wait for their
//! clients are then closed one by one as new ones arrive, unless they have made progress since.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::activity::{Activity, Wait, What};
use super::rank::{Candidate, rank};
use super::slots::Slot;
use crate::metrics::Metrics;

/// How many candidates one examination finds.
const FOUND: usize = 128;

/// How long to wait before the next examination after one that found fewer.
const PAUSE: Duration = Duration::from_millis(50);

/// Log again when no connection was closed for this long.
const NEWS: Duration = Duration::from_secs(60);

/// Connections that are served.
#[derive(Debug, Default)]
pub(crate) struct Open {
    tasks: JoinSet<()>,
    connections: HashMap<Id, OpenConnection>,
    /// Connections to close next, the first one last.
    next: Vec<Id>,
    /// The earliest moment of the next examination, after one that found all there were.
    look_again: Option<Instant>,
    last_end: Option<Instant>,
}

#[derive(Debug)]
struct OpenConnection {
    activity: Arc<Activity>,
    slot: Arc<Slot>,
    task: AbortHandle,
}

impl Open {
    /// Serves a connection that has this slot.
    pub(crate) fn spawn(
        &mut self,
        slot: Arc<Slot>,
        activity: Arc<Activity>,
        serving: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.tasks.spawn(serving);
        self.connections.insert(task.id(), OpenConnection { activity, slot, task });
    }

    /// Waits for the end of one; none if there are none.
    pub(crate) async fn next_end(&mut self) -> Option<()> {
        let ended = self.tasks.join_next_with_id().await?;
        self.connections.remove(&ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id));
        // A connection that ended by a panic took nobody with it.
        if ended.is_err_and(|error| error.is_panic()) {
            Metrics::panicked();
        }
        Some(())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Closes those that wait for their next request, of which nobody tells them that there will be none.
    pub(crate) fn end_resting(&self) {
        self.connections
            .values()
            .filter(|connection| connection.activity.rests())
            .for_each(|connection| connection.task.abort());
    }

    /// Ends all of them.
    pub(crate) async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
        self.connections.clear();
    }

    /// Closes the connection that is least in use, frees its slot at once, and returns what it was waiting for; `None` if all
    /// are in use.
    pub(crate) fn end_one(&mut self) -> Option<What> {
        loop {
            let Some(id) = self.next.pop() else {
                self.look();
                self.next.last()?;
                continue;
            };
            let Some(Wait { what, .. }) = self.connections.get(&id).and_then(OpenConnection::spare) else { continue };
            let connection = self.connections.remove(&id)?;
            self.tell(&connection, what);
            connection.end();
            return Some(what);
        }
    }

    /// Finds connections that may be closed.
    fn look(&mut self) {
        let now = Instant::now();
        if self.look_again.is_some_and(|at| now < at) {
            return;
        }
        let mut held: HashMap<IpNet, usize> = HashMap::new();
        self.connections
            .values()
            .filter_map(|connection| connection.slot.client())
            .for_each(|client| *held.entry(client).or_default() += 1);
        let candidates = self.connections.iter().filter_map(|(id, connection)| {
            let client = connection.slot.client();
            let held = client.and_then(|client| held.get(&client)).copied().unwrap_or(1);
            Some(Candidate { key: *id, client, held, wait: connection.spare()? })
        });
        self.next = rank(candidates.collect());
        self.look_again = (self.next.len() < FOUND).then_some(now + PAUSE);
        self.next.truncate(FOUND);
        self.next.reverse();
    }

    fn tell(&mut self, connection: &OpenConnection, what: What) {
        let (now, peer, cause) = (Instant::now(), connection.slot.peer().ip(), what.cause());
        if self.last_end.is_none_or(|last| now - last >= NEWS) {
            tracing::warn!(%peer, cause, "all places are taken: connections that wait for their clients are ended");
        } else {
            tracing::debug!(%peer, cause, "ended a connection to make room");
        }
        self.last_end = Some(now);
    }
}

impl OpenConnection {
    /// What the connection waits for, if it may be closed.
    fn spare(&self) -> Option<Wait> {
        self.activity.wait().filter(|wait| wait.time >= wait.what.still())
    }

    fn end(self) {
        if self.activity.is_busy() {
            self.activity.break_off();
        }
        self.slot.give_back();
        self.task.abort();
    }
}
