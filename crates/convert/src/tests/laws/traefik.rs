//! The law of Traefik's `rateLimit`, from `pkg/middlewares/ratelimiter` and `golang.org/x/time/rate`.

use std::collections::HashMap;

/// A token bucket for each source. A request waits for its token if that takes at most `max_delay`; other requests are
/// rejected and take no token. Sources that were idle for `ttl` are forgotten.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// Tokens per millisecond.
    rate: f64,
    burst: f64,
    /// In milliseconds.
    max_delay: f64,
    /// In milliseconds.
    ttl: u64,
    /// The tokens at a time.
    buckets: HashMap<String, (f64, u64)>,
}

impl Limiter {
    /// Creates the limiter of a middleware. `period` is in milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "numbers of tests are small")]
    pub(crate) fn new(average: u64, period: u64, burst: u64) -> Self {
        let per_second = average as f64 * 1_000.0 / period as f64;
        let max_delay = if per_second < 1.0 { 500.0 } else { 1_000.0 / (per_second.floor() * 2.0) };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of tests are small")]
        let ttl = if per_second >= 1.0 { 2 } else { 1 + (1.0 / per_second) as u64 };
        let rate = per_second / 1_000.0;
        Self { rate, burst: burst.max(1) as f64, max_delay, ttl: ttl * 1_000, buckets: HashMap::new() }
    }

    #[expect(clippy::cast_precision_loss, reason = "times of tests are short")]
    pub(crate) fn admits(&mut self, source: impl Into<String>, time: u64) -> bool {
        let (tokens, last) = self.buckets.entry(source.into()).or_insert((self.burst, time));
        if time - *last > self.ttl {
            *tokens = self.burst;
        }
        *tokens = self.burst.min(*tokens + (time - *last) as f64 * self.rate);
        *last = time;
        let wait = (1.0 - *tokens) / self.rate;
        let admits = wait <= self.max_delay;
        if admits {
            *tokens -= 1.0;
        }
        admits
    }
}
