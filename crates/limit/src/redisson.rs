//! `redisson`: a limiter that Redisson clients also use, under its Redisson name.
//!
//! **Guarantee.** The guarantee of [`token_bucket`](crate::algorithm::token_bucket), but Redisson clients write the same log with
//! their own clocks: the limit is exact only while the clocks agree. Entries are never merged or redated, unless only
//! Tidegate writes the log.
//!
//! `lua/redisson.lua` implements it. The embedded store is not shared with other processes, so it uses a token bucket
//! instead, if the rate is known.

use super::Mode;

/// How a limiter is shared with Redisson clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// The hash in Redis defines rate, interval and type. If a type is given and the hash has another one, the store
    /// returns an error.
    Adopt(Option<Mode>),
    /// The rule file defines rate, interval and type, and the hash is updated.
    Configure,
    /// As [`Adopt`](Self::Adopt) with any type, but with the expiry and the log of `RateLimiter`.
    Library,
}

impl Sharing {
    /// Returns `true` if only the hash in Redis defines the rate.
    pub const fn follows_hash(self) -> bool {
        !matches!(self, Self::Configure)
    }
}
