//! Time as a value: no other module of this crate reads the wall clock.
//!
//! Decisions get their [`Timestamp`] as an argument. With Redis it is the server's `TIME`; in the embedded store it
//! comes from a [`Clock`], which is read once for each decision.

pub mod timer;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A time in milliseconds since the Unix epoch, the unit of the scores in Redisson's log of permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

/// Provides the time of a store in this process; set by `MemoryStoreBuilder::clock`.
pub trait Clock: std::fmt::Debug + Send + Sync {
    /// Returns the present time. The store reads it once for each decision. If it goes back, the store grants no
    /// additional permits.
    fn now(&self) -> Timestamp;
}

/// The wall clock as it was at start, advanced by the monotonic clock, so that setting the host's clock frees no
/// permits. The monotonic clock is Tokio's: tests stop it with `tokio::time::pause`.
#[derive(Debug)]
pub struct SystemClock {
    /// In whole milliseconds, so that tests that pause Tokio's clock see exact milliseconds.
    wall: Timestamp,
    start: Instant,
}

/// A clock that changes only when it is set, for tests and for replaying logs in virtual time. The default is the Unix
/// epoch.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

/// Measures a duration on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

thread_local! {
    /// The time of the poll that this thread runs: see [`poll_time`].
    static POLL_TIME: Cell<PollTime> = const { Cell::new(PollTime::NotShared) };
}

/// The state of [`POLL_TIME`].
#[derive(Clone, Copy, Debug)]
enum PollTime {
    /// Each call reads the clock.
    NotShared,
    /// The next call reads the clock for the rest of the poll.
    Unread,
    /// The clock was read at this time in the poll.
    Read(Instant),
}

/// Runs a poll in which all calls of [`poll_time`] return the same time. A forwarded HTTP/1 request needs the time seven
/// times, in two polls of a few microseconds. Seven readings would cost 1 % of its CPU time.
pub fn share_poll_time<T>(poll: impl FnOnce() -> T) -> T {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            POLL_TIME.set(PollTime::NotShared);
        }
    }
    POLL_TIME.set(PollTime::Unread);
    let _end = End; // also after a panic
    poll()
}

/// Makes the next call of [`poll_time`] read the clock. For a new request in the poll of the last one, which may have
/// taken milliseconds.
pub fn forget_poll_time() {
    if let PollTime::Read(_) = POLL_TIME.get() {
        POLL_TIME.set(PollTime::Unread);
    }
}

/// Returns the time of the poll that this thread runs, or the present time outside of [`share_poll_time`]. For metrics,
/// timeouts and `Date`, never to grant permits.
pub fn poll_time() -> Instant {
    match POLL_TIME.get() {
        PollTime::Read(time) => time,
        PollTime::NotShared => Instant::now(),
        PollTime::Unread => read_poll_time(),
    }
}

/// Returns the present time, also for the rest of the poll.
pub fn read_poll_time() -> Instant {
    let now = Instant::now();
    if !matches!(POLL_TIME.get(), PollTime::NotShared) {
        POLL_TIME.set(PollTime::Read(now));
    }
    now
}

/// Returns whole seconds since the Unix epoch by the wall clock. Used for dates in output, never for decisions.
pub fn unix_seconds() -> u64 {
    since_epoch().as_secs()
}

/// Returns the time since the Unix epoch by the wall clock. Used for dates in output, never for decisions.
pub fn since_epoch() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "this file is where the clocks are read")]
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the present wall time. Used for dates in output, never for decisions.
pub fn wall_time() -> Timestamp {
    Timestamp(millis(since_epoch()))
}

/// Returns the present wall time, for traces. Never used for decisions.
pub fn system_time() -> SystemTime {
    #[expect(clippy::disallowed_methods, reason = "this file is where the clocks are read")]
    SystemTime::now()
}

// === impl Timestamp ===

impl Timestamp {
    /// Returns the time in the format of RFC 3339, in UTC.
    #[doc(hidden)]
    pub fn to_rfc3339(self) -> String {
        let time = i64::try_from(self.0).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
        // The format has years of four digits, so a later time becomes the last time with such a year.
        time.map_or_else(|| "9999-12-31T23:59:59.999Z".to_owned(), |time| format!("{time:.3}"))
    }

    /// Creates the time `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the time `millis` milliseconds later, at most 2^64 - 1 ms after the epoch.
    pub const fn plus_millis(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Returns the milliseconds since `earlier`; 0 if `earlier` is later.
    pub const fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the milliseconds since `other`, negative if `other` is later; `i64::MIN` if they do not fit.
    #[doc(hidden)]
    pub fn signed_millis_since(self, other: Self) -> i64 {
        i64::try_from(i128::from(self.0) - i128::from(other.0)).unwrap_or(i64::MIN)
    }
}

// === impl SystemClock ===

impl SystemClock {
    /// Creates a clock that starts at the present wall time.
    pub fn new() -> Self {
        Self { wall: Timestamp(millis(since_epoch())), start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.wall.plus_millis(millis(self.start.elapsed()))
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000).saturating_add(duration.subsec_millis().into())
}

// === impl ManualClock ===

impl ManualClock {
    /// Creates a clock that is set to `now`.
    pub const fn at(now: Timestamp) -> Self {
        Self(AtomicU64::new(now.as_millis()))
    }

    /// Sets the clock, forwards or backwards.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_millis(), Ordering::SeqCst);
    }

    /// Moves the clock forward by `millis` milliseconds.
    pub fn advance_millis(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

// === impl Stopwatch ===

/// A measurement that starts now.
impl Default for Stopwatch {
    fn default() -> Self {
        Self::start()
    }
}

impl Stopwatch {
    /// Starts a measurement, at the time that the current poll of the task has read.
    pub fn start() -> Self {
        Self(poll_time())
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        // If the measurement started at the time of this poll, the clock is read again. Otherwise the work of this poll
        // would not count.
        let now = Some(poll_time()).filter(|now| *now > self.0).unwrap_or_else(read_poll_time);
        now.saturating_duration_since(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns after the monotonic clock has advanced.
    fn wait_for_tick() {
        let start = Instant::now();
        while Instant::now() <= start {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn poll_has_one_time() {
        let read = || {
            let first = poll_time();
            wait_for_tick();
            (first, poll_time())
        };
        let (first, second) = share_poll_time(read);
        assert_eq!(first, second);
        wait_for_tick();
        assert!(share_poll_time(poll_time) > second, "a poll has the time of the last one");
        let forgotten = || (poll_time(), wait_for_tick(), forget_poll_time(), poll_time());
        let (first, (), (), second) = share_poll_time(forgotten);
        assert!(first < second);
        let reread = || (poll_time(), wait_for_tick(), read_poll_time(), poll_time());
        let (first, (), second, third) = share_poll_time(reread);
        assert!(first < second && second == third);
        let (first, second) = read();
        assert!(first < second, "calls outside of a poll share a time");
    }

    #[test]
    fn measurement_within_a_poll_has_a_duration() {
        let elapsed = share_poll_time(|| {
            let stopwatch = Stopwatch::start();
            wait_for_tick();
            stopwatch.elapsed()
        });
        assert!(elapsed > Duration::ZERO);
    }

    #[test]
    fn panic_ends_the_time_of_a_poll() {
        let poll = || share_poll_time(|| -> Instant { panic!("{:?}", poll_time()) });
        assert!(std::panic::catch_unwind(poll).is_err());
        assert!(matches!(POLL_TIME.get(), PollTime::NotShared));
    }
}
