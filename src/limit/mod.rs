//! Limits, charges and decisions. One file for each algorithm, which is a pure function of state, charge and time. `lua/`
//! has their translations for Redis; property tests hold the two equal.

pub mod calendar;
mod counters;
pub(crate) mod crc16;
mod entries;
pub mod fixed_window;
mod forecast;
pub mod gcra;
pub mod leaky_bucket;
#[cfg(feature = "gateway")]
mod numbers;
mod packed;
#[cfg(feature = "gateway")]
mod quarter;
mod rate_config;
pub mod redisson;
pub mod sliding_window;
mod spread;
mod state;
#[cfg(test)]
mod testing;
pub mod token_bucket;

use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;

use self::calendar::Calendar;
pub use self::rate_config::{RateConfig, RateConfigError};
use self::redisson::Sharing;
pub use self::spread::Spread;
pub use self::state::BucketState;
use crate::clock::Timestamp;

/// The largest rate: 2^31 permits, so that sums of permits stay exact wherever they are kept.
pub const MAX_RATE: u32 = 1 << 31;

/// The longest interval: 366 days, in milliseconds.
pub const MAX_INTERVAL: u64 = 366 * 24 * 60 * 60 * 1000;

/// Whether one bucket serves everybody or each client has its own (Redisson's `RateType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One bucket for all; Redisson's type 0.
    Overall,
    /// One bucket for each client; Redisson's type 1.
    PerClient,
}

/// The law by which permits return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// A permit returns exactly one interval after it was granted: [`token_bucket`].
    TokenBucket,
    /// Permits return continuously, and `burst` of them can be in use at once: [`gcra`].
    Gcra {
        /// The capacity: 1 to [`MAX_RATE`].
        burst: u32,
    },
    /// Requests wait for slots at an even distance: [`leaky_bucket`].
    LeakyBucket(leaky_bucket::Queue),
    /// The same as [`TokenBucket`](Self::TokenBucket), shared with Redisson's clients: [`redisson`].
    Redisson(Sharing),
    /// A permit returns one interval after its segment has ended: [`sliding_window`].
    SlidingWindow {
        /// Into how many segments the interval is cut, 1 to [`sliding_window::MAX_SEGMENTS`].
        segments: u32,
    },
    /// All permits return when a window of the calendar ends: [`fixed_window`].
    FixedWindow(Calendar),
}

/// How much may be granted: `rate` permits in each `interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    rate: u32,
    interval: u64,
    algorithm: Algorithm,
}

/// A named limit as the store knows it; its buckets are this name and a client.
#[derive(Debug, PartialEq, Eq)]
pub struct Limiter {
    /// Redisson's name of the limiter, for example `{tidegate:rest}:per-ip`.
    pub name: String,
    /// One bucket, or one for each client.
    pub mode: Mode,
    /// How much each bucket grants; of one in shards, what they grant together.
    pub quota: Quota,
    /// How its buckets are spread over hash tags.
    pub spread: Spread,
}

/// Who a PER_CLIENT bucket belongs to. Nothing that comes from a network is written to a store as it is, but addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientId {
    /// An address, or the network that stands for it (an IPv6 prefix).
    Address(IpNet),
    /// An unambiguous encoding of what the client sent; of any length, and hashed before it leaves the process.
    Value(Box<[u8]>),
    /// What an application calls itself, as Redisson's clients do; written as it is.
    Instance(Arc<str>),
}

/// A request for permits of one bucket.
#[derive(Clone, Debug)]
pub struct Charge {
    /// The limit.
    pub limiter: Arc<Limiter>,
    /// Which of them: a client exactly when the mode is [`Mode::PerClient`].
    pub client: Option<ClientId>,
    /// How many permits; 0 asks without taking.
    pub permits: u32,
    /// A shadow refuses no request. It is made if its bucket grants it and all live charges are made.
    pub shadow: bool,
}

/// A charge that was made, with its time: that of the decision, or of the slot that was given.
#[derive(Clone, Debug)]
pub struct Granted {
    /// What was asked for.
    pub charge: Charge,
    /// The time from which it counts.
    pub at: Timestamp,
    /// Whether it was taken from the overflow bucket, as in its [`Decision`].
    pub overflow: bool,
}

/// The answer of one limit to a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Would this limit alone have granted it?
    pub granted: bool,
    /// Permits left, after the charge if it was made.
    pub remaining: u32,
    /// When to ask again; [`Wait::Now`] if granted.
    pub wait: Wait,
    /// Milliseconds until there is more than `remaining`: the next permit in use returns; 0 if none is in use.
    pub reset: u64,
    /// Milliseconds from now to the slot that was granted: the request goes on then. 0 for algorithms without slots.
    pub delay: u64,
    /// Whether the overflow bucket of the embedded store decided it.
    pub overflow: bool,
    /// Which of the limiter's shards decided it, if it has some.
    pub shard: Option<u16>,
    /// By how many milliseconds the clock that decided it is ahead of [`Outcome::now`], if several decided.
    pub ahead: u64,
}

/// How long a refused request has to wait if nothing else happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Not at all: it was granted.
    Now,
    /// Refused until one millisecond before, granted at this many milliseconds from now.
    Millis(u64),
    /// Waiting cannot help: more permits than the capacity.
    Never,
}

/// The store's answer to a list of charges. The live ones are all made or none; then each shadow charge that was granted
/// is made too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The store's clock when it decided.
    pub now: Timestamp,
    /// One decision for each charge, in their order.
    pub decisions: Vec<Decision>,
    granted: bool,
}

/// Why a [`Quota`] cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// No permit would ever be granted, or sums would not be exact.
    #[error("rate must be between 1 and {MAX_RATE}, not {0}")]
    Rate(u64),
    /// Too short to be an interval or too long to be kept.
    #[error("interval must be between 1 ms and 366 days, not {0} ms")]
    Interval(u64),
    /// No permit would ever be granted, or sums would not be exact.
    #[error("burst must be between 1 and {MAX_RATE}, not {0}")]
    Burst(u32),
    /// No segment, or too many to look at in one decision.
    #[error("segments must be between 1 and {max}, not {0}", max = sliding_window::MAX_SEGMENTS)]
    Segments(u32),
}

impl Algorithm {
    /// Its name in rule files, and of its files in `src/limit/` and `lua/`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::Gcra { .. } => "gcra",
            Self::LeakyBucket(_) => "leaky_bucket",
            Self::Redisson(_) => "redisson",
            Self::SlidingWindow { .. } => "sliding_window",
            Self::FixedWindow(_) => "fixed_window",
        }
    }
}

/// Does every live charge have a decision that grants it?
pub fn all_live_granted(charges: &[Charge], decisions: &[Decision]) -> bool {
    charges.iter().zip(decisions).all(|(charge, decision)| charge.shadow || decision.granted)
}

// === impl Limiter ===

impl Limiter {
    /// A limiter that is not spread.
    pub fn new(name: String, mode: Mode, quota: Quota) -> Self {
        Self { name, mode, quota, spread: Spread::Whole }
    }
}

// === impl Decision ===

impl Decision {
    /// That of one clock on a whole bucket: it grants if there is nothing to wait for.
    #[inline]
    pub const fn new(remaining: u32, wait: Wait, reset: u64) -> Self {
        let granted = matches!(wait, Wait::Now);
        Self { granted, remaining, wait, reset, delay: 0, overflow: false, shard: None, ahead: 0 }
    }
}

// === impl Mode ===

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Overall => "OVERALL",
            Mode::PerClient => "PER_CLIENT",
        })
    }
}

// === impl Quota ===

impl Quota {
    /// `rate` permits, 1 to [`MAX_RATE`], in each `interval`, 1 to [`MAX_INTERVAL`] milliseconds. That of a fixed window
    /// is its calendar's.
    ///
    /// # Errors
    /// Names the number that is out of its range.
    pub fn new(rate: u64, interval: u64, algorithm: Algorithm) -> Result<Self, QuotaError> {
        let exact = u32::try_from(rate).ok().filter(|rate| (1..=MAX_RATE).contains(rate));
        let rate = exact.ok_or(QuotaError::Rate(rate))?;
        let interval = match algorithm {
            Algorithm::FixedWindow(calendar) => calendar.unit().millis(),
            _ => interval,
        };
        if !(1..=MAX_INTERVAL).contains(&interval) {
            return Err(QuotaError::Interval(interval));
        }
        if let Algorithm::Gcra { burst } = algorithm
            && !(1..=MAX_RATE).contains(&burst)
        {
            return Err(QuotaError::Burst(burst));
        }
        if let Algorithm::SlidingWindow { segments } = algorithm
            && !(1..=sliding_window::MAX_SEGMENTS).contains(&segments)
        {
            return Err(QuotaError::Segments(segments));
        }
        Ok(Self { rate, interval, algorithm })
    }

    /// The quota of an adopted limiter, whose rate and interval only the store has.
    pub const fn adopted(sharing: Sharing) -> Self {
        Self { rate: MAX_RATE, interval: MAX_INTERVAL, algorithm: Algorithm::Redisson(sharing) }
    }

    /// Does only the store know the rate and the interval?
    pub const fn is_adopted(&self) -> bool {
        matches!(self.algorithm, Algorithm::Redisson(sharing) if sharing.follows_hash())
    }

    /// One of so many equal parts of it, with one permit in an interval at least.
    #[must_use]
    pub fn share(&self, parts: u32) -> Self {
        let part = |permits: u32| (permits / parts.max(1)).max(1);
        let algorithm = match self.algorithm {
            Algorithm::Gcra { burst } => Algorithm::Gcra { burst: part(burst) },
            Algorithm::LeakyBucket(queue) => {
                Algorithm::LeakyBucket(leaky_bucket::Queue { length: queue.length / parts.max(1), ..queue })
            }
            same @ (Algorithm::TokenBucket
            | Algorithm::SlidingWindow { .. }
            | Algorithm::FixedWindow(_)
            | Algorithm::Redisson(_)) => same,
        };
        Self { rate: part(self.rate), algorithm, ..*self }
    }

    /// Permits in each interval.
    pub const fn rate(&self) -> u32 {
        self.rate
    }

    /// The interval in milliseconds; that of a fixed window is as long as its unit if clocks were never set.
    pub const fn interval(&self) -> u64 {
        self.interval
    }

    /// For how long a permit is to be remembered, in milliseconds: at least as long as it counts in a bucket that is not
    /// overfull.
    pub(crate) fn retention_millis(&self) -> u64 {
        let slots = |permits: u32| self.interval.max((u64::from(permits) * self.interval).div_ceil(self.rate.into()));
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::Redisson(_) => self.interval,
            Algorithm::SlidingWindow { segments } => self.interval + self.interval.div_ceil(segments.into()),
            // In a day of 25 hours.
            Algorithm::FixedWindow(_) => self.interval + self.interval.min(60 * 60 * 1_000),
            Algorithm::Gcra { burst } => slots(burst),
            Algorithm::LeakyBucket(queue) => slots(queue.length.saturating_add(1)),
        }
    }

    /// The most permits that can be in use at once, and so the most that one request can take.
    pub const fn capacity(&self) -> u32 {
        match self.algorithm {
            Algorithm::Gcra { burst } => burst,
            Algorithm::TokenBucket
            | Algorithm::LeakyBucket(_)
            | Algorithm::SlidingWindow { .. }
            | Algorithm::FixedWindow(_)
            | Algorithm::Redisson(_) => self.rate,
        }
    }

    /// The law by which permits return.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

// === impl Outcome ===

impl Outcome {
    /// The answer to `charges`.
    pub fn new(now: Timestamp, decisions: Vec<Decision>, charges: &[Charge]) -> Self {
        let granted = all_live_granted(charges, &decisions);
        Self { now, decisions, granted }
    }

    /// An answer of which the live charges were made, or were not.
    pub(crate) fn with_granted(now: Timestamp, decisions: Vec<Decision>, granted: bool) -> Self {
        Self { now, decisions, granted }
    }

    /// Were the live charges made?
    pub fn granted(&self) -> bool {
        self.granted
    }

    /// Of the charges that this answers, those that were made.
    pub fn granted_charges(&self, charges: Vec<Charge>) -> Vec<Granted> {
        let asked = charges.into_iter().zip(&self.decisions).filter(|_| self.granted);
        let made = asked.filter(|(charge, decision)| decision.granted && charge.permits > 0);
        let granted = |(charge, decision): (Charge, &Decision)| Granted {
            charge: charge.on_shard(decision.shard),
            at: self.now.plus_millis(decision.ahead + decision.delay),
            overflow: decision.overflow,
        };
        made.map(granted).collect()
    }
}
