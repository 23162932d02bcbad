//! Rates that depend on the request: `tier`, and `rate` with `by`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::quota::{RateKeys, quota};
use super::rate_key::default_of;
use super::spread::Spread;
use crate::check::{Checked, all, help_for_unknown, present_keys, reject_keys};
use crate::file::located::{Located, ValueOrMap};
use crate::file::{self, File};
use crate::problem::{Problems, quote};
use tidegate_limit::{MAX_RATE, Mode};
use tidegate_rules::charge::{Limiter, OnLost};
use tidegate_rules::limits::cost::Cost;
use tidegate_rules::limits::rates::Rates;
use tidegate_rules::request::identity::IdentityValue;

pub(super) const BY_HELP: &str =
    "write `jwt:CLAIM`, `key:tier`, `key:ATTRIBUTE`, `header:NAME`, or in a layer `extension:NAME`";

/// The parts of a limit that all of its limiters share.
pub(crate) struct LimiterParts<'a> {
    pub(crate) name: &'a str,
    pub(crate) mode: Mode,
    pub(crate) cost: &'a Checked<Cost>,
    pub(crate) budget: Option<OnLost>,
    pub(crate) spread: &'a Spread,
}

/// Returns the keys of the default rate of a limit, and reports keys that exclude each other.
pub(super) fn default_keys<'f>(raw: &'f file::Limit, file: &'f File, problems: &mut Problems) -> Checked<RateKeys<'f>> {
    let tier = raw.tier.optional(problems)?;
    let key = if tier.is_some() { Some(("tier", raw.tier.key_location())) } else { None };
    let is_dynamic = matches!(raw.rate.get(), Some(ValueOrMap::Map(_)));
    let key = key.or_else(|| is_dynamic.then(|| ("rate", raw.rate.key_location())));
    if let Some((key, at)) = key {
        if raw.mode.get() == Some(&Mode::Overall) {
            let message = format!("{} cannot depend on the request in an OVERALL limit", quote(key));
            return Err(problems.add(at, message, "use `mode: PER_CLIENT`"));
        }
        if raw.key.is_present() || raw.adopt.get() == Some(&true) {
            let message = format!("{} cannot depend on the request in a limit with `key`", quote(key));
            return Err(problems.add(at, message, "leave one of them out"));
        }
    }
    let Some(source) = tier else {
        let rate = raw.rate.optional(problems)?.and_then(|_| default_of(&raw.rate));
        return Ok(RateKeys { rate, interval: &raw.interval, burst: &raw.burst });
    };
    let keys = present_keys!(raw, rate interval burst);
    let checked = reject_keys(&keys, "with `tier`: the tier has it", "leave it out", problems);
    let default = tier_named(&source.default, file, problems);
    checked.and(default).and_then(|tier| tier_keys(tier, problems))
}

/// Returns the source of the rates of a limit, if they depend on the request. `default` is its limiter.
pub(crate) fn rates(
    raw: &file::Limit,
    file: &File,
    parts: &LimiterParts<'_>,
    default: &Limiter,
    problems: &mut Problems,
) -> Checked<Option<Rates>> {
    let limiter =
        |quota| parts.spread.apply(Limiter::new(parts.name.to_owned(), parts.mode, quota)).with_budget(parts.budget);
    if let Some(source) = raw.tier.optional(problems)? {
        let (by, name) = (value(&source.by, problems)?, source.default.required(problems)?);
        let mut limiters = BTreeMap::new();
        for (tier, located) in file.tiers.get().into_iter().flatten() {
            let keys = located.required(problems).and_then(|tier| tier_keys(tier, problems))?;
            let quota = quota(raw, keys, None, located.location, problems)?;
            check_cost(tier, &quota, parts.cost, &raw.permits, problems)?;
            limiters.insert(tier.as_str().into(), Arc::new(limiter(quota)));
        }
        return Rates::by_tier(by, name, limiters).map(Some).ok_or_else(|| problems.reported(source.default.location));
    }
    let Some(ValueOrMap::Map(source)) = raw.rate.optional(problems)? else { return Ok(None) };
    let max = source.max.number(MAX_RATE, problems)?;
    let by = value(&source.by, problems)?;
    if max < default.quota.rate() {
        let message = format!("`default` is {}, above the `max` of {max}", default.quota.rate());
        return Err(source.default.report(message, "raise `max`, or lower `default`", problems));
    }
    let cost = parts.cost.as_ref().map_or(1, Cost::max);
    Ok(Some(Rates::by_number(by, Arc::new(limiter(default.quota)), max, cost)))
}

/// Returns the tier with this name, or reports that the name is unknown.
fn tier_named<'f>(raw: &Located<String>, file: &'f File, problems: &mut Problems) -> Checked<&'f file::Tier> {
    let name = raw.required(problems)?;
    let tiers = file.tiers.get();
    if let Some(tier) = tiers.and_then(|tiers| tiers.get(name)) {
        return tier.required(problems);
    }
    let help = help_for_unknown(name, tiers.into_iter().flatten().map(|(name, _)| name.as_str()), "tiers", || {
        format!("define it at the top level: `tiers: {{ {name}: {{ rate: 100, interval: 1m }} }}`")
    });
    Err(raw.report(format!("there is no tier {}", quote(name)), help, problems))
}

/// Returns the tiers of a condition.
pub(super) fn tiers_of_condition(
    raw: &Located<Vec<Located<String>>>,
    file: &File,
    problems: &mut Problems,
) -> Checked<Vec<Box<str>>> {
    let names = raw.optional(problems)?.into_iter().flatten();
    all(names.map(|name| tier_named(name, file, problems).and_then(|_| Ok(name.required(problems)?.as_str().into()))))
}

fn tier_keys<'f>(tier: &'f file::Tier, problems: &mut Problems) -> Checked<RateKeys<'f>> {
    let rate = *tier.rate.required(problems)?;
    Ok(RateKeys { rate: Some(rate), interval: &tier.interval, burst: &tier.burst })
}

/// Converts the name of a value.
fn value(raw: &Located<String>, problems: &mut Problems) -> Checked<IdentityValue> {
    let text = raw.required(problems)?;
    IdentityValue::parse(text)
        .ok_or_else(|| raw.report(format!("{} is not a value of a request's identity", quote(text)), BY_HELP, problems))
}

/// Reports a tier whose full bucket has fewer permits than a request may cost.
fn check_cost<T>(
    tier: &str,
    quota: &tidegate_limit::Quota,
    cost: &Checked<Cost>,
    permits: &Located<T>,
    problems: &mut Problems,
) -> Checked<()> {
    let (cost, capacity) = ((*cost).as_ref().map_or(0, Cost::max), quota.capacity());
    if cost <= capacity {
        return Ok(());
    }
    let message = format!("a bucket of the tier {} has {capacity} permits, below the {cost} of a request", quote(tier));
    Err(permits.report(message, "raise the rate of the tier, or lower the cost", problems))
}
