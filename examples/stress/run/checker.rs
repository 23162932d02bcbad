//! Checks that a log of grants keeps the guarantees of its limits. Uses only the time, the number of permits and the
//! rule of each grant, and no code of the gateway.
//!
//! If several rules granted permits of one bucket, each grant must keep the guarantee of its rule, over all earlier
//! grants. The order of grants within one millisecond is unknown, so the checker uses the most favourable one, and
//! reports no false violations. It uses only integers, and a single pass.

use std::cmp::Ordering;

/// An algorithm with the guarantee to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A permit becomes available again one interval after its grant.
    TokenBucket,
    /// A permit becomes available again one interval after the end of its segment.
    SlidingWindow {
        /// The number of segments of an interval.
        segments: u64,
    },
    /// All permits become available again at the start of the next interval since the epoch.
    FixedWindow,
    /// Grants at most `burst + rate * t / interval` permits in any time span `t`.
    Gcra {
        /// The maximum number of permits granted at once.
        burst: u64,
    },
    /// Assigns time slots of `interval / rate`, at most `queue` slots ahead. By the times of the decisions, this is a
    /// burst of `queue + 1`.
    LeakyBucket {
        /// The maximum number of waiting requests.
        queue: u64,
    },
}

/// A limit in one version of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub algorithm: Algorithm,
    pub rate: u64,
    /// Milliseconds.
    pub interval: u64,
}

/// A grant of permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// By the store's clock, in milliseconds.
    pub at: u64,
    pub permits: u64,
    /// The index of the rule that granted them.
    pub rule: usize,
}

/// The result for one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// The permits in use when they were closest to the capacity of the rule, or furthest above it.
    pub fullest: Fullness,
    /// The grants that exceeded their rule.
    pub violations: Vec<Grant>,
}

/// Permits in use and permits allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fullness {
    pub used: u64,
    pub allowed: u64,
}

/// Tracks the permits in use under one rule.
#[derive(Clone, Debug)]
struct Meter {
    rule: Rule,
    /// The number of fractions of a permit. `used` and `drain` count fractions.
    unit: u128,
    /// The fractions that become available per millisecond, if permits become available one by one.
    drain: u128,
    /// The fractions in use.
    used: u128,
    now: u64,
    /// The index of the oldest grant in use.
    oldest: usize,
}

/// Checks the grants of one bucket.
pub fn check(rules: &[Rule], grants: &[Grant]) -> Finding {
    let mut grants = grants.to_vec();
    grants.sort_by_key(|grant| grant.at);
    let mut meters: Vec<Meter> = rules.iter().map(|rule| Meter::new(*rule, rules)).collect();
    let mut finding = Finding::default();
    for same_time in grants.chunk_by(|one, next| one.at == next.at) {
        for meter in &mut meters {
            meter.advance(same_time[0].at, &grants);
        }
        finding.check_same_time(same_time, &meters);
        let permits = same_time.iter().map(|grant| grant.permits).sum();
        meters.iter_mut().for_each(|meter| meter.take(permits));
    }
    finding
}

/// Returns `true` if at least 99 % of the allowed permits were granted.
pub fn is_nearly_all(granted: u64, allowed: u64) -> bool {
    granted * 100 >= allowed * 99
}

// === impl Rule ===

impl Rule {
    /// Returns the maximum number of permits in use.
    pub fn capacity(&self) -> u64 {
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::SlidingWindow { .. } | Algorithm::FixedWindow => self.rate,
            Algorithm::Gcra { burst } => burst,
            Algorithm::LeakyBucket { queue } => queue + 1,
        }
    }

    /// Returns the time at which a permit granted at `at` becomes available again. Returns `None` if permits become
    /// available one by one.
    pub fn returns(&self, at: u64) -> Option<u64> {
        match self.algorithm {
            Algorithm::TokenBucket => Some(at + self.interval),
            Algorithm::SlidingWindow { segments } => {
                let segment = self.interval.div_ceil(segments);
                Some((at / segment + 1) * segment + self.interval)
            }
            Algorithm::FixedWindow => Some((at / self.interval + 1) * self.interval),
            Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. } => None,
        }
    }

    /// Returns the milliseconds by which a permit may become available late. Above a rate of 512, grants of one time
    /// step share a log entry with the time of the latest grant.
    pub fn lateness(&self) -> u64 {
        match self.algorithm {
            Algorithm::TokenBucket if self.rate > 512 => self.interval.div_ceil(511),
            _ => 0,
        }
    }

    /// Returns the start of the first interval that the load covers completely, if the first grant was at `first`: a
    /// fixed window may have started before.
    pub fn first_whole_interval(&self, first: u64) -> u64 {
        match self.algorithm {
            Algorithm::FixedWindow => first.next_multiple_of(self.interval),
            _ => first,
        }
    }

    /// Returns the permits that a client with unlimited demand gets from the first grant until the end of the last
    /// whole interval before `end`, and the time of this end.
    pub fn allowed(&self, first: u64, end: u64) -> (u64, u64) {
        let (mut at, mut permits) = (first, 0);
        if self.returns(at).is_none() {
            return (self.capacity() + self.rate * end.saturating_sub(first) / self.interval, end);
        }
        while let Some(returns) = self.returns(at).filter(|returns| *returns <= end) {
            permits += self.rate;
            at = returns;
        }
        (permits, at)
    }

    /// Returns for each time whether all permits were in use, with the permits that may become available late. Grants
    /// in the same millisecond count as earlier.
    pub fn is_full_at(&self, grants: &[Grant], times: &[u64]) -> Vec<bool> {
        let (mut grants, mut order) = (grants.to_vec(), Vec::from_iter(0..times.len()));
        grants.sort_by_key(|grant| grant.at);
        order.sort_by_key(|index| times[*index]);
        let (mut meter, mut taken) = (Meter::new(*self, &[*self]), 0);
        let mut full = vec![false; times.len()];
        for index in order {
            while let Some(grant) = grants.get(taken).filter(|grant| grant.at <= times[index]) {
                meter.advance(grant.at.saturating_sub(self.lateness()), &grants);
                meter.take(grant.permits);
                taken += 1;
            }
            meter.advance(times[index].saturating_sub(self.lateness()), &grants);
            full[index] = meter.would_exceed(1);
        }
        full
    }
}

// === impl Meter ===

impl Meter {
    /// Creates a meter without permits in use. If permits become available one by one and the rules differ, the fastest
    /// rule sets the speed.
    fn new(rule: Rule, rules: &[Rule]) -> Self {
        let intervals = rules.iter().map(|rule| u128::from(rule.interval));
        let one_by_one = rule.returns(0).is_none();
        let unit = if one_by_one { intervals.fold(1, least_common_multiple) } else { 1 };
        let speeds = rules.iter().map(|rule| u128::from(rule.rate) * unit / u128::from(rule.interval));
        let drain = if one_by_one { speeds.max().unwrap_or(0) } else { 0 };
        Self { rule, unit, drain, used: 0, now: 0, oldest: 0 }
    }

    /// Advances the time, and removes the permits that have become available.
    fn advance(&mut self, now: u64, grants: &[Grant]) {
        self.used = self.used.saturating_sub(self.drain * u128::from(now - self.now));
        self.now = now;
        while let Some(grant) = grants.get(self.oldest)
            && self.rule.returns(grant.at).is_some_and(|returns| returns <= now)
        {
            self.used -= u128::from(grant.permits);
            self.oldest += 1;
        }
    }

    /// Takes permits, also beyond the capacity.
    fn take(&mut self, permits: u64) {
        self.used += u128::from(permits) * self.unit;
    }

    /// Returns `true` if `permits` more permits exceed the capacity.
    fn would_exceed(&self, permits: u64) -> bool {
        self.remaining() < i128::try_from(u128::from(permits) * self.unit).unwrap_or(i128::MAX)
    }

    fn remaining(&self) -> i128 {
        let signed = |fractions: u128| i128::try_from(fractions).unwrap_or(i128::MAX);
        signed(u128::from(self.rule.capacity()) * self.unit) - signed(self.used)
    }

    fn fullness(&self, more: u64) -> Fullness {
        let used = self.used.div_ceil(self.unit);
        Fullness { used: u64::try_from(used).unwrap_or(u64::MAX) + more, allowed: self.rule.capacity() }
    }
}

// === impl Finding ===

impl Finding {
    /// Checks the grants of one millisecond, those with the fewest remaining permits first.
    fn check_same_time(&mut self, grants: &[Grant], meters: &[Meter]) {
        let mut grants = grants.to_vec();
        grants.sort_by_key(|grant| meters[grant.rule].remaining());
        let mut permits = 0;
        for grant in grants {
            permits += grant.permits;
            let meter = &meters[grant.rule];
            self.fullest = self.fullest.or_fuller(meter.fullness(permits));
            if meter.would_exceed(permits) {
                self.violations.push(grant);
            }
        }
    }
}

// === impl Fullness ===

impl Fullness {
    /// Returns the one that is closer to its maximum.
    pub fn or_fuller(self, other: Self) -> Self {
        let (one, two) = (self.used * other.allowed, other.used * self.allowed);
        match one.cmp(&two) {
            _ if self.allowed == 0 => other,
            Ordering::Less => other,
            _ => self,
        }
    }
}

fn least_common_multiple(one: u128, other: u128) -> u128 {
    let (mut divisor, mut rest) = (one, other);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    one / divisor.max(1) * other
}
