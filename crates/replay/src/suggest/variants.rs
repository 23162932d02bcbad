//! Rules with many variants of one limit, and no other limits.

use std::sync::Arc;

use super::error::SuggestError;
use super::options::SuggestOptions;
use tidegate_limit::Quota;
use tidegate_rules::charge::Limiter;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::route::{Route, Routes};
use tidegate_rules::rules::{Rules, When};

/// The limit whose rate is suggested.
#[derive(Debug)]
pub(super) struct Variants<'r> {
    pub(super) rules: &'r Rules,
    pub(super) limit: &'r Limit,
    /// The name of the limit, with its route.
    name: &'r str,
    /// The tier whose rate is suggested. `None` if the limit has no tiers.
    pub(super) tier: Option<String>,
    /// The present quota: of the tier, if there is one.
    pub(super) present: Quota,
}

impl<'r> Variants<'r> {
    /// Finds the limit and the tier.
    pub(super) fn of(rules: &'r Rules, options: &'r SuggestOptions) -> Result<Self, SuggestError> {
        let name = options.limit.as_str();
        let limit = find(rules, name)?;
        let Some(rates) = &limit.rates else {
            if let Some(tier) = &options.tier {
                let help = "it has no tiers".to_owned();
                return Err(SuggestError::UnknownTier(name.to_owned(), tier.clone(), help));
            }
            return Ok(Self { rules, limit, name, tier: None, present: limit.limiter.quota });
        };
        let Some(default) = rates.default_tier() else {
            return Err(SuggestError::RateOfRequest(name.to_owned(), rates.by.to_string()));
        };
        let tier = options.tier.as_deref().unwrap_or(default);
        let found = rates.tiers().find(|(other, _)| *other == tier).map(|(_, limiter)| limiter.quota);
        let present = found.ok_or_else(|| {
            let names: Vec<_> = rates.tiers().map(|(name, _)| name).collect();
            let help = format!("the tiers are {}", names.join(", "));
            SuggestError::UnknownTier(name.to_owned(), tier.to_owned(), help)
        })?;
        Ok(Self { rules, limit, name, tier: Some(tier.to_owned()), present })
    }

    /// Returns the rules with only this limit.
    pub(super) fn only_limit(&self) -> Rules {
        self.with_limits(|limit| vec![limit.clone()])
    }

    /// Replaces the limit by shadows with these quotas, and removes all other limits.
    pub(super) fn with_quotas(&self, quotas: &[Quota]) -> Rules {
        let mut rules = self.with_limits(|limit| {
            let mut when = limit.when;
            if self.tier.is_some() {
                when = Some(self.rules.when.len());
            }
            let variants =
                quotas.iter().enumerate().map(|(index, quota)| Limit { when, ..variant(limit, index, *quota) });
            variants.collect()
        });
        if let Some(tier) = &self.tier {
            let when = self.rules.when(self.limit).cloned().unwrap_or_default();
            rules.when.push(When { tiers: vec![tier.as_str().into()], ..when });
        }
        rules
    }

    fn with_limits(&self, limits: impl Fn(&Limit) -> Vec<Limit>) -> Rules {
        let routes = self.rules.routes.iter().map(|route| {
            let is_named = |limit: &&Limit| format!("{}/{}", limit.owner(&route.name), limit.name) == self.name;
            let limits = route.limits.iter().find(is_named).map(&limits).unwrap_or_default();
            Route { limits, concurrency: None, ..route.clone() }
        });
        let conditions = self.rules.when.iter().map(|when| &when.matcher);
        let routes = Routes::new(routes.collect()).with_conditions(conditions);
        Rules { routes, ..self.rules.clone() }
    }
}

/// Returns the limit as a shadow with another quota. All tiers have this quota.
fn variant(limit: &Limit, index: usize, quota: Quota) -> Limit {
    // The name distinguishes the variants, and no output has it.
    let name = format!("{index:03}");
    let limiter = Arc::new(Limiter::new(format!("{{tidegate:suggest}}:{name}"), limit.mode(), quota));
    let rates = limit.rates.as_ref().map(|rates| Arc::new(rates.map_limiters(|_| Arc::clone(&limiter))));
    Limit { name, limiter, rates, shadow: true, is_shared: true, wait_policy: None, ..limit.clone() }
}

fn find<'r>(rules: &'r Rules, name: &str) -> Result<&'r Limit, SuggestError> {
    let name_of = |(route, limit): (&str, &Limit)| format!("{route}/{}", limit.name);
    let found = rules.limits().find(|entry| name_of(*entry) == name);
    found.map(|(_, limit)| limit).ok_or_else(|| {
        let names: Vec<_> = rules.limits().map(name_of).collect();
        SuggestError::UnknownLimit(name.to_owned(), names.join(", "))
    })
}
