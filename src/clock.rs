//! Time as a value: no other module of this crate reads a clock.
//!
//! Decisions get their [`Timestamp`] as an argument. With Redis it is the server's `TIME`; in the embedded store it
//! comes from a [`Clock`], which is read once for each decision.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A time in milliseconds since the Unix epoch, the unit of the scores in Redisson's log of permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

/// Provides the time of a store in this process; set by [`MemoryStoreBuilder::clock`](crate::MemoryStoreBuilder::clock).
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
    start: tokio::time::Instant,
}

/// A clock that changes only when it is set, for tests and for replaying logs in virtual time. The default is the Unix
/// epoch.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

/// Measures a duration on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

/// Returns whole seconds since the Unix epoch by the wall clock. Used for dates in output, never for decisions.
pub(crate) fn unix_seconds() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the wall clock for output")]
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the present wall time. Used for dates in output, never for decisions.
#[cfg(feature = "gateway")]
pub(crate) fn wall_time() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this file is where the clocks are read")]
    Timestamp(millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
}

/// Returns the present wall time, for traces. Never used for decisions.
#[cfg(feature = "otlp")]
pub(crate) fn system_time() -> SystemTime {
    #[expect(clippy::disallowed_methods, reason = "this file is where the clocks are read")]
    SystemTime::now()
}

// === impl Timestamp ===

impl Timestamp {
    /// Returns the time in the format of RFC 3339, in UTC.
    #[cfg(feature = "gateway")]
    pub(crate) fn to_rfc3339(self) -> String {
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
    pub(crate) fn signed_millis_since(self, other: Self) -> i64 {
        i64::try_from(i128::from(self.0) - i128::from(other.0)).unwrap_or(i64::MIN)
    }
}

// === impl SystemClock ===

#[expect(clippy::disallowed_methods, reason = "this file is where the clocks are read")]
impl SystemClock {
    /// Creates a clock that starts at the present wall time.
    pub fn new() -> Self {
        let wall = Timestamp(millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()));
        Self { wall, start: tokio::time::Instant::now() }
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

#[expect(clippy::disallowed_methods, reason = "this file is where the clocks are read")]
impl Stopwatch {
    /// Starts a measurement.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
