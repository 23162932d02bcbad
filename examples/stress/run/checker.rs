//! Whether a log of grants keeps the laws of its limits. It knows nothing of how permits are counted: only when what
//! was granted, and by which rule.
//!
//! Where grants were made by several rules side by side, each is held to the rule that it was made by, over all grants
//! before it. Those of the same millisecond come in whichever order suits them best: it is not known, and so no alarm is
//! false. All is whole numbers, and a log is judged in one pass.

use std::cmp::Ordering;

/// What an algorithm promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// A permit returns one interval after it was granted.
    TokenBucket,
    /// A permit returns one interval after its segment has ended.
    SlidingWindow {
        /// How many an interval is cut into.
        segments: u64,
    },
    /// All permits return when the next interval since the epoch begins.
    FixedWindow,
    /// Over any span `t`, at most `burst + rate * t / interval`.
    Gcra {
        /// What may be granted at once.
        burst: u64,
    },
    /// Slots of `interval / rate`, given at most `queue` slots ahead; so, by the times they were given at, a burst of
    /// one more.
    LeakyBucket {
        /// How many may wait.
        queue: u64,
    },
}

/// A limit, as one version of the rules has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub law: Law,
    pub rate: u64,
    /// Milliseconds.
    pub interval: u64,
}

/// Permits that were granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// By the store's clock, in milliseconds.
    pub at: u64,
    pub permits: u64,
    /// Which of the rules granted them.
    pub rule: usize,
}

/// What is found about one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// What was in use when it came closest to the rule, or was furthest above.
    pub fullest: Fullness,
    /// The grants that broke their rule.
    pub violations: Vec<Grant>,
}

/// Permits in use and permits allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fullness {
    pub used: u64,
    pub allowed: u64,
}

/// What is in use under one rule, as time goes on.
#[derive(Clone, Debug)]
struct Meter {
    rule: Rule,
    /// How many parts make a permit.
    unit: u128,
    /// Parts that return in a millisecond, under the laws by which permits return one by one.
    drain: u128,
    /// Parts in use.
    used: u128,
    now: u64,
    /// The first grant that has not returned.
    oldest: usize,
}

/// Judges the grants of one bucket.
pub fn check(rules: &[Rule], grants: &[Grant]) -> Finding {
    let mut grants = grants.to_vec();
    grants.sort_by_key(|grant| grant.at);
    let mut meters: Vec<Meter> = rules.iter().map(|rule| Meter::new(*rule, rules)).collect();
    let mut finding = Finding::default();
    for moment in grants.chunk_by(|one, next| one.at == next.at) {
        for meter in &mut meters {
            meter.advance(moment[0].at, &grants);
        }
        finding.judge(moment, &meters);
        let permits = moment.iter().map(|grant| grant.permits).sum();
        meters.iter_mut().for_each(|meter| meter.take(permits));
    }
    finding
}

/// Was as much granted as could have been, within 1 %?
pub fn all_but_a_hundredth(granted: u64, allowed: u64) -> bool {
    granted * 100 >= allowed * 99
}

// === impl Rule ===

impl Rule {
    /// What may be in use at most.
    pub fn capacity(&self) -> u64 {
        match self.law {
            Law::TokenBucket | Law::SlidingWindow { .. } | Law::FixedWindow => self.rate,
            Law::Gcra { burst } => burst,
            Law::LeakyBucket { queue } => queue + 1,
        }
    }

    /// When a permit that was granted at `at` returns; nothing if permits return one by one, whoever took them.
    pub fn returns(&self, at: u64) -> Option<u64> {
        match self.law {
            Law::TokenBucket => Some(at + self.interval),
            Law::SlidingWindow { segments } => {
                let segment = self.interval.div_ceil(segments);
                Some((at / segment + 1) * segment + self.interval)
            }
            Law::FixedWindow => Some((at / self.interval + 1) * self.interval),
            Law::Gcra { .. } | Law::LeakyBucket { .. } => None,
        }
    }

    /// How many milliseconds later than by its law a permit may return. Above 512 permits, grants of one slot of time
    /// share an entry of the log, dated at the latest of them.
    pub fn lateness(&self) -> u64 {
        match self.law {
            Law::TokenBucket if self.rate > 512 => self.interval.div_ceil(511),
            _ => 0,
        }
    }

    /// From when on all is known that was asked for, if it was first granted then: the window that this is in may have
    /// been nearly over.
    pub fn whole_from(&self, first: u64) -> u64 {
        match self.law {
            Law::FixedWindow => first.next_multiple_of(self.interval),
            _ => first,
        }
    }

    /// What could have been granted by a client that lets no permit lie, from the first grant until the last whole
    /// interval before `end` is over; and when that is.
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

    /// For each of these moments: was there no permit left, given what may return late? Whatever was granted in the same
    /// millisecond counts.
    pub fn is_full_at(&self, grants: &[Grant], moments: &[u64]) -> Vec<bool> {
        let (mut grants, mut order) = (grants.to_vec(), Vec::from_iter(0..moments.len()));
        grants.sort_by_key(|grant| grant.at);
        order.sort_by_key(|moment| moments[*moment]);
        let (mut meter, mut taken) = (Meter::new(*self, &[*self]), 0);
        let mut full = vec![false; moments.len()];
        for moment in order {
            while let Some(grant) = grants.get(taken).filter(|grant| grant.at <= moments[moment]) {
                meter.advance(grant.at.saturating_sub(self.lateness()), &grants);
                meter.take(grant.permits);
                taken += 1;
            }
            meter.advance(moments[moment].saturating_sub(self.lateness()), &grants);
            full[moment] = meter.is_too_full_for(1);
        }
        full
    }
}

// === impl Meter ===

impl Meter {
    /// Nothing is in use. Where permits return one by one and rules differ, they return by the fastest of them.
    fn new(rule: Rule, rules: &[Rule]) -> Self {
        let intervals = rules.iter().map(|rule| u128::from(rule.interval));
        let one_by_one = rule.returns(0).is_none();
        let unit = if one_by_one { intervals.fold(1, least_common_multiple) } else { 1 };
        let speeds = rules.iter().map(|rule| u128::from(rule.rate) * unit / u128::from(rule.interval));
        let drain = if one_by_one { speeds.max().unwrap_or(0) } else { 0 };
        Self { rule, unit, drain, used: 0, now: 0, oldest: 0 }
    }

    /// Lets time pass, and what was granted return.
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

    /// Takes permits, whether there are any or not.
    fn take(&mut self, permits: u64) {
        self.used += u128::from(permits) * self.unit;
    }

    /// Would so many permits be too many?
    fn is_too_full_for(&self, permits: u64) -> bool {
        self.room() < i128::try_from(u128::from(permits) * self.unit).unwrap_or(i128::MAX)
    }

    fn room(&self) -> i128 {
        let parts = |parts: u128| i128::try_from(parts).unwrap_or(i128::MAX);
        parts(u128::from(self.rule.capacity()) * self.unit) - parts(self.used)
    }

    fn fullness(&self, more: u64) -> Fullness {
        let used = self.used.div_ceil(self.unit);
        Fullness { used: u64::try_from(used).unwrap_or(u64::MAX) + more, allowed: self.rule.capacity() }
    }
}

// === impl Finding ===

impl Finding {
    /// Judges the grants of one millisecond: whoever has least room first.
    fn judge(&mut self, moment: &[Grant], meters: &[Meter]) {
        let mut moment = moment.to_vec();
        moment.sort_by_key(|grant| meters[grant.rule].room());
        let mut permits = 0;
        for grant in moment {
            permits += grant.permits;
            let meter = &meters[grant.rule];
            self.fullest = self.fullest.or_fuller(meter.fullness(permits));
            if meter.is_too_full_for(permits) {
                self.violations.push(grant);
            }
        }
    }
}

// === impl Fullness ===

impl Fullness {
    /// The one of both that comes closer to what is allowed.
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
