//! The decisions about the charges of a request: from the store, its negative cache, the wait queues, or this gateway's
//! shares of the limits.

use super::charges::{Charges, LimitCharge};
use crate::charge::{Decision, Granted, Outcome};
use tidegate_limit::Wait;
use tidegate_limit::clock::Timestamp;

impl<'r> Charges<'r> {
    /// Records the decisions about all charges, in place of earlier ones.
    pub fn decide(&mut self, outcome: Outcome) {
        (self.decisions, self.decided_at, self.is_local) = (outcome.decisions, outcome.now, false);
    }

    /// Records the decisions of this gateway's shares of the limits, which decide instead of the store.
    pub fn decide_locally(&mut self, outcome: Outcome) {
        self.decide(outcome);
        self.is_local = true;
    }

    /// Records the decisions about `some` of these charges. The others are unknown. A limit may have several charges, each
    /// for another client.
    pub fn decide_only(&mut self, some: &Charges<'_>) {
        let is_same = |one: &LimitCharge<'_>, other: &LimitCharge<'_>| {
            one.index == other.index && one.charge.client == other.charge.client
        };
        let decision = |entry: LimitCharge<'_>| some.iter().find(|other| is_same(&entry, other))?.decision.copied();
        let decisions = self.iter().map(|entry| decision(entry).unwrap_or(Decision::UNKNOWN)).collect();
        self.decisions = decisions;
        (self.decided_at, self.is_local) = (some.decided_at, some.is_local);
    }

    /// Forgets all decisions.
    pub fn forget_decisions(&mut self) {
        self.decide(Outcome::default());
    }

    /// Records that the limit of the charge at this position of the request refuses it, and that the request has to wait
    /// this many milliseconds.
    pub fn refuse(&mut self, position: usize, remaining: u32, wait: u64) {
        self.set_decision(position, Decision::new(remaining, Wait::Millis(wait.max(1)), wait));
    }

    /// Replaces the decision about the charge at this position of the request.
    pub fn set_decision(&mut self, position: usize, decision: Decision) {
        self.decisions.resize(self.decisions.len().max(position + 1), Decision::UNKNOWN);
        self.decisions[position] = decision;
    }

    /// Returns the known decisions, each with the position of its limit in the route.
    pub fn decisions(&self) -> impl Iterator<Item = (usize, &Decision)> {
        self.iter().filter_map(|entry| Some((entry.index, entry.decision?)))
    }

    /// Returns the time of the decisions on the store's clock. Returns `None` without decisions of the store: a full queue
    /// rejects requests without asking it.
    pub fn decided_at(&self) -> Option<Timestamp> {
        Some(self.decided_at).filter(|now| *now > Timestamp::default())
    }

    /// Returns `true` if this gateway's shares of the limits have decided, since the store did not. Then the remaining
    /// permits of the limits are unknown.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// Returns how long the request must wait for all its live limits.
    pub fn wait(&self) -> Wait {
        self.refusing().filter_map(|refused| Some(refused.decision?.wait)).max().unwrap_or(Wait::Now)
    }

    /// Returns the time until the last time slot that live limits have assigned, in milliseconds.
    pub fn delay(&self) -> u64 {
        let live = self.iter().filter(|entry| !entry.limit.shadow);
        live.filter_map(|entry| Some(entry.decision?.delay)).max().unwrap_or(0)
    }

    /// Returns the live limits that have refused the request.
    pub fn refusing(&self) -> impl Iterator<Item = LimitCharge<'_>> {
        self.iter().filter(|entry| !entry.is_shadow() && entry.is_refused())
    }

    /// Returns the live limit that has refused the request for the longest time.
    pub fn longest_refusal(&self) -> Option<LimitCharge<'_>> {
        self.refusing().max_by_key(|entry| entry.decision.map(|decision| decision.wait))
    }

    /// Returns `true` if a shadow has refused the request.
    pub fn is_refused_by_shadow(&self) -> bool {
        self.iter().any(|entry| entry.is_shadow() && entry.is_refused())
    }

    /// Returns the charges of an admitted request that were made and match a predicate.
    pub fn granted(&self, which: impl Fn(&LimitCharge<'_>) -> bool) -> Vec<Granted> {
        let matching = self.iter().filter(which);
        matching.filter_map(|entry| entry.decision?.grant(entry.charge, self.decided_at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::charge::{Charge, ClientId, Limiter};
    use crate::limits::rule::Limit;
    use tidegate_limit::{Algorithm, Mode, Quota};

    /// A call of the rate limit service can have several charges of one limit.
    #[test]
    fn charges_of_one_limit_keep_their_own_decisions() {
        let quota = Quota::new(9, 1_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("l".to_owned(), Mode::PerClient, quota));
        let limits = [Limit::new("l".to_owned(), Arc::clone(&limiter))];
        let mut charges = Charges::new(&limits);
        for client in [1, 2, 3] {
            charges.push(0, Charge::new(Arc::clone(&limiter), Some(ClientId::Hash(client)), 1));
        }
        let mut some = charges.only(|entry| entry.charge.client != Some(ClientId::Hash(2)));
        let decisions = [1, 3].map(|remaining| Decision::new(remaining, Wait::Now, 0));
        some.decide(Outcome::new(Timestamp::default(), decisions.to_vec(), some.as_slice()));
        charges.decide_only(&some);
        let remaining = charges.iter().map(|entry| entry.decision.map(|decision| decision.remaining));
        assert_eq!(remaining.collect::<Vec<_>>(), [Some(1), None, Some(3)]);
    }
}
