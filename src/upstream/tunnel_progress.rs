//! How far a switched connection has come, and when it has reached a bound.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::metrics::Switched;
use crate::upgrade::TunnelLimits;

/// How long the other side may be silent once one has closed its half.
const HALF_CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// What has moved, and who has ended.
#[derive(Debug)]
pub(super) struct TunnelProgress {
    bounds: TunnelLimits,
    begin: Instant,
    /// Milliseconds from `begin` to when a byte last moved.
    moved: AtomicU64,
    /// Bytes of both directions.
    bytes: AtomicU64,
    upstream_ended: AtomicBool,
    client_ended: AtomicBool,
    /// One side has ended, or the bytes are used up.
    changed: Notify,
}

impl TunnelProgress {
    pub(super) fn new(bounds: TunnelLimits) -> Self {
        Self {
            bounds,
            begin: Instant::now(),
            moved: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            upstream_ended: AtomicBool::new(false),
            client_ended: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// So many bytes move.
    pub(super) fn note(&self, bytes: usize) {
        self.note_time();
        self.bytes.fetch_add(bytes as u64, Relaxed);
        if self.is_used_up() {
            self.changed.notify_one();
        }
    }

    pub(super) fn end_upstream(&self) {
        self.end(&self.upstream_ended);
    }

    pub(super) fn end_client(&self) {
        self.end(&self.client_ended);
    }

    pub(super) fn upstream_has_ended(&self) -> bool {
        self.upstream_ended.load(Relaxed)
    }

    pub(super) fn client_has_ended(&self) -> bool {
        self.client_ended.load(Relaxed)
    }

    /// Waits until a bound is reached.
    pub(super) async fn overdue(&self) -> Switched {
        let last = self.bounds.max_time.and_then(|most| self.begin.checked_add(most));
        loop {
            let (now, idle) = (Instant::now(), self.idle_at());
            if self.is_used_up() {
                return Switched::MaxBytes;
            }
            if last.is_some_and(|last| last <= now) {
                return Switched::MaxTime;
            }
            if idle <= now {
                return Switched::Idle;
            }
            tokio::select! {
                () = sleep_until(last.map_or(idle, |last| idle.min(last))) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// When it has been idle for too long, if nothing moves any more.
    fn idle_at(&self) -> Instant {
        let is_half = self.client_has_ended() || self.upstream_has_ended();
        let patience =
            if is_half { HALF_CLOSE_TIMEOUT.min(self.bounds.idle_timeout) } else { self.bounds.idle_timeout };
        self.begin + Duration::from_millis(self.moved.load(Relaxed)) + patience
    }

    fn is_used_up(&self) -> bool {
        self.bounds.max_bytes.is_some_and(|most| self.bytes.load(Relaxed) > most)
    }

    fn end(&self, side: &AtomicBool) {
        side.store(true, Relaxed);
        self.note_time();
        self.changed.notify_one();
    }

    fn note_time(&self) {
        let now = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(now, Relaxed);
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

    /// How it ends, and after how long, if so many bytes move every minute.
    async fn ends(progress: &TunnelProgress, bytes: usize) -> (Switched, u64) {
        let begin = Instant::now();
        loop {
            if let Ok(how) = timeout(MINUTE, progress.overdue()).await {
                return (how, begin.elapsed().as_secs() / 60);
            }
            if bytes > 0 {
                progress.note(bytes);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_idle_while_nothing_moves_and_bound_by_time_and_bytes_while_something_does() {
        assert_eq!(ends(&progress(None, None), 0).await, (Switched::Idle, 10));
        assert_eq!(ends(&progress(Some(99 * MINUTE), None), 1).await, (Switched::MaxTime, 99));
        assert_eq!(ends(&progress(None, Some(70)), 1).await, (Switched::MaxBytes, 71));
        assert_eq!(ends(&progress(Some(5 * MINUTE), Some(70)), 0).await, (Switched::MaxTime, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_alone_is_waited_for_less_from_the_moment_of_the_others_end() {
        for end in [TunnelProgress::end_client, TunnelProgress::end_upstream] {
            let progress = progress(None, None);
            let mut overdue = std::pin::pin!(progress.overdue());
            timeout(9 * MINUTE, &mut overdue).await.expect_err("one minute is left");
            end(&progress);
            let begin = Instant::now();
            overdue.await;
            assert_eq!(begin.elapsed().as_secs(), HALF_CLOSE_TIMEOUT.as_secs());
        }
    }
}
