//! The charges of a call: one for each bucket that its descriptors take permits from.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_rules::charge::{Charge, ChargeKind, ClientId, Limiter};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::rules::Charges;

use crate::status::{CurrentLimit, Status};
use crate::tree::replaced::Replaced;
use crate::tree::rule::RuleLimit;

/// The charges of a call. All are made or none, as for a request to a route.
#[derive(Debug)]
pub struct CallCharges<'d> {
    /// The charges for the store, and its decisions. Each bucket has one charge, even if several descriptors share it.
    pub charges: Charges<'d>,
    effects: Vec<Effect<'d>>,
}

/// The limit of a descriptor, before others of the call replace it.
pub(crate) enum Found<'d> {
    /// No limit applies.
    Nothing,
    /// The rule lets all requests pass.
    Unlimited(&'d RuleLimit),
    /// A limit applies.
    Limited {
        /// The rule. `None` if the caller sets the limit, which no other limit replaces.
        rule: Option<&'d RuleLimit>,
        /// The limit for the response.
        current: CurrentLimit<'d>,
        /// The position in the domain. `None` if the rate is 0.
        position: Option<usize>,
        /// The buckets. `None` if the rate is 0.
        limiter: Option<Arc<Limiter>>,
        /// The client. `None` if all clients share a bucket.
        client: Option<ClientId>,
    },
}

/// The effect of the limit of a descriptor.
#[derive(Debug)]
enum Effect<'d> {
    /// The descriptor passes.
    Pass(Status<'d>),
    /// The limit rejects all requests.
    Zero { limit: CurrentLimit<'d>, is_over: bool },
    /// The charge at this position decides.
    Charge { limit: CurrentLimit<'d>, position: usize },
}

impl<'d> CallCharges<'d> {
    /// Creates the charges of descriptors that have found these limits, and cost these permits.
    pub(crate) fn new(
        limits: &'d [Limit],
        found: SmallVec<[Found<'d>; 4]>,
        permits: SmallVec<[u32; 8]>,
    ) -> CallCharges<'d> {
        let replaced = Replaced::new(found.iter().filter_map(Found::rule));
        let mut charges = Vec::with_capacity(found.len());
        let effects: Vec<_> = found
            .into_iter()
            .zip(permits)
            .map(|(found, permits)| found.effect(&replaced, permits, limits, &mut charges))
            .collect();
        let is_over = effects.iter().any(|effect| matches!(effect, Effect::Zero { is_over: true, .. }));
        let mut all = Charges::with_capacity(limits, charges.len());
        for (position, charge) in charges {
            // The call is rejected in any case, so it takes nothing.
            let kind = if is_over && !charge.kind.is_check() { ChargeKind::Check } else { charge.kind };
            all.push(position, Charge { kind, ..charge });
        }
        Self { charges: all, effects }
    }

    /// Returns the status of each descriptor, in their order. The charges have their decisions.
    pub fn statuses(&self) -> impl Iterator<Item = Status<'d>> {
        self.effects.iter().map(|effect| match *effect {
            Effect::Pass(status) => status,
            Effect::Zero { limit, is_over } => Status::of_zero(limit, is_over),
            Effect::Charge { limit, position } => {
                let entry = self.charges.at(position);
                let status = |decision| Status::of_decision(limit, decision, entry.limit.shadow);
                entry.decision.map_or(Status::NO_LIMIT, status)
            }
        })
    }

    /// Returns `true` if a limit rejects the call.
    pub fn is_rejected(&self) -> bool {
        self.statuses().any(|status| status.is_over)
    }
}

impl<'d> Found<'d> {
    fn rule(&self) -> Option<&'d RuleLimit> {
        match self {
            Self::Nothing => None,
            Self::Unlimited(rule) => Some(rule),
            Self::Limited { rule, .. } => *rule,
        }
    }

    /// Returns the effect on the descriptor. Adds its charge.
    fn effect(
        self,
        replaced: &Replaced<'_>,
        permits: u32,
        limits: &[Limit],
        charges: &mut Vec<(usize, Charge)>,
    ) -> Effect<'d> {
        let (rule, limit) = match self {
            Self::Nothing => return Effect::Pass(Status::NO_LIMIT),
            Self::Unlimited(_) => return Effect::Pass(Status::UNLIMITED),
            Self::Limited { rule, current, .. } => (rule, current),
        };
        if rule.is_some_and(|rule| replaced.includes(rule)) {
            return Effect::Pass(Status::NO_LIMIT);
        }
        let Self::Limited { position: Some(index), limiter: Some(limiter), client, .. } = self else {
            let is_over = permits > 0 && !rule.is_some_and(|rule| rule.shadow);
            return Effect::Zero { limit, is_over };
        };
        let kind = if permits == 0 { ChargeKind::NoDebt } else { ChargeKind::Take };
        let shadow = limits[index].shadow;
        let charge = Charge { kind, shadow, ..Charge::new(limiter, client, permits) };
        Effect::Charge { limit, position: add(index, charge, charges) }
    }
}

/// Adds a charge, or its permits to another charge of the same bucket: the charges of a decision are checked separately, so
/// that two would be granted together the permits that remain for one. The smaller rate applies. Returns the position of the
/// charge.
fn add(index: usize, charge: Charge, charges: &mut Vec<(usize, Charge)>) -> usize {
    let is_same = |(other, before): &(usize, Charge)| *other == index && before.client == charge.client;
    let Some(position) = charges.iter().position(is_same) else {
        charges.push((index, charge));
        return charges.len() - 1;
    };
    let before = &mut charges[position].1;
    before.permits = before.permits.saturating_add(charge.permits);
    if charge.kind == ChargeKind::Take {
        before.kind = ChargeKind::Take;
    }
    if charge.limiter.quota.rate() < before.limiter.quota.rate() {
        before.limiter = charge.limiter;
    }
    position
}
