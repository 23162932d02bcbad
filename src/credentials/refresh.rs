//! The state of the fetches of a key set: tokens with unknown keys share one fetch, and do not repeat it at once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The shortest time between two fetches for tokens with unknown keys. Otherwise clients could flood the issuer.
const UNKNOWN_KEY_PAUSE: Duration = Duration::from_secs(15);

/// The state of the fetches of a key set.
#[derive(Debug)]
pub(super) struct Refresh {
    pub(super) wanted: Arc<Notify>,
    /// Counts the finished fetches for tokens with unknown keys.
    pub(super) finished: watch::Sender<u64>,
    on_demand: Mutex<OnDemand>,
    /// Why the last fetch failed.
    fault: Mutex<Option<String>>,
}

/// The last fetch for a token with an unknown key.
#[derive(Debug, Default)]
struct OnDemand {
    started: Option<Instant>,
    is_in_flight: bool,
}

impl Default for Refresh {
    fn default() -> Self {
        Self {
            wanted: Arc::default(),
            finished: watch::channel(0).0,
            on_demand: Mutex::default(),
            fault: Mutex::default(),
        }
    }
}

impl Refresh {
    /// Starts a fetch for a token with an unknown key. Returns `false` if one has just ended.
    pub(super) fn request(&self) -> bool {
        let mut last = self.on_demand.lock();
        if !last.is_in_flight {
            if last.started.is_some_and(|started| started.elapsed() < UNKNOWN_KEY_PAUSE) {
                return false;
            }
            *last = OnDemand { started: Some(Instant::now()), is_in_flight: true };
            self.wanted.notify_one();
        }
        true
    }

    /// Records the result of a fetch.
    pub(super) fn record(&self, fault: Option<&String>) {
        *self.fault.lock() = fault.cloned();
    }

    /// Returns why the last fetch failed.
    pub(super) fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    /// Ends the wait for a fetch that was [requested](Self::request). A fetch that began earlier does not end it, because
    /// its response may be older than the key.
    pub(super) fn finish(&self) {
        self.on_demand.lock().is_in_flight = false;
        self.finished.send_modify(|count| *count += 1);
    }
}
