//! The charges of a call: one for each bucket that its descriptors take permits from.

use smallvec::SmallVec;
use tidegate_rules::charge::{Charge, ChargeKind};
use tidegate_rules::rules::{Charges, LimitCharge};

use crate::effect::{Effect, EffectKind};
use crate::found::FoundLimits;
use crate::modes::Modes;
use crate::status::Status;

/// The charges of a call. All are made or none, as for a request to a route.
#[derive(Debug)]
pub struct CallCharges<'d> {
    /// The charges for the store, and its decisions. Each bucket has one charge, even if several descriptors share it.
    pub charges: Charges<'d>,
    effects: Vec<Effect<'d>>,
    modes: Modes,
}

impl<'d> CallCharges<'d> {
    /// Creates the charges of descriptors that have found these limits.
    pub fn new(FoundLimits { limits, modes, found, permits, replaced }: FoundLimits<'d>) -> CallCharges<'d> {
        let mut charges = Vec::with_capacity(found.len());
        let effects: Vec<_> = found
            .into_iter()
            .zip(permits)
            .map(|(found, permits)| found.effect((&replaced, modes), permits, limits, &mut charges))
            .collect();
        let is_banned = effects.iter().any(|effect| effect.banned().is_some());
        let is_rejected = is_banned || (!modes.shadow && exceeds(&effects, Effect::is_always_over));
        soften_quotas(&effects, &mut charges);
        let mut all = Charges::with_capacity(limits, charges.len());
        for (position, charge) in charges {
            // The call is rejected in any case, so it takes nothing.
            let kind = if is_rejected && !charge.kind.is_check() { ChargeKind::Check } else { charge.kind };
            all.push(position, Charge { kind, ..charge });
        }
        Self { charges: all, effects, modes }
    }

    /// Returns the status of each descriptor, in their order. The charges have their decisions.
    pub fn statuses(&self) -> impl Iterator<Item = Status<'d>> {
        self.effects.iter().map(|effect| self.status(effect))
    }

    /// Returns the position of the charge of each descriptor. `None` for a descriptor that is not counted.
    pub fn positions(&self) -> impl Iterator<Item = Option<usize>> {
        self.effects.iter().map(|effect| effect.charge().or_else(|| effect.banned()))
    }

    /// Returns `true` if a descriptor exceeds its limit, or if there are quotas and the call exceeds all of them.
    pub fn exceeds_limits(&self) -> bool {
        exceeds(&self.effects, |effect| self.status(effect).is_over)
    }

    /// Returns `true` if the call is rejected: it [exceeds](Self::exceeds_limits) its limits, and the domain is not in shadow mode;
    /// or a client is banned.
    pub fn is_rejected(&self) -> bool {
        self.banned().next().is_some() || (!self.modes.shadow && self.exceeds_limits())
    }

    /// Returns the charges whose clients are banned. They are never made.
    pub fn banned(&self) -> impl Iterator<Item = LimitCharge<'_>> {
        self.effects.iter().filter_map(Effect::banned).map(|position| self.charges.at(position))
    }

    /// Lets the quotas reject the call if it exceeds all of them, and no other limit refuses it. `reported` are the positions of
    /// reports, which reject no other hits of the call. Returns `true` if other quotas reject the call: then charges that were
    /// made have to be given back.
    pub fn enforce_quotas(&mut self, reported: &[usize]) -> bool {
        let is_report = |position: usize| reported.contains(&position);
        let quotas = || self.effects.iter().filter(|effect| effect.is_quota);
        let is_soft = |position: &usize| self.charges.at(*position).charge.shadow;
        let soft: SmallVec<[usize; 8]> = quotas().filter_map(Effect::charge).filter(is_soft).collect();
        let refuses = |entry: LimitCharge<'_>| !entry.is_shadow() && entry.is_refused();
        let is_refused =
            (0..self.charges.len()).any(|position| !is_report(position) && refuses(self.charges.at(position)));
        if self.modes.shadow || soft.is_empty() || is_refused || !quotas().all(|quota| self.status(quota).is_over) {
            return false;
        }
        let has_others = quotas().any(|quota| !quota.charge().is_some_and(is_report));
        soft.into_iter().for_each(|position| self.charges.enforce(position));
        has_others
    }

    fn status(&self, effect: &Effect<'d>) -> Status<'d> {
        let status = match effect.kind {
            EffectKind::Pass(status) => status,
            EffectKind::Zero { limit, is_over } => Status::of_zero(limit, is_over),
            EffectKind::Banned { limit, millis, .. } => Status::of_ban(limit, millis),
            EffectKind::Charge { limit, position } => {
                let status = |decision| Status::of_decision(limit, decision, effect.is_shadow);
                self.charges.at(position).decision.map_or(Status::NO_LIMIT, status)
            }
        };
        Status { is_quota: effect.is_quota, metadata: effect.metadata.filter(|_| !status.is_over), ..status }
    }
}

/// Returns `true` if one effect rejects the call, or all quotas do.
fn exceeds<'e>(effects: &[Effect<'e>], mut is_over: impl FnMut(&Effect<'e>) -> bool) -> bool {
    let (mut quotas, mut passed_quotas) = (0, 0);
    for effect in effects {
        match (effect.is_quota, is_over(effect)) {
            (false, true) => return true,
            (true, is_over) => (quotas, passed_quotas) = (quotas + 1, passed_quotas + u32::from(!is_over)),
            (false, false) => {}
        }
    }
    quotas > 0 && passed_quotas == 0
}

/// Lets no quota reject the call alone, if there are several. Only the decisions show whether the call exceeds all.
fn soften_quotas(effects: &[Effect<'_>], charges: &mut [(usize, Charge)]) {
    if effects.iter().filter(|effect| effect.is_quota).count() < 2 {
        return;
    }
    // A bucket that another descriptor shares stays enforced.
    let charged =
        |is_quota: bool| effects.iter().filter(move |effect| effect.is_quota == is_quota).filter_map(Effect::charge);
    let enforced: SmallVec<[usize; 8]> = charged(false).collect();
    for position in charged(true).filter(|position| !enforced.contains(position)) {
        charges[position].1.shadow = true;
    }
}
