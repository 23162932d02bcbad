//! Limit status: what the limits said to a request, once the store has decided.

use crate::clock::Timestamp;
use crate::limit::{Decision, Outcome, Wait};
use crate::rules::{Charges, LimitCharge};
use crate::store::{Known, StoreError};

/// What the limits of a route said, what follows from it, and the store's time when they did.
#[derive(Clone, Debug)]
pub(crate) struct LimitStatus {
    /// By the position of the limit in its route; nothing of one that was not asked, or of which nothing is known.
    decisions: Vec<Option<Decision>>,
    /// How long the request would have to wait for all its live limits.
    pub(super) wait: Wait,
    /// Would a limit have refused it that only watches?
    pub(crate) shadow_limited: bool,
    /// Why the store did not decide, if this gateway decided alone. Clients are told nothing of what is left then.
    pub(crate) fallback_cause: Option<StoreError>,
    pub(crate) now: Timestamp,
}

impl LimitStatus {
    /// What the store answered to these charges.
    pub(super) fn new(charges: &Charges<'_>, outcome: Outcome) -> Self {
        Self::from_decisions(charges, outcome.decisions.into_iter().map(Some).collect(), outcome.now)
    }

    /// What this gateway says to these charges without the store.
    pub(super) fn new_local(charges: &Charges<'_>, outcome: Outcome, error: StoreError) -> Self {
        Self { fallback_cause: Some(error), ..Self::new(charges, outcome) }
    }

    /// What is known of these charges; of the limits that were not asked it says nothing.
    pub(super) fn from_known(charges: &Charges<'_>, known: Known) -> Self {
        Self::from_decisions(charges, known.decisions, known.now)
    }

    /// `said` is what was said to each charge. Limits that do not count the request have none, and say nothing.
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
        for index in charges.positions() {
            for uncharged in next..*index {
                said.insert(uncharged, None);
            }
            next = index + 1;
        }
        Self { decisions: said, wait, shadow_limited, fallback_cause: None, now }
    }

    /// What each limit said, with its position.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Decision)> {
        self.decisions.iter().enumerate().filter_map(|(position, said)| Some((position, said.as_ref()?)))
    }

    /// Did no limit say anything?
    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// What the limit at this position said, if it was asked and the store knew.
    pub(crate) fn decision(&self, index: usize) -> Option<&Decision> {
        self.decisions.get(index)?.as_ref()
    }

    /// Did this limit refuse?
    pub(crate) fn refused(&self, one: &LimitCharge<'_>) -> bool {
        self.decision(one.index).is_some_and(|decision| !decision.granted)
    }

    /// How long it is until the last of the slots that the live limits granted.
    pub(super) fn delay(&self, charges: &Charges<'_>) -> u64 {
        let live = charges.iter().filter(|one| !one.limit.shadow).filter_map(|one| self.decision(one.index));
        live.map(|decision| decision.delay).max().unwrap_or(0)
    }
}

/// Nothing was asked.
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
