//! What a connection is doing, and until when it may go on doing it.
//!
//! A connection waits for its first byte, for the rest of a head, for the next request, or for nothing at all while a
//! request is being answered. Reads and requests note what changes; the connection's one timer looks at the notes when
//! it fires, so that a request costs two marks and no timer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::Limits;
use super::protocol::Protocol;

/// An HTTP/2 client is through with its greeting after this many bytes: the preface and an empty SETTINGS frame.
const GREETING: u64 = 24 + 9;

/// Clients that ask again do so within this time, mostly.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// `blocked` while nothing is.
const NOT_BLOCKED: u64 = u64::MAX;

/// The notes on one connection. Moments are milliseconds after `begin`.
#[derive(Debug)]
pub(crate) struct Activity {
    begin: Instant,
    /// Whether it speaks HTTP/2, else HTTP/1.
    http2: AtomicBool,
    /// Requests that are being answered.
    in_flight: AtomicU32,
    /// Whether bytes have come that belong to a request that is not complete.
    partial: AtomicBool,
    /// When this wait began.
    since: AtomicU64,
    /// Bytes read so far.
    read: AtomicU64,
    /// Since when bytes of ours have waited for the client to take them.
    blocked: AtomicU64,
    /// An answer broke off in the middle.
    broken: AtomicBool,
    /// The last request has a body, which has not been read to its end.
    uploading: AtomicBool,
}

/// A request that is being answered, as long as this is kept.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Activity>);

/// What to do when the timer fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Look again then.
    Wait(Instant),
    /// Close once what is being answered is finished: nothing was asked for a long time.
    Retire,
    /// Close: the client keeps us waiting.
    Close,
}

impl Activity {
    /// A connection that was opened at `begin`.
    pub(crate) fn new(begin: Instant) -> Self {
        Self {
            begin,
            http2: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
            partial: AtomicBool::new(false),
            since: AtomicU64::new(0),
            read: AtomicU64::new(0),
            blocked: AtomicU64::new(NOT_BLOCKED),
            broken: AtomicBool::new(false),
            uploading: AtomicBool::new(false),
        }
    }

    /// The first byte has come, and tells this protocol.
    pub(crate) fn speaks(&self, protocol: Protocol) {
        self.http2.store(protocol == Protocol::Http2, Relaxed);
        self.mark();
    }

    /// Bytes came in.
    pub(crate) fn read(&self, count: usize) {
        self.read.fetch_add(count as u64, Relaxed);
        let begins = self.in_flight.load(Relaxed) == 0 && !self.partial.load(Relaxed);
        if begins && !self.is_http2() {
            self.partial.store(true, Relaxed);
            self.mark();
        }
    }

    /// Bytes of ours wait for the client, or no longer do.
    pub(crate) fn blocked(&self, blocked: bool) {
        let was = self.blocked.load(Relaxed) != NOT_BLOCKED;
        if blocked != was {
            self.blocked.store(if blocked { self.now() } else { NOT_BLOCKED }, Relaxed);
        }
    }

    /// A request's head is complete, and a body may follow.
    pub(crate) fn begin_request(self: &Arc<Self>, has_body: bool) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        self.partial.store(false, Relaxed);
        self.uploading.store(has_body, Relaxed);
        InFlight(Arc::clone(self))
    }

    /// The body of the last request has been read to its end, which may be after its answer.
    pub(crate) fn end_upload(&self) {
        self.uploading.store(false, Relaxed);
    }

    /// Whether the client may be in the middle of sending something that is not going to be read.
    pub(crate) fn may_be_sending(&self) -> bool {
        !self.is_http2() && (self.partial.load(Relaxed) || self.uploading.load(Relaxed))
    }

    /// Its answer is over, one way or the other.
    fn end_request(&self) {
        if self.in_flight.fetch_sub(1, Relaxed) == 1 {
            self.mark();
        }
    }

    /// An answer broke off in the middle. In HTTP/1 only a reset tells the client for certain.
    pub(crate) fn break_off(&self) {
        self.broken.store(true, Relaxed);
    }

    pub(crate) fn needs_reset(&self) -> bool {
        !self.is_http2() && self.broken.load(Relaxed)
    }

    /// What the timer is to do now.
    pub(crate) fn judge(&self, limits: &Limits) -> Verdict {
        let now = Instant::now();
        let (deadline, at_deadline) = self.deadline(limits);
        match deadline {
            Some(deadline) if deadline <= now => at_deadline,
            // A shorter wait may begin at any moment: no look is further away than the shortest of them.
            Some(deadline) => Verdict::Wait(deadline.min(now + limits.shortest())),
            None => Verdict::Wait(now + limits.shortest()),
        }
    }

    /// Whether nothing has been asked for a while, and nothing is left of what was: what serves requests may go.
    pub(crate) fn rests(&self) -> bool {
        let idle = self.in_flight.load(Relaxed) == 0 && !self.is_in_a_head() && !self.uploading.load(Relaxed);
        let blocked = self.blocked.load(Relaxed) != NOT_BLOCKED;
        idle && !blocked && self.now() >= self.since.load(Relaxed).saturating_add(millis(REST))
    }

    fn deadline(&self, limits: &Limits) -> (Option<Instant>, Verdict) {
        let after = |since: u64, limit| Some(self.begin + Duration::from_millis(since) + limit);
        let since = self.since.load(Relaxed);
        let blocked = self.blocked.load(Relaxed);
        if blocked != NOT_BLOCKED {
            (after(blocked, limits.stall_timeout), Verdict::Close)
        } else if self.in_flight.load(Relaxed) > 0 {
            (None, Verdict::Retire)
        } else if self.is_in_a_head() {
            (after(since, limits.header_timeout), Verdict::Close)
        } else {
            (after(since, limits.idle_timeout), Verdict::Retire)
        }
    }

    fn is_in_a_head(&self) -> bool {
        if self.is_http2() { self.read.load(Relaxed) < GREETING } else { self.partial.load(Relaxed) }
    }

    fn is_http2(&self) -> bool {
        self.http2.load(Relaxed)
    }

    fn mark(&self) {
        self.since.store(self.now(), Relaxed);
    }

    fn now(&self) -> u64 {
        millis(self.begin.elapsed())
    }
}

impl InFlight {
    /// The answer broke off in the middle.
    pub(crate) fn break_off(&self) {
        self.0.break_off();
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.end_request();
    }
}

impl Limits {
    pub(crate) fn shortest(&self) -> Duration {
        self.header_timeout.min(self.idle_timeout).min(self.stall_timeout)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NOT_BLOCKED - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        header_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(75),
        stall_timeout: Duration::from_secs(30),
    };

    fn speaking(protocol: Protocol) -> Arc<Activity> {
        let activity = Arc::new(Activity::new(Instant::now()));
        activity.speaks(protocol);
        activity
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    fn waits(activity: &Activity) -> bool {
        matches!(activity.judge(&LIMITS), Verdict::Wait(_))
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_own_time_from_its_first_byte_on() {
        let activity = speaking(Protocol::Http1);
        activity.read(1);
        pass(6).await;
        activity.read(1);
        assert!(waits(&activity));
        pass(4).await;
        assert_eq!(activity.judge(&LIMITS), Verdict::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_takes_the_time_it_takes_and_the_wait_for_the_next_begins_after_it() {
        let activity = speaking(Protocol::Http1);
        activity.read(100);
        let request = activity.begin_request(false);
        pass(1000).await;
        assert!(waits(&activity));
        drop(request);
        pass(74).await;
        assert!(waits(&activity));
        pass(1).await;
        assert_eq!(activity.judge(&LIMITS), Verdict::Retire);
    }

    #[tokio::test(start_paused = true)]
    async fn the_timer_never_sleeps_past_a_wait_that_may_begin_meanwhile() {
        let activity = speaking(Protocol::Http1);
        assert_eq!(activity.judge(&LIMITS), Verdict::Wait(Instant::now() + LIMITS.header_timeout));
        let _request = activity.begin_request(false);
        assert_eq!(activity.judge(&LIMITS), Verdict::Wait(Instant::now() + LIMITS.header_timeout));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_rests_a_while_after_its_last_request_was_read_and_answered_to_the_end() {
        let activity = speaking(Protocol::Http1);
        activity.read(100);
        let request = activity.begin_request(true);
        pass(5).await;
        drop(request);
        pass(5).await;
        assert!(!activity.rests());
        activity.end_upload();
        assert!(activity.rests());
        activity.read(1);
        assert!(!activity.rests());
        let request = activity.begin_request(false);
        drop(request);
        assert!(!activity.rests());
        pass(1).await;
        assert!(activity.rests());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_not_waited_for() {
        let activity = speaking(Protocol::Http1);
        let _request = activity.begin_request(false);
        activity.blocked(true);
        pass(20).await;
        activity.blocked(true);
        assert!(waits(&activity));
        pass(10).await;
        assert_eq!(activity.judge(&LIMITS), Verdict::Close);
        activity.blocked(false);
        assert!(waits(&activity));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_of_http2_has_a_heads_time_to_greet_and_may_then_be_idle() {
        let activity = speaking(Protocol::Http2);
        activity.read(24);
        pass(10).await;
        assert_eq!(activity.judge(&LIMITS), Verdict::Close);
        activity.read(9);
        assert!(waits(&activity));
        pass(65).await;
        assert_eq!(activity.judge(&LIMITS), Verdict::Retire);
    }
}
