//! `redisson`: a limiter that Redisson's clients use too, by its Redisson name.
//!
//! **Law.** That of [`token_bucket`](super::token_bucket), except that others write the same log by their own clocks:
//! it is exact as far as the clocks agree. Entries are never merged, nor redated, unless the log is our own.
//!
//! `lua/redisson.lua` decides it. The embedded store is shared with no other process: there it is
//! decided as a token bucket, if its rate is known.

use super::Mode;

/// How a limiter is shared with Redisson's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Rate, interval and type are what the hash in Redis says; of another type than this, if one is given, it is an
    /// error of the store.
    Adopt(Option<Mode>),
    /// Rate, interval and type are the rule's, and the hash is brought up to date.
    Configure,
    /// As [`Adopt`](Self::Adopt) of any type, with the expiry and the log that
    /// [`RateLimiter`](crate::RateLimiter) keeps.
    Library,
}

impl Sharing {
    /// Does the store know the rate, and the caller does not?
    pub const fn follows_hash(self) -> bool {
        !matches!(self, Self::Configure)
    }
}
