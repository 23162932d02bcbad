//! How long a stream waits for its client.

use std::future::Future;
use std::mem::replace;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::server::activity::Activity;
use crate::server::pace::{Demand, Pace, millis};

/// The pace of a stream's body in one direction, and the timer that ends it. There is none before the first wait.
#[derive(Debug)]
pub(super) struct Deadline {
    pace: Pace,
    demand: Demand,
    activity: Arc<Activity>,
    /// Of a tunnel, whose silence is noted otherwise.
    is_tunnel: bool,
    begin: Option<Instant>,
    /// The bytes that the connection had written when this stream last waited for its socket.
    written: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    pub(super) fn new(demand: Demand, activity: Arc<Activity>) -> Self {
        Self { pace: Pace::new(), demand, activity, is_tunnel: false, begin: None, written: 0, timer: None }
    }

    /// The stream is a tunnel.
    pub(super) fn becomes_tunnel(&mut self) {
        self.is_tunnel = true;
    }

    /// Waits like [`poll_overdue`](Self::poll_overdue) while the send queue of the connection is full. Each of its streams is
    /// credited with an equal share of the bytes that the connection has `written`: a slow client serves them in turn.
    pub(super) fn poll_overdue_in_queue(&mut self, written: u64, cx: &mut Context<'_>) -> Poll<()> {
        let progress = written - replace(&mut self.written, written);
        let share = progress / u64::from(self.activity.in_flight().max(1));
        if share > 0 && self.pace.is_waiting() {
            self.moved(usize::try_from(share).unwrap_or(usize::MAX));
        }
        self.poll_overdue(cx)
    }

    /// What is asked of one stream: all of a connection share its rate, since a slow network has no more for many.
    fn share(&self) -> Demand {
        Demand { rate: self.demand.rate / u64::from(self.activity.in_flight().max(1)), ..self.demand }
    }

    /// Bytes moved.
    pub(super) fn moved(&mut self, bytes: usize) {
        if self.is_tunnel {
            self.activity.tunnel_moved();
        }
        if let Some(begin) = self.begin {
            self.go_on();
            self.pace.moves(bytes, || millis(begin.elapsed()));
        }
    }

    /// The client is no longer waited for.
    pub(super) fn end_wait(&self) {
        if let Some(begin) = self.begin
            && self.pace.is_waiting()
        {
            self.go_on();
            self.pace.moves(0, || millis(begin.elapsed()));
        }
    }

    fn go_on(&self) {
        if self.pace.is_waiting() && !self.is_tunnel {
            self.activity.stream_goes_on();
        }
    }

    /// The client is waited for; ready when that has taken too long.
    pub(super) fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let begin = *self.begin.get_or_insert_with(Instant::now);
        if !self.pace.is_waiting() {
            if !self.is_tunnel {
                self.activity.stream_waits();
            }
            self.pace.wait(|| millis(begin.elapsed()));
        }
        loop {
            let Ok(look) = self.pace.judge(millis(begin.elapsed()), self.share()) else { return Poll::Ready(()) };
            let at = look.map_or(begin + self.demand.timeout, |look| begin + Duration::from_millis(look));
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if timer.deadline() != at {
                timer.as_mut().reset(at);
            }
            ready!(timer.as_mut().poll(cx));
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.go_on();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn deadline() -> Deadline {
        of_connection(&Arc::new(Activity::new(Instant::now())))
    }

    fn of_connection(activity: &Arc<Activity>) -> Deadline {
        Deadline::new(Demand { timeout: 10 * SECOND, rate: 100 }, Arc::clone(activity))
    }

    /// Seconds until it is overdue, if so many bytes come every so often.
    async fn lasts(bytes: usize, every: Duration) -> u64 {
        lasts_with(deadline(), bytes, every).await
    }

    async fn lasts_with(mut deadline: Deadline, bytes: usize, every: Duration) -> u64 {
        let begin = Instant::now();
        while begin.elapsed() < 1000 * SECOND {
            let overdue = poll_fn(|cx| deadline.poll_overdue(cx));
            if tokio::time::timeout(every, overdue).await.is_ok() {
                break;
            }
            deadline.moved(bytes);
        }
        begin.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_be_slow_and_may_pause_and_may_not_trickle() {
        assert_eq!(lasts(0, 2000 * SECOND).await, 10);
        assert_eq!(lasts(1, SECOND).await, 10);
        assert_eq!(lasts(99, SECOND).await, 10);
        assert!(lasts(120, SECOND).await >= 1000);
        assert!(lasts(2000, 9 * SECOND).await >= 1000);
        assert_eq!(lasts(1_000_000, 11 * SECOND).await, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn the_streams_of_a_connection_share_the_rate_that_is_asked_of_it() {
        let activity = Arc::new(Activity::new(Instant::now()));
        let _streams: Vec<_> = (0..10).map(|_| activity.begin_request(false)).collect();
        assert!(lasts_with(of_connection(&activity), 12, SECOND).await >= 1000);
        assert_eq!(lasts_with(of_connection(&activity), 9, SECOND).await, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn only_waiting_for_the_client_counts() {
        let mut deadline = deadline();
        for _ in 0..100 {
            tokio::time::advance(100 * SECOND).await;
            deadline.moved(1);
        }
        let begin = Instant::now();
        poll_fn(|cx| deadline.poll_overdue(cx)).await;
        assert_eq!(begin.elapsed(), 10 * SECOND);
    }
}
