//! The traffic of an upgraded connection, and its limits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use tidegate_metrics::TunnelEnd;
use tidegate_rules::route::upgrade::TunnelLimits;

/// The longest silence of one side after the other side has closed its half.
const HALF_CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The traffic of an upgraded connection, and which sides have closed.
#[derive(Debug)]
pub(super) struct TunnelProgress {
    limits: TunnelLimits,
    start: Instant,
    /// Milliseconds from `start` to the last byte.
    last_byte: AtomicU64,
    /// Bytes of both directions.
    bytes: AtomicU64,
    upstream_closed: AtomicBool,
    client_closed: AtomicBool,
    /// Notified when a side closes, or the byte limit is exceeded.
    changed: Notify,
}

impl TunnelProgress {
    pub(super) fn new(limits: TunnelLimits) -> Self {
        Self {
            limits,
            start: Instant::now(),
            last_byte: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            upstream_closed: AtomicBool::new(false),
            client_closed: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Records bytes of either direction.
    pub(super) fn record_bytes(&self, bytes: usize) {
        self.record_time();
        self.bytes.fetch_add(bytes as u64, Relaxed);
        if self.has_exceeded_max_bytes() {
            self.changed.notify_one();
        }
    }

    pub(super) fn close_upstream(&self) {
        self.close(&self.upstream_closed);
    }

    pub(super) fn close_client(&self) {
        self.close(&self.client_closed);
    }

    pub(super) fn has_upstream_closed(&self) -> bool {
        self.upstream_closed.load(Relaxed)
    }

    pub(super) fn has_client_closed(&self) -> bool {
        self.client_closed.load(Relaxed)
    }

    /// Waits until a limit is reached.
    pub(super) async fn limit_reached(&self) -> TunnelEnd {
        let end = self.limits.max_time.and_then(|max| self.start.checked_add(max));
        loop {
            let (now, idle) = (Instant::now(), self.idle_deadline());
            if self.has_exceeded_max_bytes() {
                return TunnelEnd::MaxBytes;
            }
            if end.is_some_and(|end| end <= now) {
                return TunnelEnd::MaxTime;
            }
            if idle <= now {
                return TunnelEnd::Idle;
            }
            tokio::select! {
                () = sleep_until(end.map_or(idle, |end| idle.min(end))) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Returns the end of the idle timeout, if no further bytes come.
    fn idle_deadline(&self) -> Instant {
        let is_half_closed = self.has_client_closed() || self.has_upstream_closed();
        let timeout =
            if is_half_closed { HALF_CLOSE_TIMEOUT.min(self.limits.idle_timeout) } else { self.limits.idle_timeout };
        self.start + Duration::from_millis(self.last_byte.load(Relaxed)) + timeout
    }

    fn has_exceeded_max_bytes(&self) -> bool {
        self.limits.max_bytes.is_some_and(|max| self.bytes.load(Relaxed) > max)
    }

    fn close(&self, side: &AtomicBool) {
        side.store(true, Relaxed);
        self.record_time();
        self.changed.notify_one();
    }

    fn record_time(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_byte.store(now, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn progress(max_time: Option<Duration>, max_bytes: Option<u64>) -> TunnelProgress {
        TunnelProgress::new(TunnelLimits { idle_timeout: 10 * MINUTE, max_time, max_bytes })
    }

    /// Returns which limit is reached, and after how many minutes, if `bytes` bytes come in each minute.
    async fn limit_and_minutes(progress: &TunnelProgress, bytes: usize) -> (TunnelEnd, u64) {
        let begin = Instant::now();
        loop {
            if let Ok(how) = timeout(MINUTE, progress.limit_reached()).await {
                return (how, begin.elapsed().as_secs() / 60);
            }
            if bytes > 0 {
                progress.record_bytes(bytes);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tunnel_reaches_idle_time_and_byte_limits() {
        assert_eq!(limit_and_minutes(&progress(None, None), 0).await, (TunnelEnd::Idle, 10));
        assert_eq!(limit_and_minutes(&progress(Some(99 * MINUTE), None), 1).await, (TunnelEnd::MaxTime, 99));
        assert_eq!(limit_and_minutes(&progress(None, Some(70)), 1).await, (TunnelEnd::MaxBytes, 71));
        assert_eq!(limit_and_minutes(&progress(Some(5 * MINUTE), Some(70)), 0).await, (TunnelEnd::MaxTime, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn half_closed_tunnel_has_a_shorter_idle_timeout() {
        for close in [TunnelProgress::close_client, TunnelProgress::close_upstream] {
            let progress = progress(None, None);
            let mut limit_reached = std::pin::pin!(progress.limit_reached());
            timeout(9 * MINUTE, &mut limit_reached).await.expect_err("one minute is left");
            close(&progress);
            let begin = Instant::now();
            limit_reached.await;
            assert_eq!(begin.elapsed().as_secs(), HALF_CLOSE_TIMEOUT.as_secs());
        }
    }
}
