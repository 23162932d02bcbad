//! The clients that are rejected most, for operators: by limits, or by another [`Cause`]. Clients can have any number of
//! names, so the memory is bounded: the counts are sketches with a known error.
//!
//! Each worker counts in its own sketch. The control thread collects these sketches every two seconds, and before an
//! operator reads the counts.

mod cause;
mod history;
mod key;
mod recorder;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;

pub use self::cause::Cause;
use self::history::{Entry, History};
pub use self::history::{MAX_MINUTES, minute_of};
pub use self::key::{Client, LimitId};
use self::recorder::{Context, Recorder};
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::ClientId;
use tidegate_store::Store;

/// The rejections of a gateway.
#[derive(Debug, Default)]
pub struct RejectedClients {
    /// One for each worker.
    recorders: Box<[Recorder]>,
    hasher: DefaultHashBuilder,
    /// Whether to keep the values of hashed clients in memory.
    keeps_values: AtomicBool,
    history: Mutex<History>,
    /// Incremented after each change of the history.
    version: AtomicU64,
}

/// A client that a limit or another cause has rejected.
#[derive(Clone, Debug)]
pub struct RejectedClient {
    pub limit: LimitId,
    pub client: Client,
    /// The highest possible number of rejections.
    pub count: u64,
    /// The difference to the lowest possible number.
    pub error: u64,
    /// The first rejection since the last pause of 15 minutes.
    pub since: Timestamp,
    pub last: Timestamp,
    /// The value of a hashed client, if it is kept.
    pub value: Option<Box<str>>,
}

/// The clients that were rejected in a minute.
#[derive(Clone, Debug)]
pub struct RejectedInMinute {
    /// The number of the minute since 1970.
    pub number: u64,
    /// The most rejected first.
    pub clients: Vec<RejectedClient>,
    /// The highest possible number of rejections of a client that is not in the list.
    pub rest: u64,
}

impl RejectedClients {
    pub fn new(workers: usize) -> Self {
        let recorders = (0..workers).map(|_| Recorder::new()).collect();
        Self { recorders, ..Self::default() }
    }

    /// Sets whether to keep the values of hashed clients. Forgets them otherwise.
    pub fn set_keeps_values(&self, keeps_values: bool) {
        self.keeps_values.store(keeps_values, Ordering::Relaxed);
        if !keeps_values {
            self.history.lock().forget_values();
        }
    }

    /// Counts a rejection on a worker.
    pub fn record(&self, worker: usize, limit: LimitId, client: Option<&ClientId>, store: &Store) {
        let context = Context { hasher: &self.hasher, keeps_values: self.keeps_values.load(Ordering::Relaxed) };
        if let Some(recorder) = self.recorders.get(worker) {
            recorder.record(limit, client, store, context);
        }
    }

    /// Collects the rejections of the workers.
    pub fn collect(&self, now: Timestamp) {
        for mut batch in self.recorders.iter().filter_map(Recorder::take) {
            if !self.keeps_values.load(Ordering::Relaxed) {
                batch.values.clear();
            }
            self.history.lock().add(now, batch);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns a number that is different after each collection of rejections.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the clients that were rejected in the current minute and the `minutes` before, the most rejected first.
    pub fn top(&self, now: Timestamp, minutes: u64) -> Vec<RejectedClient> {
        self.collect(now);
        self.history.lock().entries(now, minutes).into_iter().map(RejectedClient::from).collect()
    }

    /// Returns the clients that were rejected in each minute from this number on.
    pub fn minutes(&self, first: u64, now: Timestamp) -> Vec<RejectedInMinute> {
        let minute = |(number, entries, rest): (u64, Vec<Entry>, u64)| RejectedInMinute {
            number,
            clients: entries.into_iter().map(RejectedClient::from).collect(),
            rest,
        };
        self.history.lock().minutes(first, now).into_iter().map(minute).collect()
    }
}

impl From<Entry> for RejectedClient {
    fn from(Entry { key, count, error, since, last, value }: Entry) -> Self {
        Self { limit: key.limit, client: key.client, count, error, since, last, value }
    }
}
