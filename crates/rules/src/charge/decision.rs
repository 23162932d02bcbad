//! The decisions of a store about charges.

use tidegate_limit::clock::Timestamp;
use tidegate_limit::{BucketDecision, Quota, Wait};

use super::{Charge, RESERVED_WAIT};

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

// === impl Decision ===

/// The decision of a limit's own bucket.
impl From<BucketDecision> for Decision {
    #[inline]
    fn from(BucketDecision { granted, remaining, wait, reset, delay }: BucketDecision) -> Self {
        Self { granted, delay, ..Self::new(remaining, wait, reset) }
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
            let is_for_reserved = charge.limiter.budget.is_some() && decision.wait == Wait::Millis(RESERVED_WAIT);
            if decision.remaining == 0 && !is_for_reserved {
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
