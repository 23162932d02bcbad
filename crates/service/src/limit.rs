//! The limits of a domain: the limits of its rules, and one for each unit of the limits that callers set.

use std::sync::Arc;

use tidegate_limit::{Mode, Quota};
use tidegate_rules::charge::Limiter;
use tidegate_rules::limits::rule::Limit;

use crate::tree::rule::{Rate, RuleLimit};
use crate::unit::{Unit, Window};

/// The limit of a rule in its domain.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DomainLimit {
    /// The name in metrics, logs and keys.
    pub(crate) name: String,
    /// The name of the rule. `None` if the limit has this name.
    pub(crate) rule_name: Option<String>,
    /// The keys whose values the limit counts separately. Empty if all clients share a bucket.
    pub(crate) client: Box<str>,
    /// The rule.
    pub(crate) rule: RuleLimit,
    /// The position among the limits with buckets. `None` if the rate is unlimited or 0.
    pub(crate) position: Option<usize>,
}

/// Creates the limits of one domain.
pub(crate) struct LimitBuilder<'w> {
    /// The hash tag of all buckets of the domain.
    pub(crate) tag: &'w str,
    pub(crate) window: Window,
    /// The limits with buckets.
    pub(crate) limits: Vec<Limit>,
}

impl LimitBuilder<'_> {
    /// Adds the limit of a rule with this name and mode, unless the limit has its own. `client` are the keys whose values are
    /// counted separately, unless the limit is OVERALL.
    pub(crate) fn add(&mut self, name: &str, (mode, client): (Mode, &str), rule: RuleLimit) -> DomainLimit {
        let rule_name = rule.limit_name.is_some().then(|| name.to_owned());
        let (name, mode) = (rule.limit_name.as_deref().unwrap_or(name), rule.mode.unwrap_or(mode));
        let quota = match rule.rate {
            Rate::Limited { requests_per_unit, unit } => self.window.quota(requests_per_unit, unit),
            Rate::Quota(quota) => Some(quota),
            Rate::Unlimited => None,
        };
        let position = quota.map(|quota| {
            let limit = self.limit(name, mode, quota);
            let (shadow, on_store_failure, location) = (rule.shadow, rule.on_store_failure, rule.location.clone());
            self.limits.push(Limit { shadow, on_store_failure, location, ..limit });
            self.limits.len() - 1
        });
        let client = if mode == Mode::Overall { "" } else { client };
        DomainLimit { name: name.to_owned(), rule_name, client: client.into(), rule, position }
    }

    /// Adds the limits that callers set, in the order of [`Unit::ALL`]. Each call has its own rate. Returns the position of the
    /// first.
    pub(crate) fn add_overrides(&mut self) -> usize {
        let first = self.limits.len();
        for unit in Unit::ALL {
            let quota = self.window.quota(1, unit);
            // No rule has this name: its key is empty.
            let name = format!("={}", unit.name());
            let limit = quota.map(|quota| self.limit(&name, Mode::PerClient, quota));
            self.limits.extend(limit);
        }
        first
    }

    fn limit(&self, name: &str, mode: Mode, quota: Quota) -> Limit {
        let limiter = Limiter::new(format!("{}:{name}", self.tag), mode, quota);
        Limit::new(name.to_owned(), Arc::new(limiter))
    }
}
