//! The charges of one request. [`decisions`](super::decisions) adds the decisions about them.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::charge::{Charge, ChargeKind, Decision, Limiter, ReservationId, Turn};
use crate::limits::rule::Limit;
use tidegate_limit::clock::Timestamp;

/// Positions of limits in their route, which has at most [`Route::MAX_LIMITS`](crate::route::Route::MAX_LIMITS), or of
/// their charges in the request. Up to eight need no allocation.
pub type Positions = SmallVec<[u16; 8]>;

/// The charges of one request, one for each limit that counts it, and the decisions about them.
#[derive(Debug)]
pub struct Charges<'r> {
    limits: &'r [Limit],
    /// For each charge, the position of its limit.
    positions: Positions,
    charges: Vec<Charge>,
    /// The decisions about the charges; empty before.
    pub(super) decisions: Vec<Decision>,
    /// The time of the decisions on the store's clock; 0 without decisions of the store.
    pub(super) decided_at: Timestamp,
    /// Whether a limit has several charges.
    repeats: bool,
    /// Whether this gateway's shares of the limits have decided, since the store did not.
    pub(super) is_local: bool,
}

/// A limit that counts the request, with its charge.
#[derive(Clone, Copy, Debug)]
pub struct LimitCharge<'c> {
    /// The position of the limit in its route.
    pub index: usize,
    /// The limit.
    pub limit: &'c Limit,
    /// The charge for the store.
    pub charge: &'c Charge,
    /// The decision about the charge; `None` if it is unknown.
    pub decision: Option<&'c Decision>,
}

impl LimitCharge<'_> {
    /// Returns `true` if the limit has refused the request.
    pub fn is_refused(&self) -> bool {
        self.decision.is_some_and(|decision| !decision.granted)
    }

    /// Returns `true` if the refusal of the limit does not reject the request: for every request, or for this one.
    pub fn is_shadow(&self) -> bool {
        self.limit.shadow || self.charge.shadow
    }
}

/// Without limits.
impl Default for Charges<'_> {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl<'r> Charges<'r> {
    /// Creates an empty list for a route with these limits.
    pub fn new(limits: &'r [Limit]) -> Self {
        Self::with_capacity(limits, limits.len())
    }

    /// Creates an empty list with space for this many charges of these limits. There may be many more limits.
    pub fn with_capacity(limits: &'r [Limit], charges: usize) -> Self {
        Self {
            limits,
            positions: Positions::with_capacity(charges),
            charges: Vec::with_capacity(charges),
            decisions: Vec::new(),
            decided_at: Timestamp::default(),
            repeats: false,
            is_local: false,
        }
    }

    /// Adds the charge of the limit at this position.
    #[inline]
    pub fn push(&mut self, index: usize, charge: Charge) {
        self.positions.push(u16::try_from(index).unwrap_or(u16::MAX));
        self.charges.push(charge);
    }

    /// Adds a charge of the limit at this position. Two charges of the limit for one bucket become one.
    pub(super) fn add(&mut self, index: usize, charge: Charge) {
        let position = u16::try_from(index).unwrap_or(u16::MAX);
        let of_limit = self.positions.iter().zip(&mut self.charges).filter(|(own, _)| **own == position);
        let mut is_repeated = false;
        for (_, own) in of_limit {
            if Arc::ptr_eq(&own.limiter, &charge.limiter) && own.client == charge.client {
                own.permits = own.permits.saturating_add(charge.permits);
                return;
            }
            is_repeated = true;
        }
        self.repeats |= is_repeated;
        self.push(index, charge);
    }

    /// Returns the charges for the store.
    pub fn as_slice(&self) -> &[Charge] {
        &self.charges
    }

    /// Returns the charges, to be checked and not made.
    pub fn reads(&self) -> Vec<Charge> {
        self.charges.iter().map(|charge| Charge { kind: ChargeKind::Check, ..charge.clone() }).collect()
    }

    /// Returns the number of limits that count the request.
    pub fn len(&self) -> usize {
        self.charges.len()
    }

    /// Returns `true` if no limit counts the request.
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// Returns the charges in order, each with its limit.
    pub fn iter(&self) -> impl Iterator<Item = LimitCharge<'_>> {
        (0..self.charges.len()).map(|position| self.at(position))
    }

    #[inline]
    pub(super) fn last(&self) -> Option<LimitCharge<'_>> {
        Some(self.at(self.charges.len().checked_sub(1)?))
    }

    /// Returns the charge at this position of the request, from 0.
    ///
    /// # Panics
    /// The request has fewer charges.
    #[inline]
    pub fn at(&self, position: usize) -> LimitCharge<'_> {
        let index = usize::from(self.positions[position]);
        let decision = self.decisions.get(position).filter(|decision| !decision.is_unknown);
        LimitCharge { index, limit: &self.limits[index], charge: &self.charges[position], decision }
    }

    /// Returns the charges that match a predicate, without their decisions.
    pub fn only(&self, which: impl Fn(&LimitCharge<'_>) -> bool) -> Self {
        let mut some = Self::with_capacity(self.limits, self.len());
        for entry in self.iter().filter(|entry| which(entry)) {
            some.push(entry.index, entry.charge.clone());
        }
        some
    }

    /// Returns the charges at all other positions than these, without their decisions.
    pub fn without(&self, positions: &[usize]) -> Self {
        let mut others = Self::with_capacity(self.limits, self.len());
        for (_, entry) in self.iter().enumerate().filter(|(position, _)| !positions.contains(position)) {
            others.push(entry.index, entry.charge.clone());
        }
        others
    }

    /// Records the decision about a report, which was charged apart from the other charges. It is never given back.
    pub fn add_report(&mut self, position: usize, decision: Decision) {
        self.charges[position].kind = ChargeKind::Check;
        self.set_decision(position, decision);
    }

    /// Makes the charges of budgets reservations, named by `new`.
    pub fn reserve(&mut self, mut new: impl FnMut() -> ReservationId) {
        let is_budget = |charge: &&mut Charge| charge.limiter.budget.is_some() && charge.kind == ChargeKind::Take;
        self.charges.iter_mut().filter(is_budget).for_each(|charge| charge.kind = ChargeKind::Reserve(new()));
    }

    /// Removes the charges of limits that do not match a predicate, with their decisions.
    pub fn retain(&mut self, mut keeps: impl FnMut(&Limit) -> bool) {
        let kept: SmallVec<[bool; 8]> = self.iter().map(|entry| keeps(entry.limit)).collect();
        self.positions.retain(next_of(&kept));
        self.charges.retain_mut(next_of(&kept));
        self.decisions.retain_mut(next_of(&kept));
    }

    /// Lets no limit reject the request: a limit that refuses it is not charged, and all others are.
    pub fn tolerate(&mut self) {
        self.charges.iter_mut().for_each(|charge| charge.shadow = true);
    }

    /// Returns the limits that would have rejected the request if they were not [tolerant](Self::tolerate).
    pub fn exceeded(&self) -> impl Iterator<Item = LimitCharge<'_>> {
        self.iter().filter(|entry| entry.charge.shadow && !entry.limit.shadow && entry.is_refused())
    }

    /// Replaces the limiter of each charge for which `change` returns another one.
    pub fn replace_limiters(&mut self, change: impl Fn(&Limit, &Arc<Limiter>) -> Option<Arc<Limiter>>) {
        for (index, charge) in self.positions.iter().zip(&mut self.charges) {
            if let Some(limiter) = change(&self.limits[usize::from(*index)], &charge.limiter) {
                charge.limiter = limiter;
            }
        }
    }

    /// Sets the permits of each charge.
    pub fn set_permits(&mut self, permits: u32) {
        self.charges.iter_mut().for_each(|charge| charge.permits = permits);
    }

    /// Lets the limit of the charge at this position of the request reject it, unless the limit is a shadow for every request.
    pub fn enforce(&mut self, position: usize) {
        self.charges[position].shadow = false;
    }

    /// Refuses time slots of live limits that begin later than this, in milliseconds.
    pub fn limit_delays(&mut self, millis: u64) {
        for charge in self.charges.iter_mut().filter(|charge| !charge.shadow && charge.patience() > millis) {
            charge.turn = Turn::Within { millis };
        }
    }

    /// Returns the limits of the route as responses to the request report them, if that differs from other requests:
    /// with the limiters of the charges, and without the limits that do not count the request.
    pub fn changed_limits(&self) -> Option<Vec<Limit>> {
        let is_absent = |index: &usize| self.limits[*index].is_visible_to_clients() && !self.has(*index);
        let is_same = |entry: LimitCharge<'_>| Arc::ptr_eq(&entry.charge.limiter, &entry.limit.limiter);
        let is_complete = self.positions.len() == self.limits.len() && !self.repeats;
        let has_all = is_complete || !(0..self.limits.len()).any(|index| is_absent(&index));
        if has_all && self.iter().all(is_same) {
            return None;
        }
        let mut limits = self.limits.to_vec();
        // The positions of all others must stay, and shadows are never reported.
        (0..limits.len()).filter(is_absent).for_each(|index| limits[index].shadow = true);
        self.iter().for_each(|entry| limits[entry.index].limiter = Arc::clone(&entry.charge.limiter));
        Some(limits)
    }

    /// Returns the position of the limit of each charge.
    #[inline]
    pub fn limit_positions(&self) -> impl Iterator<Item = usize> {
        self.positions.iter().map(|index| usize::from(*index))
    }

    /// Returns `true` if the limit at this position counts the request.
    pub fn has(&self, index: usize) -> bool {
        self.limit_positions().any(|position| position == index)
    }
}

/// Returns a predicate for elements in order, which returns whether each is kept.
fn next_of<T>(kept: &[bool]) -> impl FnMut(&mut T) -> bool {
    let mut kept = kept.iter();
    move |_| kept.next().is_none_or(|is_kept| *is_kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charge::Outcome;
    use tidegate_limit::{Algorithm, Mode, Quota, Wait};

    #[test]
    fn tolerated_refusals_are_exceeded_limits() {
        let quota = Quota::new(9, 1_000, Algorithm::TokenBucket).expect("a quota");
        let mut limits = ["live", "granted", "shadow"]
            .map(|name| Limit::new(name.to_owned(), Arc::new(Limiter::new(name.to_owned(), Mode::Overall, quota))));
        limits[2].shadow = true;
        let mut charges = Charges::new(&limits);
        for (index, limit) in limits.iter().enumerate() {
            let charge = Charge::new(Arc::clone(&limit.limiter), None, 1);
            charges.push(index, Charge { shadow: limit.shadow, ..charge });
        }
        charges.tolerate();
        let decisions = [Wait::Millis(5), Wait::Now, Wait::Millis(5)].map(|wait| Decision::new(0, wait, 0));
        charges.decide(Outcome::new(Timestamp::default(), decisions.to_vec(), charges.as_slice()));
        let names: Vec<_> = charges.exceeded().map(|entry| entry.limit.name.as_str()).collect();
        assert_eq!((names, charges.wait()), (vec!["live"], Wait::Now));
    }

    #[test]
    fn charges_keep_their_decisions_when_others_are_removed() {
        let quota = Quota::new(9, 1_000, Algorithm::TokenBucket).expect("a quota");
        let limits = ["a", "b", "c"]
            .map(|name| Limit::new(name.to_owned(), Arc::new(Limiter::new(name.to_owned(), Mode::Overall, quota))));
        let mut charges = Charges::new(&limits);
        for (index, limit) in limits.iter().enumerate() {
            charges.push(index, Charge::new(Arc::clone(&limit.limiter), None, 1));
        }
        let decisions = [1, 2, 3].map(|remaining| Decision::new(remaining, Wait::Now, 0));
        charges.decide(Outcome::new(Timestamp::default(), decisions.to_vec(), charges.as_slice()));
        charges.retain(|limit| limit.name != "b");
        let remaining =
            charges.iter().map(|entry| (entry.limit.name.as_str(), entry.decision.map(|decision| decision.remaining)));
        assert_eq!(remaining.collect::<Vec<_>>(), [("a", Some(1)), ("c", Some(3))]);
    }
}
