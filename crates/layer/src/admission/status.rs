//! The limit status: the decisions of the limits about a request.

use tidegate_limit::clock::Timestamp;
use tidegate_limit::{Decision, Outcome, Wait};
use tidegate_rules::rules::{Charges, LimitCharge};
use tidegate_store::{KnownRefusal, StoreError};

/// The decisions of a route's limits about a request, their combined result, and the store's time.
#[derive(Clone, Debug)]
pub struct LimitStatus {
    /// By the position of the limit in its route; `None` for limits without a known decision.
    decisions: Vec<Option<Decision>>,
    /// How long the request must wait for all its live limits.
    pub(super) wait: Wait,
    /// Whether a shadow limit refused the request.
    pub shadow_limited: bool,
    /// Why the store did not decide, if this gateway decided locally. Then responses contain no remaining permits.
    pub fallback_cause: Option<StoreError>,
    pub now: Timestamp,
}

impl LimitStatus {
    /// Creates the status from the store's decisions about these charges.
    pub fn new(charges: &Charges<'_>, outcome: Outcome) -> Self {
        let known = |decision: Decision| (!decision.is_unknown).then_some(decision);
        Self::from_decisions(charges, outcome.decisions.into_iter().map(known).collect(), outcome.now)
    }

    /// Creates the status from this gateway's own decisions, after a failure of the store.
    pub(super) fn new_local(charges: &Charges<'_>, outcome: Outcome, error: StoreError) -> Self {
        Self { fallback_cause: Some(error), ..Self::new(charges, outcome) }
    }

    /// Creates the status from cached refusals; other limits have no decision.
    pub(super) fn from_known(charges: &Charges<'_>, known: KnownRefusal) -> Self {
        Self::from_decisions(charges, known.decisions, known.now)
    }

    /// Creates the status from one decision for each charge. Limits that do not count the request have no decision.
    fn from_decisions(charges: &Charges<'_>, mut said: Vec<Option<Decision>>, now: Timestamp) -> Self {
        let (mut wait, mut shadow_limited) = (Wait::Now, false);
        for (position, said) in said.iter().enumerate() {
            let Some(refusal) = said.filter(|decision| !decision.granted) else { continue };
            match charges.at(position).limit.shadow {
                true => shadow_limited = true,
                false => wait = wait.max(refusal.wait),
            }
        }
        let mut next = 0;
        for index in charges.limit_positions() {
            for uncharged in next..index {
                said.insert(uncharged, None);
            }
            next = index + 1;
        }
        Self { decisions: said, wait, shadow_limited, fallback_cause: None, now }
    }

    /// Iterates over the decisions, with the positions of their limits.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Decision)> {
        self.decisions.iter().enumerate().filter_map(|(position, said)| Some((position, said.as_ref()?)))
    }

    /// Returns `true` if there are no decisions.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns the decision of the limit at this position; `None` if it has no known decision.
    pub fn decision(&self, index: usize) -> Option<&Decision> {
        self.decisions.get(index)?.as_ref()
    }

    /// Replaces the decision of the limit at this position. `None` if it is unknown.
    pub(super) fn set_decision(&mut self, index: usize, decision: Option<Decision>) {
        if let Some(said) = self.decisions.get_mut(index) {
            *said = decision;
        }
    }

    /// Records that the limit at this position refuses the request, which has to wait this long.
    pub fn refuse(&mut self, index: usize, remaining: u32, wait: u64) {
        if self.decisions.len() <= index {
            self.decisions.resize(index + 1, None);
        }
        let wait_for = Wait::Millis(wait.max(1));
        self.decisions[index] = Some(Decision::new(remaining, wait_for, wait));
        self.wait = self.wait.max(wait_for);
    }

    /// Returns `true` if this limit refused the request.
    pub fn refused(&self, one: &LimitCharge<'_>) -> bool {
        self.decision(one.index).is_some_and(|decision| !decision.granted)
    }

    /// Returns the live limits that refused the request.
    pub fn refusing<'c>(&self, charges: &'c Charges<'_>) -> impl Iterator<Item = LimitCharge<'c>> {
        charges.iter().filter(|one| !one.limit.shadow && self.refused(one))
    }

    /// Returns the live limit that refused the request for the longest time.
    pub fn longest_refusal<'c>(&self, charges: &'c Charges<'_>) -> Option<LimitCharge<'c>> {
        self.refusing(charges).max_by_key(|one| self.decision(one.index).map(|decision| decision.wait))
    }

    /// Returns the time until the last time slot that live limits have assigned.
    pub(super) fn delay(&self, charges: &Charges<'_>) -> u64 {
        let live = charges.iter().filter(|one| !one.limit.shadow).filter_map(|one| self.decision(one.index));
        live.map(|decision| decision.delay).max().unwrap_or(0)
    }
}

/// The status of a request without decisions.
impl Default for LimitStatus {
    fn default() -> Self {
        Self {
            decisions: Vec::new(),
            wait: Wait::Now,
            shadow_limited: false,
            fallback_cause: None,
            now: Timestamp::default(),
        }
    }
}

/// For tests and benchmarks: the decisions of limits in the order of their positions.
impl FromIterator<(usize, Decision)> for LimitStatus {
    fn from_iter<I: IntoIterator<Item = (usize, Decision)>>(decisions: I) -> Self {
        let mut said = Vec::new();
        for (position, decision) in decisions {
            said.resize(position, None);
            said.push(Some(decision));
        }
        Self { decisions: said, ..Self::default() }
    }
}
