//! The configuration of a limiter of the library: the four fields of Redisson's hash.

use std::time::Duration;

use super::{Algorithm, MAX_INTERVAL, MAX_RATE, Mode, Quota, QuotaError};

/// The configuration of a `RateLimiter`: a mode, a rate, an interval, and how long the limiter
/// outlives its last grant. These are the four fields of Redisson's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateConfig {
    mode: Mode,
    quota: Quota,
    keep_alive: u64,
}

/// The error of an invalid [`RateConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RateConfigError {
    /// The rate is 0 or greater than 2^31.
    #[error("rate must be between 1 and {MAX_RATE}, not {0}")]
    Rate(u64),
    /// The interval is shorter than 1 ms or longer than 366 days. The value is in milliseconds.
    #[error("interval must be between 1 ms and 366 days, not {0} ms")]
    Interval(u64),
    /// The interval or the keep-alive has a fraction of a millisecond.
    #[error("{0:?} is not a whole number of milliseconds")]
    Fraction(Duration),
    /// The keep-alive is longer than 732 days, or shorter than the interval, so that permits in use would be lost.
    #[error("keep-alive must be from the interval of {interval} ms to 732 days, not {keep_alive} ms")]
    KeepAlive {
        /// The requested keep-alive, in milliseconds.
        keep_alive: u64,
        /// The interval, in milliseconds.
        interval: u64,
    },
}

impl RateConfig {
    /// Creates a configuration of `rate` permits, 1 to 2^31, in each `interval` of 1 ms to 366 days in whole
    /// milliseconds. The limiter does not expire.
    ///
    /// # Errors
    /// A number is out of range.
    pub fn new(mode: Mode, rate: u64, interval: Duration) -> Result<Self, RateConfigError> {
        let quota = Quota::new(rate, whole_millis(interval)?, Algorithm::TokenBucket).map_err(|error| match error {
            QuotaError::Interval(millis) => RateConfigError::Interval(millis),
            _ => RateConfigError::Rate(rate), // a token bucket has no other settings
        })?;
        Ok(Self { mode, quota, keep_alive: 0 })
    }

    /// Creates a configuration of `rate` permits in each second, with one bucket for all instances.
    ///
    /// # Errors
    /// The rate is 0 or above 2^31.
    pub fn per_second(rate: u64) -> Result<Self, RateConfigError> {
        Self::new(Mode::Overall, rate, Duration::from_secs(1))
    }

    /// Creates a configuration of `rate` permits in each minute, with one bucket for all instances.
    ///
    /// # Errors
    /// The rate is 0 or above 2^31.
    pub fn per_minute(rate: u64) -> Result<Self, RateConfigError> {
        Self::new(Mode::Overall, rate, Duration::from_secs(60))
    }

    /// Makes the limiter expire this long after its last grant. It must be at least one interval, so that no permit in
    /// use is lost. Refusals extend it only to the end of the wait that they returned.
    ///
    /// # Errors
    /// The time is shorter than the interval, or longer than 732 days.
    pub fn with_keep_alive(self, keep_alive: Duration) -> Result<Self, RateConfigError> {
        let (keep_alive, interval) = (whole_millis(keep_alive)?, self.quota.interval());
        match (interval..=2 * MAX_INTERVAL).contains(&keep_alive) {
            true => Ok(Self { keep_alive, ..self }),
            false => Err(RateConfigError::KeepAlive { keep_alive, interval }),
        }
    }

    /// Creates a configuration from stored values. Reduces rates and intervals of Java to the maximum that Tidegate
    /// supports. Returns `None` if the rate or the interval is zero.
    #[doc(hidden)]
    pub fn from_stored(mode: Mode, rate: u64, interval: u64, keep_alive: u64) -> Option<Self> {
        let rate = rate.min(u64::from(MAX_RATE));
        let quota = Quota::new(rate, interval.min(MAX_INTERVAL), Algorithm::TokenBucket).ok()?;
        Some(Self { mode, quota, keep_alive })
    }

    /// Returns the mode: one bucket for all instances, or one bucket for each instance.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the permits in each interval, 1 to 2^31.
    pub const fn rate(&self) -> u32 {
        self.quota.rate()
    }

    /// Returns the time after which a granted permit becomes available again, in whole milliseconds.
    pub const fn interval(&self) -> Duration {
        Duration::from_millis(self.quota.interval())
    }

    /// Returns how long the limiter outlives its last grant; `None` if it does not expire.
    pub const fn keep_alive(&self) -> Option<Duration> {
        match self.keep_alive {
            0 => None,
            millis => Some(Duration::from_millis(millis)),
        }
    }

    /// Returns the rate, the interval and the algorithm.
    #[doc(hidden)]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }
}

fn whole_millis(duration: Duration) -> Result<u64, RateConfigError> {
    match duration.subsec_nanos() % 1_000_000 {
        0 => Ok(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
        _ => Err(RateConfigError::Fraction(duration)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_errors() {
        let seconds = Duration::from_secs;
        let new = |rate, interval| RateConfig::new(Mode::Overall, rate, interval);
        assert_eq!(new(0, seconds(1)), Err(RateConfigError::Rate(0)));
        assert_eq!(new((1 << 31) + 1, seconds(1)), Err(RateConfigError::Rate((1 << 31) + 1)));
        assert_eq!(new(1, Duration::ZERO), Err(RateConfigError::Interval(0)));
        assert_eq!(new(1, Duration::from_micros(1_500)), Err(RateConfigError::Fraction(Duration::from_micros(1_500))));
        assert!(new(1, Duration::MAX).is_err());
        assert_eq!(RateConfig::per_second(10), new(10, seconds(1)));
        assert_eq!((RateConfig::per_minute(7), RateConfig::per_minute(0).is_err()), (new(7, seconds(60)), true));
        let config = new(1, seconds(2)).expect("a configuration");
        let too_short = RateConfigError::KeepAlive { keep_alive: 1_000, interval: 2_000 };
        assert_eq!(config.with_keep_alive(seconds(1)), Err(too_short));
        assert_eq!(config.with_keep_alive(seconds(2)).map(|config| config.keep_alive()), Ok(Some(seconds(2))));
    }
}
