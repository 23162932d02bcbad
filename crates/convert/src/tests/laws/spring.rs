//! The law of Spring Cloud Gateway's `RedisRateLimiter`, from `request_rate_limiter.lua`.

use std::collections::HashMap;

/// A bucket of tokens for each key. It is stored for twice the time to fill it, in whole seconds: if that is 0, not at all.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    /// Tokens in a second.
    rate: f64,
    capacity: f64,
    requested: f64,
    /// The tokens at a time in milliseconds.
    buckets: HashMap<String, (f64, u64)>,
}

impl TokenBucket {
    #[expect(clippy::cast_precision_loss, reason = "numbers of tests are small")]
    pub(crate) fn new(rate: u64, capacity: u64, requested: u64) -> Self {
        let (rate, capacity, requested) = (rate as f64, capacity as f64, requested as f64);
        Self { rate, capacity, requested, buckets: HashMap::new() }
    }

    #[expect(clippy::cast_precision_loss, reason = "times of tests are short")]
    pub(crate) fn admits(&mut self, key: &str, time: u64) -> bool {
        let (tokens, last) = self.buckets.get(key).copied().unwrap_or((self.capacity, time));
        let filled = self.capacity.min(tokens + (time - last) as f64 / 1_000.0 * self.rate);
        // The sums of fractions are not exact.
        let admits = filled + 1e-9 >= self.requested;
        let left = if admits { filled - self.requested } else { filled };
        if (self.capacity / self.rate * 2.0).floor() > 0.0 {
            self.buckets.insert(key.to_owned(), (left, time));
        }
        admits
    }
}
