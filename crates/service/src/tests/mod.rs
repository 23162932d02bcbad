//! Tests of calls against domains, with buckets in a map.

mod calls;
mod changes;
mod named;
mod names;
mod quotas;
mod search;
mod search_law;

use std::collections::HashMap;

use tidegate_limit::BucketState;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{BucketId, Charge, ChargeKind, Decision, Outcome};
use tidegate_rules::settings::store::BucketNames;

use crate::*;

/// Returns a rule without a limit.
pub(crate) fn rule(key: &str, value: &str, rules: Vec<Rule>) -> Rule {
    let value = Some(value.to_owned()).filter(|value| !value.is_empty());
    Rule { key: key.to_owned(), value, rules, ..Rule::default() }
}

/// Returns a rule with this many requests in each minute.
pub(crate) fn limited(key: &str, value: &str, requests_per_unit: u32) -> Rule {
    let limit = RuleLimit::new(Rate::Limited { requests_per_unit, unit: Unit::MINUTE });
    Rule { limit: Some(limit), ..rule(key, value, Vec::new()) }
}

/// Changes the limit of a rule.
pub(crate) fn with(rule: Rule, change: impl FnOnce(&mut RuleLimit)) -> Rule {
    let mut rule = rule;
    change(rule.limit.as_mut().expect("a limit"));
    rule
}

pub(crate) fn domain(rules: &[Rule]) -> Domain {
    Domain::new("edge".to_owned(), rules, Window::TokenBucket, &BucketNames::default()).expect("a domain")
}

/// Returns a descriptor from `KEY=VALUE` entries, separated by commas.
pub(crate) fn descriptor(text: &str) -> Descriptor<'_> {
    let entries = text.split(',').filter_map(|entry| entry.split_once('='));
    Descriptor { entries: entries.map(|(key, value)| Entry { key, value }).collect(), ..Descriptor::default() }
}

pub(crate) fn call<'c>(descriptors: impl IntoIterator<Item = Descriptor<'c>>) -> Call<'c> {
    Call { domain: "edge", descriptors: descriptors.into_iter().collect(), hits_addend: 0 }
}

/// The buckets of a store, at a fixed time.
#[derive(Default)]
pub(crate) struct Buckets(HashMap<BucketId, BucketState>);

impl Buckets {
    /// Decides a call: all its charges are made, or none.
    pub(crate) fn decide<'d>(&mut self, domain: &'d Domain, call: &Call<'_>) -> CallCharges<'d> {
        call.validate().expect("a valid call");
        let now = Timestamp::from_millis(1_800_000_000_000);
        let mut decided = domain.charges(call);
        let charges = decided.charges.as_slice();
        let check = |charge: &Charge| {
            let state = self.0.get(&charge.bucket_id()).unwrap_or(&BucketState::EMPTY);
            Decision::from(state.check(&charge.limiter.quota, charge.permits, now))
        };
        let mut outcome = Outcome::new(now, charges.iter().map(check).collect(), charges);
        let is_granted = outcome.granted();
        for (charge, decision) in charges.iter().zip(&mut outcome.decisions) {
            if is_granted && decision.granted && charge.kind == ChargeKind::Take {
                let state = self.0.entry(charge.bucket_id()).or_insert(BucketState::EMPTY);
                *decision = Decision::from(state.charge(&charge.limiter.quota, charge.permits, now));
            }
        }
        decided.charges.decide(outcome);
        decided
    }
}
