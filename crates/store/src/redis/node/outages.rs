//! Logs each outage of a node once: when the first connection goes down, and when the last has recovered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::fallback::{Fallback, LocalCounts};
use tidegate_metrics::Metrics;
use tidegate_rules::settings::store::RedisUrl;

#[derive(Debug)]
pub(crate) struct Outages {
    url: RedisUrl,
    fallback: Arc<Fallback>,
    up: Arc<UpGauge>,
    current: Mutex<Option<OngoingOutage>>,
}

/// The gauge that shows whether all nodes of the store are reachable.
#[derive(Debug)]
pub(crate) struct UpGauge {
    metrics: Arc<Metrics>,
    /// The number of unreachable nodes.
    down_nodes: AtomicUsize,
}

/// An outage that has not ended.
#[derive(Debug)]
struct OngoingOutage {
    /// The number of connections that are down.
    down: usize,
    /// The cause of the first failure, or of the latest failed attempt.
    cause: String,
    since: Instant,
    attempts: u64,
    /// The local decisions before the outage.
    before: LocalCounts,
}

/// A connection that is down, or a node that refuses calls.
#[derive(Debug)]
pub(crate) struct Outage {
    outages: Arc<Outages>,
    kind: OutageKind,
    has_recovered: bool,
}

#[derive(Clone, Copy, Debug)]
enum OutageKind {
    Unreachable,
    Refusal,
}

// === impl Outages ===

impl Outages {
    pub(crate) fn new(url: RedisUrl, fallback: Arc<Fallback>, up: Arc<UpGauge>) -> Self {
        Self { url, fallback, up, current: Mutex::default() }
    }

    /// Returns the cause of the current outage, if there is one.
    pub(crate) fn cause(&self) -> Option<String> {
        self.current.lock().as_ref().map(|current| current.cause.clone())
    }

    /// Records that a connection is down.
    pub(crate) fn begin(self: &Arc<Self>, cause: &str) -> Outage {
        self.begin_as(OutageKind::Unreachable, cause)
    }

    /// Records that the node refuses calls, with its error. Replaces another cause: connections to the node are open.
    pub(crate) fn begin_refusal(self: &Arc<Self>, cause: &str) -> Outage {
        let outage = self.begin_as(OutageKind::Refusal, cause);
        outage.set_cause(cause);
        outage
    }

    fn begin_as(self: &Arc<Self>, kind: OutageKind, cause: &str) -> Outage {
        let mut current = self.current.lock();
        if let Some(current) = &mut *current {
            current.down += 1;
        } else {
            let (since, before) = (Instant::now(), self.fallback.local_counts());
            *current = Some(OngoingOutage { down: 1, cause: cause.to_owned(), since, attempts: 0, before });
            self.up.mark_down();
            let event = match kind {
                OutageKind::Unreachable => "store is unreachable, retrying",
                OutageKind::Refusal => "store refuses calls, retrying",
            };
            tracing::warn!(url = %self.url, error = cause, "{event}");
        }
        Outage { outages: Arc::clone(self), kind, has_recovered: false }
    }

    fn log_recovery(&self, outage: &OngoingOutage) {
        let local = self.fallback.local_counts().since(outage.before);
        tracing::info!(
            url = %self.url,
            last_error = outage.cause,
            attempts = outage.attempts,
            lasted_ms = u64::try_from(outage.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            granted = local.granted,
            refused = local.refused,
            charged = local.charged,
            uncharged = local.uncharged,
            "store has recovered"
        );
    }
}

// === impl UpGauge ===

impl UpGauge {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, down_nodes: AtomicUsize::new(0) }
    }

    /// Records that one more node is unreachable.
    pub(crate) fn mark_down(&self) {
        self.down_nodes.fetch_add(1, Ordering::Relaxed);
        self.metrics.set_store_up(false);
    }

    /// Records that a node is reachable again, or no longer needed.
    pub(crate) fn mark_up(&self) {
        if self.down_nodes.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.metrics.set_store_up(true);
        }
    }
}

// === impl Outage ===

impl Outage {
    /// Records a failed attempt to reconnect or a failed self-test. Logs a new cause: a Redis that has restarted with a
    /// wrong certificate needs another fix.
    pub(crate) fn record_failure(&self, cause: &str) {
        if let Some(current) = &mut *self.outages.current.lock() {
            current.attempts += 1;
        }
        self.set_cause(cause);
    }

    fn set_cause(&self, cause: &str) {
        if let Some(current) = &mut *self.outages.current.lock()
            && current.cause != cause
        {
            cause.clone_into(&mut current.cause);
            let event = match self.kind {
                OutageKind::Unreachable => "store is unreachable for another reason, retrying",
                OutageKind::Refusal => "store refuses calls for another reason, retrying",
            };
            tracing::warn!(url = %self.outages.url, error = cause, "{event}");
        }
    }

    /// Records that the connection is open again, or that the node accepts calls.
    pub(crate) fn recovered(mut self) {
        self.has_recovered = true;
    }
}

/// A connection that is dropped while it is down ends the outage without a log line, since the node has not recovered.
impl Drop for Outage {
    fn drop(&mut self) {
        let mut current = self.outages.current.lock();
        if let Some(current) = &mut *current {
            current.down -= 1;
        }
        let Some(ended) = current.take_if(|current| current.down == 0) else { return };
        self.outages.up.mark_up();
        if self.has_recovered {
            self.outages.log_recovery(&ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::logged_by;

    #[test]
    fn outage_of_several_connections_is_logged_once() {
        let url = RedisUrl::new("redis://127.0.0.1:1".to_owned());
        let metrics = Arc::new(Metrics::new());
        let up = Arc::new(UpGauge::new(Arc::clone(&metrics)));
        let outages = Arc::new(Outages::new(url, Arc::new(Fallback::new(1)), up));
        let log = logged_by(|| {
            let (first, second) = (outages.begin("slow"), outages.begin("gone"));
            assert_eq!(outages.cause().as_deref(), Some("slow"));
            assert!(metrics.render().contains("tidegate_store_up 0\n"));
            first.record_failure("slow");
            first.recovered();
            second.record_failure("slow");
            assert_eq!(outages.cause().as_deref(), Some("slow"));
            second.recovered();
            assert_eq!(outages.cause(), None);
            assert!(metrics.render().contains("tidegate_store_up 1\n"));
        });
        assert_eq!(log.lines().count(), 2, "{log}");
        assert!(
            log.contains(r#"store has recovered url=redis://127.0.0.1:1 last_error="slow" attempts=2 lasted_ms="#),
            "{log}"
        );
        assert!(log.contains("granted=0 refused=0 charged=0 uncharged=0"), "{log}");
    }
}
