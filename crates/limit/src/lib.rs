//! Limits, charges and decisions. There is one file for each algorithm, which is a pure function of state, charge and
//! time. `lua/` contains translations for Redis; property tests check that both decide equally.
//!
//! A part of Tidegate, whose items change with each release: programs use the crates `tidegate-layer` and `tidegate`.

pub mod algorithm;
pub mod boxed;
pub mod calendar;
pub mod clock;
pub mod crc16;
mod inspection;
pub mod random;
mod rate_config;
pub mod redisson;
mod spread;
#[cfg(test)]
mod testing;
pub mod text;
mod turn;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ipnet::IpNet;

pub use self::algorithm::state::BucketState;
pub use self::algorithm::{Algorithm, AlgorithmName, examples};
pub use self::inspection::Inspection;
pub use self::rate_config::{RateConfig, RateConfigError};
use self::redisson::Sharing;
pub use self::spread::Spread;
pub use self::turn::{QueueStart, Turn};
use crate::clock::Timestamp;
use crate::text::words::words;

/// The largest rate: 2^31 permits, so that sums of permits stay exact in every store.
pub const MAX_RATE: u32 = 1 << 31;

/// The longest interval: 366 days, in milliseconds.
pub const MAX_INTERVAL: u64 = 366 * 24 * 60 * 60 * 1000;

/// The longest wait that is returned: a thousand years.
const MAX_WAIT: u64 = 1000 * MAX_INTERVAL;

/// The largest debt of a bucket. Further permits are not charged. It bounds times to live and keeps all sums exact, and
/// no number of requests in flight reaches it.
const MAX_DEBT: u64 = 1 << 32;

words! {
    /// Whether all clients of a limit share one bucket (Redisson's `RateType`).
    pub enum Mode {
        /// One bucket for all clients.
        Overall = "OVERALL",
        /// One bucket for each client.
        PerClient = "PER_CLIENT",
    }
}

/// A rate and its algorithm: `rate` permits in each `interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    rate: u32,
    interval: u64,
    algorithm: Algorithm,
}

/// A named limit as the stores see it. A bucket is identified by this name and a client.
pub struct Limiter {
    /// The name in Redis, for example `{tidegate:rest}:per-ip`.
    pub name: String,
    /// One bucket, or one for each client.
    pub mode: Mode,
    /// The quota of each bucket; for a limiter in shards, the quota of all shards together.
    pub quota: Quota,
    /// How the buckets are distributed over hash tags.
    pub spread: Spread,
    /// The number of the limiter in this process. Limiters that differ only in their rate have the same number.
    number: u64,
}

/// The client of a PER_CLIENT bucket. Apart from addresses, no client input is written to a store unhashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientId {
    /// An address, or a network that represents it (an IPv6 prefix).
    Address(IpNet),
    /// An unambiguous encoding of client input, of any length. It is hashed before it leaves the process.
    Value(Box<[u8]>),
    /// The keyed hash of a [`Value`](Self::Value), as it is in keys: another name of the same client, for operators who
    /// know only the key.
    Hash(u128),
    /// The name that an application chooses for itself, as Redisson clients do; written unhashed.
    Instance(Arc<str>),
}

/// The identity of a bucket: the name of its limiter, and its client. It does not change with the rule.
pub type BucketId = (String, Option<ClientId>);

/// A request for permits of one bucket.
#[derive(Clone, Debug)]
pub struct Charge {
    /// The limit.
    pub limiter: Arc<Limiter>,
    /// The client; `Some` exactly if the mode is [`Mode::PerClient`].
    pub client: Option<ClientId>,
    /// The requested permits; 0 only reads the bucket.
    pub permits: u32,
    /// Whether the limit is a shadow, which rejects no request. Its charge is made if its bucket grants it and all live
    /// charges are made.
    pub shadow: bool,
    /// The effect on the permits.
    pub kind: ChargeKind,
    /// The turn among waiting requests.
    pub turn: Turn,
}

/// The effect of a charge on the permits of its bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChargeKind {
    /// Takes them, if all limits of the request grant it.
    #[default]
    Take,
    /// Takes none: the bucket only has to have them. The decision reports all that remain.
    Check,
    /// Takes them in any case, for something that has happened. Permits that the bucket lacks are debt, which later
    /// requests wait for.
    Unconditional,
}

/// A charge that was made, with the time of the decision or of the assigned time slot.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The charge.
    pub charge: Charge,
    /// The time from which it counts.
    pub at: Timestamp,
    /// Whether the overflow bucket was charged, as in its [`Decision`].
    pub overflow: bool,
}

/// The decision of one limit about a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether this limit grants the charge, regardless of other limits.
    pub granted: bool,
    /// The remaining permits, after the charge if it was made.
    pub remaining: u32,
    /// When to retry; [`Wait::Now`] if granted.
    pub wait: Wait,
    /// Milliseconds until the next permit in use returns; 0 if no permit is in use.
    pub reset: u64,
    /// Milliseconds until the assigned time slot, when the request is forwarded. 0 for algorithms without time slots.
    pub delay: u64,
    /// Whether the overflow bucket of the embedded store decided it.
    pub overflow: bool,
    /// The shard that decided, if the limiter has shards.
    pub shard: Option<u16>,
    /// By how many milliseconds the clock of this decision is ahead of [`Outcome::now`], if several nodes decided.
    pub ahead: u64,
    /// Whether this is no decision: nothing decided about the charge, and it was not made. See [`Decision::UNKNOWN`].
    pub is_unknown: bool,
}

/// How long a refused request must wait, without other requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// No wait: it was granted.
    Now,
    /// The request is granted in this many milliseconds, and not earlier.
    Millis(u64),
    /// Waiting cannot help: the request needs more permits than the capacity.
    Never,
}

/// The decisions about a list of charges. All live charges are made or none. If they are made, each granted shadow
/// charge is made as well.
///
/// It has no charges, since these are only lent to a store: a request that waits needs them again, as does a gateway that
/// decides by its share of the limits. [`pairs`](Self::pairs) joins both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The store's clock when it decided.
    pub now: Timestamp,
    /// One decision for each charge, in their order.
    pub decisions: Vec<Decision>,
    granted: bool,
}

/// The error of an invalid [`Quota`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// A zero rate grants no permit, and sums of larger rates are not exact.
    #[error("rate must be between 1 and {MAX_RATE}, not {0}")]
    Rate(u64),
    /// The interval is zero, or too long to be stored.
    #[error("interval must be between 1 ms and 366 days, not {0} ms")]
    Interval(u64),
    /// A zero burst grants no permit, and sums of larger bursts are not exact.
    #[error("burst must be between 1 and {MAX_RATE}, not {0}")]
    Burst(u32),
    /// The warm-up is too short or too long to be computed exactly.
    #[error("warm_up must be between 1 s and 1 h, not {0} ms")]
    WarmUp(u64),
    /// There are no segments, or too many for one decision.
    #[error("segments must be between 1 and {max}, not {0}", max = algorithm::sliding_window::MAX_SEGMENTS)]
    Segments(u32),
}

// === impl Limiter ===

/// Shows the settings, not the number.
impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, mode, quota, spread, .. } = self;
        let mut limiter = f.debug_struct("Limiter");
        limiter.field("name", name).field("mode", mode).field("quota", quota).field("spread", spread).finish()
    }
}

/// Compares the settings, not the numbers.
impl PartialEq for Limiter {
    fn eq(&self, other: &Self) -> bool {
        let settings = |limiter: &'_ Self| (limiter.mode, limiter.quota);
        settings(self) == settings(other) && self.name == other.name && self.spread == other.spread
    }
}

impl Eq for Limiter {}

impl Limiter {
    /// Creates a limiter without shards and partitions.
    pub fn new(name: String, mode: Mode, quota: Quota) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { name, mode, quota, spread: Spread::Undivided, number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Identifies the limiter and its rate in this process.
    pub fn rate_id(&self) -> (u64, u32, u32) {
        (self.number, self.quota.rate(), self.quota.capacity())
    }

    /// Returns the same limiter without shards and partitions.
    pub fn clone_whole(&self) -> Self {
        Self::new(self.name.clone(), self.mode, self.quota)
    }

    /// Returns the remaining permits of an unused OVERALL limit, or of its shard. Returns `None` for PER_CLIENT limits,
    /// and if another program sets the rate.
    pub fn unused_permits(&self, shard: Option<u16>) -> Option<u32> {
        if self.mode != Mode::Overall || self.quota.is_adopted() {
            return None;
        }
        let shard = shard.and_then(|shard| self.shards().get(usize::from(shard)));
        Some(shard.map_or(&self.quota, |shard| &shard.quota).full())
    }
}

// === impl Decision ===

impl Charge {
    /// Creates the charge of a live limit, which takes the permits if all limits grant the request.
    pub fn new(limiter: Arc<Limiter>, client: Option<ClientId>, permits: u32) -> Self {
        Self { limiter, client, permits, shadow: false, kind: ChargeKind::Take, turn: Turn::Any }
    }

    /// Returns the permits that the charge takes if it is granted.
    #[inline]
    pub fn taken(&self) -> u32 {
        if self.kind == ChargeKind::Check { 0 } else { self.permits }
    }

    /// Returns the identity of the bucket among all buckets of a store: the limiter's name and the client.
    pub fn bucket_id(&self) -> BucketId {
        (self.limiter.name.clone(), self.client.clone())
    }
}

impl Decision {
    /// The place of a decision that is missing: the node of a shadow is unreachable, or the negative cache knows only the
    /// refusals of other charges.
    pub const UNKNOWN: Self = Self { is_unknown: true, ..Self::new(0, Wait::Now, 0) };

    /// Creates the decision of a single bucket. It is granted if there is no wait.
    #[inline]
    pub const fn new(remaining: u32, wait: Wait, reset: u64) -> Self {
        let granted = matches!(wait, Wait::Now);
        Self { granted, remaining, wait, reset, delay: 0, overflow: false, shard: None, ahead: 0, is_unknown: false }
    }

    /// Returns what this decision about a charge has taken; `None` if it has taken nothing. `now` is the time of its
    /// outcome.
    pub fn grant(&self, charge: &Charge, now: Timestamp) -> Option<Granted> {
        let is_charged = self.granted && !self.is_unknown && charge.taken() > 0;
        is_charged.then(|| Granted {
            charge: charge.on_shard(self.shard),
            at: now.plus_millis(self.ahead + self.delay),
            overflow: self.overflow,
        })
    }

    /// See [`Outcome::align_waits`].
    pub fn align_waits(&mut self, quota: &Quota, now: Timestamp) {
        let align = |millis: u64| quota.boundary_near(now.plus_millis(millis)).millis_since(now);
        if let (Wait::Millis(wait), true) = (&mut self.wait, quota.algorithm().calendar().is_some()) {
            *wait = align(*wait);
        }
        if self.reset > 0 {
            self.reset = align(self.reset);
        }
    }
}

// === impl Mode ===

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl Quota ===

impl Quota {
    /// Creates a quota of `rate` permits, 1 to [`MAX_RATE`], in each `interval`, 1 to [`MAX_INTERVAL`] milliseconds.
    /// The calendar defines the interval of a fixed window.
    ///
    /// # Errors
    /// A number is out of range.
    pub fn new(rate: u64, interval: u64, algorithm: Algorithm) -> Result<Self, QuotaError> {
        let exact = u32::try_from(rate).ok().filter(|rate| (1..=MAX_RATE).contains(rate));
        let rate = exact.ok_or(QuotaError::Rate(rate))?;
        let interval = algorithm.calendar().map_or(interval, |calendar| calendar.unit().millis());
        if !(1..=MAX_INTERVAL).contains(&interval) {
            return Err(QuotaError::Interval(interval));
        }
        algorithm.validate()?;
        Ok(Self { rate, interval, algorithm })
    }

    /// Creates the quota of an adopted limiter, whose rate and interval only the store knows.
    pub const fn adopted(sharing: Sharing) -> Self {
        Self { rate: MAX_RATE, interval: MAX_INTERVAL, algorithm: Algorithm::Redisson(sharing) }
    }

    /// Returns `true` if only the store knows the rate and the interval.
    pub const fn is_adopted(&self) -> bool {
        matches!(self.algorithm, Algorithm::Redisson(sharing) if sharing.follows_hash())
    }

    /// Returns one of `parts` equal shares of this quota, with at least one permit in an interval.
    #[must_use]
    pub fn share(&self, parts: u32) -> Self {
        let part = |permits: u32| permits / parts.max(1);
        self.scaled(part, part)
    }

    /// Returns the permits in each interval.
    pub const fn rate(&self) -> u32 {
        self.rate
    }

    /// Returns the interval in milliseconds; for a fixed window, the length of its unit without clock changes.
    pub const fn interval(&self) -> u64 {
        self.interval
    }

    /// Returns the algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

// === impl Outcome ===

impl Outcome {
    /// Creates the outcome of `charges` from their decisions.
    pub fn new(now: Timestamp, decisions: Vec<Decision>, charges: &[Charge]) -> Self {
        let outcome = Self { now, decisions, granted: false };
        let granted = outcome.pairs(charges).all(|(charge, decision)| charge.shadow || decision.granted);
        Self { granted, ..outcome }
    }

    /// Creates an outcome and states whether the live charges were made.
    pub fn with_granted(now: Timestamp, decisions: Vec<Decision>, granted: bool) -> Self {
        Self { now, decisions, granted }
    }

    /// Returns `true` if the live charges were made.
    pub fn granted(&self) -> bool {
        self.granted
    }

    /// Returns each of the charges of this outcome with its decision.
    pub fn pairs<'o>(&'o self, charges: &'o [Charge]) -> impl Iterator<Item = (&'o Charge, &'o Decision)> {
        charges.iter().zip(&self.decisions)
    }

    /// Changes the decision about each of the charges of this outcome.
    pub fn change_each(&mut self, charges: &[Charge], mut change: impl FnMut(&Charge, &mut Decision)) {
        charges.iter().zip(&mut self.decisions).for_each(|(charge, decision)| change(charge, decision));
    }

    /// Moves the waits for debt of calendar limits to the nearest boundary. The script knows only the windows around
    /// now, and estimates the others by their mean length.
    pub fn align_waits(&mut self, charges: &[Charge]) {
        let now = self.now;
        self.change_each(charges, |charge, decision| {
            if decision.remaining == 0 {
                decision.align_waits(&charge.limiter.quota, now);
            }
        });
    }

    /// Returns the charges that were made. `charges` are the charges of this outcome.
    pub fn granted_charges(&self, charges: &[Charge]) -> Vec<Granted> {
        let pairs = self.pairs(charges).filter(|_| self.granted);
        pairs.filter_map(|(charge, decision)| decision.grant(charge, self.now)).collect()
    }
}
