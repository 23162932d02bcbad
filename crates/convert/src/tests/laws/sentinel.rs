//! The laws of Sentinel's controllers, from `sentinel-core` (`DefaultController`, `ThrottlingController`, `WarmUpController`)
//! and `sentinel-parameter-flow-control` (`ParamFlowChecker`).

use std::collections::HashMap;

use super::MONDAY;

/// Rejects requests above the count in the last two segments of half a second.
#[derive(Debug, Default)]
pub(crate) struct Window {
    count: f64,
    passed: HashMap<u64, u64>,
}

impl Window {
    pub(crate) fn new(count: f64) -> Self {
        Self { count, passed: HashMap::new() }
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of tests are small")]
    pub(crate) fn admits(&mut self, time: u64) -> bool {
        let segment = (MONDAY + time) / 500;
        let of = |segment: u64| self.passed.get(&segment).copied().unwrap_or(0);
        let admits = (of(segment) + of(segment - 1) + 1) as f64 <= self.count;
        *self.passed.entry(segment).or_default() += u64::from(admits);
        admits
    }
}

/// Lets requests pass at even distances. A request waits if that takes at most `max_wait`.
#[derive(Debug)]
pub(crate) struct Throttling {
    /// In milliseconds.
    distance: u64,
    max_wait: u64,
    latest: Option<u64>,
}

impl Throttling {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of tests are small")]
    pub(crate) fn new(count: f64, max_wait: u64) -> Self {
        Self { distance: (1_000.0 / count).round() as u64, max_wait, latest: None }
    }

    pub(crate) fn admits(&mut self, time: u64) -> bool {
        let Some(latest) = self.latest else {
            self.latest = Some(time);
            return true;
        };
        let expected = latest + self.distance;
        let admits = expected <= time || expected - time <= self.max_wait;
        if admits {
            self.latest = Some(expected.max(time));
        }
        admits
    }
}

/// A window whose count rises from a third, while tokens of idle time are used up.
#[derive(Debug)]
pub(crate) struct WarmUp {
    count: f64,
    warning: f64,
    max: f64,
    slope: f64,
    stored: f64,
    filled_at: u64,
    window: Window,
    /// The requests that passed in each second.
    seconds: HashMap<u64, f64>,
}

impl WarmUp {
    pub(crate) fn new(count: f64, period: f64) -> Self {
        let warning = (period * count).floor() / 2.0;
        let max = warning + (2.0 * period * count / 4.0).floor();
        let slope = 2.0 / count / (max - warning);
        let window = Window::new(count);
        Self { count, warning, max, slope, stored: 0.0, filled_at: 0, window, seconds: HashMap::new() }
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of tests are small")]
    pub(crate) fn admits(&mut self, time: u64) -> bool {
        let second = (MONDAY + time) / 1_000;
        let previous = self.seconds.get(&(second - 1)).copied().unwrap_or(0.0);
        if second > self.filled_at {
            let passed = (second - self.filled_at) as f64;
            if self.stored < self.warning || self.stored > self.warning && previous < (self.count / 3.0).floor() {
                self.stored = (self.stored + passed * self.count).floor();
            }
            self.stored = (self.stored.min(self.max) - previous).max(0.0);
            self.filled_at = second;
        }
        self.window.count = match self.stored >= self.warning {
            true => 1.0 / ((self.stored - self.warning) * self.slope + 1.0 / self.count),
            false => self.count,
        };
        let admits = self.window.admits(time);
        *self.seconds.entry(second).or_default() += f64::from(u8::from(admits));
        admits
    }
}

/// The bucket of a value of a parameter. It is filled when more than the interval has passed since it was filled.
#[derive(Debug)]
pub(crate) struct Param {
    count: u64,
    /// In milliseconds.
    interval: u64,
    burst: u64,
    /// The tokens, and the time when they were filled.
    buckets: HashMap<u8, (u64, u64)>,
}

impl Param {
    pub(crate) fn new(count: u64, interval: u64, burst: u64) -> Self {
        Self { count, interval, burst, buckets: HashMap::new() }
    }

    pub(crate) fn admits(&mut self, client: u8, time: u64) -> bool {
        let max = self.count + self.burst;
        let (tokens, filled_at) = self.buckets.entry(client).or_insert((max, time));
        if time - *filled_at > self.interval {
            *tokens = max.min(*tokens + (time - *filled_at) * self.count / self.interval);
            *filled_at = time;
        }
        let admits = *tokens > 0;
        *tokens -= u64::from(admits);
        admits
    }
}
