//! The effect of the limit that a descriptor has found.

use std::sync::Arc;

use tidegate_rules::charge::{Charge, ChargeKind, ClientId, Limiter};
use tidegate_rules::limits::rule::Limit;

use crate::change::LimitChange;
use crate::modes::Modes;
use crate::status::{CurrentLimit, Status};
use crate::tree::replaced::Replaced;
use crate::tree::rule::{Metadata, RuleLimit};

/// The limit of a descriptor, before others of the call replace it.
#[derive(Debug)]
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
        /// The change of an operator. `None` almost always.
        change: Option<LimitChange>,
    },
}

/// The effect of the limit of a descriptor.
#[derive(Debug)]
pub(crate) struct Effect<'d> {
    pub(crate) kind: EffectKind<'d>,
    /// Whether the descriptor rejects a call only together with all other quotas.
    pub(crate) is_quota: bool,
    /// Whether the descriptor is never over its limit.
    pub(crate) is_shadow: bool,
    /// The metadata of the rule.
    pub(crate) metadata: Option<&'d Metadata>,
}

/// How the status of a descriptor is decided.
#[derive(Debug)]
pub(crate) enum EffectKind<'d> {
    /// The descriptor passes.
    Pass(Status<'d>),
    /// The limit rejects all requests.
    Zero { limit: CurrentLimit<'d>, is_over: bool },
    /// The charge at this position decides.
    Charge { limit: CurrentLimit<'d>, position: usize },
    /// An operator has banned the client of the charge at this position, for this many milliseconds.
    Banned { limit: CurrentLimit<'d>, position: usize, millis: u64 },
}

impl<'d> Found<'d> {
    /// Returns the rule.
    pub(crate) fn rule(&self) -> Option<&'d RuleLimit> {
        match self {
            Self::Nothing => None,
            Self::Unlimited(rule) => Some(rule),
            Self::Limited { rule, .. } => *rule,
        }
    }

    /// Returns the effect on the descriptor. Adds its charge.
    pub(crate) fn effect(
        self,
        (replaced, modes): (&Replaced<'_>, Modes),
        permits: u32,
        limits: &[Limit],
        charges: &mut Vec<(usize, Charge)>,
    ) -> Effect<'d> {
        let without_rule =
            |status| Effect { kind: EffectKind::Pass(status), is_quota: modes.quota, is_shadow: false, metadata: None };
        let (rule, limit) = match self {
            Self::Nothing => return without_rule(Status::NO_LIMIT),
            Self::Unlimited(_) => return Effect { is_quota: false, ..without_rule(Status::UNLIMITED) },
            Self::Limited { rule, current, .. } => (rule, current),
        };
        if rule.is_some_and(|rule| replaced.includes(rule)) {
            return without_rule(Status::NO_LIMIT);
        }
        let is_shadow = rule.is_some_and(|rule| rule.shadow);
        let kind = match self {
            Self::Limited { change: Some(LimitChange::Exempt), .. } => EffectKind::Pass(Status::NO_LIMIT),
            Self::Limited { position: Some(index), limiter: Some(limiter), client, change, .. } => {
                let kind = if permits == 0 { ChargeKind::NoDebt } else { ChargeKind::Take };
                let shadow = limits[index].shadow;
                let charge = Charge { kind, shadow, ..Charge::new(limiter, client, permits) };
                let position = add(index, charge, charges);
                match change {
                    Some(LimitChange::Ban { millis }) => EffectKind::Banned { limit, position, millis },
                    _ => EffectKind::Charge { limit, position },
                }
            }
            _ => EffectKind::Zero { limit, is_over: permits > 0 && !is_shadow },
        };
        let is_banned = matches!(kind, EffectKind::Banned { .. });
        Effect {
            is_quota: !is_banned && (modes.quota || rule.is_some_and(|rule| rule.quota_mode)),
            kind,
            is_shadow,
            metadata: rule.and_then(|rule| rule.metadata.as_deref()),
        }
    }
}

impl Effect<'_> {
    /// Returns the position of the charge.
    pub(crate) fn charge(&self) -> Option<usize> {
        match self.kind {
            EffectKind::Charge { position, .. } => Some(position),
            EffectKind::Pass(_) | EffectKind::Zero { .. } | EffectKind::Banned { .. } => None,
        }
    }

    /// Returns the position of the charge of a banned client.
    pub(crate) fn banned(&self) -> Option<usize> {
        match self.kind {
            EffectKind::Banned { position, .. } => Some(position),
            _ => None,
        }
    }

    /// Returns `true` if the limit rejects every request, or the client is banned.
    pub(crate) fn is_always_over(&self) -> bool {
        matches!(self.kind, EffectKind::Zero { is_over: true, .. } | EffectKind::Banned { .. })
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
