//! The clients with the most requests, bytes and permits, rejected or not, for operators. Clients can have any number of
//! addresses, so the memory is bounded: the counts are sketches with a known error.
//!
//! Each worker counts in its own sketches, and only if operators ask for it (`admin.talkers`). The control thread collects
//! them every two seconds, and before an operator reads the counts.

mod counts;
mod history;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::DefaultHashBuilder;
use ipnet::IpNet;
use parking_lot::Mutex;

pub use self::counts::Amount;
use self::counts::{Counts, Key};
use self::history::History;
use tidegate_limit::clock::Timestamp;

/// The talkers of a gateway.
#[derive(Debug, Default)]
pub struct Talkers {
    /// One for each worker.
    recorders: Box<[Arc<TalkerRecorder>]>,
    history: Mutex<History>,
}

/// Counts the requests of one worker until the control thread collects them.
#[derive(Debug)]
pub struct TalkerRecorder {
    is_on: AtomicBool,
    /// Only the control thread uses the lock too, for less than a microsecond.
    counts: Mutex<Counts>,
    hasher: DefaultHashBuilder,
}

/// The amounts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The bytes of both bodies.
    pub bytes: u64,
    /// The permits of all limits together.
    pub permits: u64,
}

/// A client with its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Talker {
    /// The address; for IPv6 the network that counts as one client.
    pub client: IpNet,
    /// Its requests.
    pub requests: Bounds,
    /// The bytes of their bodies.
    pub bytes: Bounds,
    /// The permits of their limits.
    pub permits: Bounds,
}

/// A count of a sketch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The highest possible value.
    pub count: u64,
    /// The difference to the lowest possible value.
    pub error: u64,
}

// === impl Talkers ===

impl Talkers {
    /// Creates the talkers of a gateway with this many workers, which do not count yet.
    pub fn new(workers: usize) -> Self {
        let hasher = DefaultHashBuilder::default(); // the same for all, since their sketches are merged
        let recorder = || TalkerRecorder {
            is_on: AtomicBool::new(false),
            counts: Mutex::new(Counts::new()),
            hasher: hasher.clone(),
        };
        Self { recorders: (0..workers).map(|_| Arc::new(recorder())).collect(), history: Mutex::default() }
    }

    /// Returns the recorder of a worker.
    pub fn recorder(&self, worker: usize) -> Option<Arc<TalkerRecorder>> {
        self.recorders.get(worker).cloned()
    }

    /// Sets whether workers count. Forgets all counts otherwise.
    pub fn set_on(&self, is_on: bool) {
        self.recorders.iter().for_each(|recorder| recorder.is_on.store(is_on, Ordering::Relaxed));
        if !is_on {
            self.recorders.iter().for_each(|recorder| _ = recorder.take());
            *self.history.lock() = History::default();
        }
    }

    /// Collects the counts of the workers.
    pub fn collect(&self, now: Timestamp) {
        for counts in self.recorders.iter().filter(|recorder| recorder.is_on()).filter_map(|recorder| recorder.take()) {
            self.history.lock().add(now, &counts);
        }
    }

    /// Returns the clients with the most of an amount in the current minute and the `minutes` before, at most `max`.
    pub fn top(&self, now: Timestamp, minutes: u64, by: Amount, max: usize) -> Vec<Talker> {
        self.collect(now);
        let counts = self.history.lock().merged(now, minutes);
        let top = counts.most(by);
        let others: Vec<HashMap<Key, Bounds>> = Amount::ALL.map(|amount| counts.bounds(amount)).into();
        // A client that has left a sketch may have as much as the sketch can have forgotten.
        let rest = |amount| Bounds { count: counts.rest(amount), error: counts.rest(amount) };
        let of = |amount: Amount, key: &Key| others[amount as usize].get(key).copied().unwrap_or_else(|| rest(amount));
        let talker = |key: Key| Talker {
            client: key.client,
            requests: of(Amount::Requests, &key),
            bytes: of(Amount::Bytes, &key),
            permits: of(Amount::Permits, &key),
        };
        top.into_iter().take(max).map(talker).collect()
    }
}

// === impl TalkerRecorder ===

impl TalkerRecorder {
    /// Returns `true` if requests are counted.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Counts a request of a client.
    pub fn record(&self, client: IpNet, used: Use) {
        let key = Key::new(client, &self.hasher);
        self.counts.lock().add(key, used);
    }

    /// Takes the counts so far; `None` without any.
    fn take(&self) -> Option<Counts> {
        let mut counts = self.counts.lock();
        (!counts.is_empty()).then(|| std::mem::replace(&mut *counts, Counts::new()))
    }
}
