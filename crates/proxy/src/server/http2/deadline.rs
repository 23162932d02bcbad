//! Limits how long a stream waits for its client.

use std::mem::replace;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::server::activity::Activity;
use crate::server::transfer_rate::{MinRate, TransferRate};
use tidegate_limit::clock::timer::Timer;

/// The transfer rate of a stream's body in one direction, and the timer that ends it.
#[derive(Debug)]
pub(super) struct StreamDeadline {
    rate: TransferRate,
    min_rate: MinRate,
    activity: Arc<Activity>,
    /// Whether the stream is a tunnel. Tunnels do not count as streams that wait: [`Activity`] records their bytes.
    is_tunnel: bool,
    /// The bytes that the connection had written when this stream last waited for the socket.
    written: u64,
    timer: Timer,
}

impl StreamDeadline {
    pub(super) fn new(min_rate: MinRate, activity: Arc<Activity>) -> Self {
        Self { rate: TransferRate::new(), min_rate, activity, is_tunnel: false, written: 0, timer: Timer::new() }
    }

    /// Marks the stream as a tunnel.
    pub(super) fn set_tunnel(&mut self) {
        self.is_tunnel = true;
    }

    /// Like [`poll_timeout`](Self::poll_timeout), while the send queue of the connection is full. Credits each stream
    /// with an equal share of the bytes that the connection has `written`, because a slow client serves its streams in
    /// turn.
    pub(super) fn poll_queue_timeout(&mut self, written: u64, cx: &mut Context<'_>) -> Poll<()> {
        let progress = written - replace(&mut self.written, written);
        let share = progress / u64::from(self.activity.in_flight().max(1));
        if share > 0 && self.rate.is_waiting() {
            self.record_bytes(usize::try_from(share).unwrap_or(usize::MAX));
        }
        self.poll_timeout(cx)
    }

    /// Returns the minimum rate of one stream. The streams of a connection share its rate, because a slow network is
    /// not faster for many streams.
    fn stream_rate(&self) -> MinRate {
        MinRate { rate: self.min_rate.rate / u64::from(self.activity.in_flight().max(1)), ..self.min_rate }
    }

    /// Records bytes that moved, which ends a wait.
    pub(super) fn record_bytes(&mut self, bytes: usize) {
        if self.is_tunnel {
            self.activity.record_tunnel_bytes();
        }
        self.end_stream_wait();
        self.rate.record_bytes(bytes, || self.activity.now());
    }

    /// Records that the stream no longer waits for the client.
    pub(super) fn end_wait(&mut self) {
        if self.rate.is_waiting() {
            self.end_stream_wait();
            self.rate.record_bytes(0, || self.activity.now());
        }
    }

    fn end_stream_wait(&self) {
        if self.rate.is_waiting() && !self.is_tunnel {
            self.activity.end_stream_wait();
        }
    }

    /// Records that the stream waits for the client. Returns `Ready` when the client is too slow.
    pub(super) fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.rate.is_waiting() {
            if !self.is_tunnel {
                self.activity.begin_stream_wait();
            }
            self.rate.begin_wait(|| self.activity.now());
        }
        // While the stream waits, `check` returns the time of the next check, or an error if the client is too slow.
        while let Ok(Some(check_at)) = self.rate.check(self.activity.now(), self.stream_rate()) {
            ready!(self.timer.poll(self.activity.instant(check_at), cx));
        }
        Poll::Ready(())
    }
}

impl Drop for StreamDeadline {
    fn drop(&mut self) {
        self.end_stream_wait();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn deadline() -> StreamDeadline {
        with_activity(&Arc::new(Activity::new(Instant::now())))
    }

    fn with_activity(activity: &Arc<Activity>) -> StreamDeadline {
        StreamDeadline::new(MinRate { timeout: 10 * SECOND, rate: 100 }, Arc::clone(activity))
    }

    /// Returns the seconds until the timeout if `bytes` arrive after every `every`.
    async fn seconds_until_timeout(bytes: usize, every: Duration) -> u64 {
        seconds_with(deadline(), bytes, every).await
    }

    async fn seconds_with(mut deadline: StreamDeadline, bytes: usize, every: Duration) -> u64 {
        let start = Instant::now();
        while start.elapsed() < 1000 * SECOND {
            let timed_out = poll_fn(|cx| deadline.poll_timeout(cx));
            if tokio::time::timeout(every, timed_out).await.is_ok() {
                break;
            }
            deadline.record_bytes(bytes);
        }
        start.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn slow_client_passes_and_trickling_client_times_out() {
        assert_eq!(seconds_until_timeout(0, 2000 * SECOND).await, 10);
        assert_eq!(seconds_until_timeout(1, SECOND).await, 10);
        assert_eq!(seconds_until_timeout(99, SECOND).await, 10);
        assert!(seconds_until_timeout(120, SECOND).await >= 1000);
        assert!(seconds_until_timeout(2000, 9 * SECOND).await >= 1000);
        assert_eq!(seconds_until_timeout(1_000_000, 11 * SECOND).await, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn streams_share_the_minimum_rate_of_a_connection() {
        let activity = Arc::new(Activity::new(Instant::now()));
        let _streams: Vec<_> = (0..10).map(|_| activity.begin_request(false)).collect();
        assert!(seconds_with(with_activity(&activity), 12, SECOND).await >= 1000);
        assert_eq!(seconds_with(with_activity(&activity), 9, SECOND).await, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn only_waits_for_the_client_are_timed() {
        let mut deadline = deadline();
        for _ in 0..100 {
            tokio::time::advance(100 * SECOND).await;
            deadline.record_bytes(1);
        }
        let start = Instant::now();
        poll_fn(|cx| deadline.poll_timeout(cx)).await;
        assert_eq!(start.elapsed(), 10 * SECOND);
    }
}
