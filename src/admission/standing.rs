//! How a request stands with its limits, once the store has spoken.

use crate::clock::Timestamp;
use crate::limit::{Decision, Outcome, Wait};
use crate::rule::{Charges, LimitCharge, Positions};
use crate::store::Known;

/// What the limits of a route said, each with its position among them, and the store's time when they did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// For each decision, the position of its limit.
    positions: Positions,
    pub(super) decisions: Vec<Decision>,
    pub(crate) now: Timestamp,
}

impl Standing {
    /// What the store answered to these charges.
    pub(super) fn new(charges: &Charges<'_>, outcome: Outcome) -> Self {
        Self { positions: charges.positions().clone(), decisions: outcome.decisions, now: outcome.now }
    }

    /// What is known of these charges; of the limits that were not asked it says nothing.
    pub(super) fn known(charges: &Charges<'_>, known: &Known) -> Self {
        let said = charges.positions().iter().zip(&known.decisions);
        let (positions, decisions) = said.filter_map(|(position, said)| Some((*position, (*said)?))).unzip();
        Self { positions, decisions, now: known.now }
    }

    /// What each limit said, with its position.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Decision)> {
        self.positions.iter().copied().zip(&self.decisions)
    }

    /// Did no limit say anything?
    pub(crate) fn is_empty(&self) -> bool {
        self.decisions.is_empty()
    }

    /// What the limit at this position said, if it was asked and the store knew.
    pub(crate) fn said(&self, index: usize) -> Option<&Decision> {
        self.iter().find(|(position, _)| *position == index).map(|(_, decision)| decision)
    }

    /// Did this limit refuse?
    pub(crate) fn refused(&self, one: &LimitCharge<'_>) -> bool {
        self.said(one.index).is_some_and(|decision| !decision.granted)
    }

    /// Would a limit have refused the request that only watches?
    pub(crate) fn shadow_limited(&self, charges: &Charges<'_>) -> bool {
        charges.iter().any(|one| one.limit.shadow && self.refused(&one))
    }

    /// How long the request would have to wait for all its live limits that were asked.
    pub(super) fn longest_wait(&self, charges: &Charges<'_>) -> Wait {
        let live = charges.iter().filter(|one| !one.limit.shadow).filter_map(|one| self.said(one.index));
        live.map(|decision| decision.wait).max().unwrap_or(Wait::Now)
    }
}

/// For tests and benchmarks.
impl FromIterator<(usize, Decision)> for Standing {
    fn from_iter<I: IntoIterator<Item = (usize, Decision)>>(said: I) -> Self {
        let (positions, decisions) = said.into_iter().unzip();
        Self { positions, decisions, now: Timestamp::default() }
    }
}
