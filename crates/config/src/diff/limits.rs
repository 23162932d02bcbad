//! The differences between limits, and the effect on the permits in use.

use std::collections::HashMap;
use std::mem::discriminant;

use serde::Serialize;

use super::{ChangeKind, keys};
use crate::Config;
use tidegate_limit::Mode;
use tidegate_rules::limits::rule::Limit;

/// A limit that is added, removed or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitChange {
    /// The name of the route.
    pub route: String,
    /// The name of the limit.
    pub limit: String,
    /// The kind of the change.
    pub change: ChangeKind,
    /// The keys whose values changed; also `store` if the store with the buckets changed.
    pub keys: Vec<&'static str>,
    /// The rate before the change. `None` if the limit is new, or the rate is only in the store.
    pub old: Option<Rate>,
    /// The rate after the change.
    pub new: Option<Rate>,
    /// Whether the permits in use stay in use. `None` if the limit is removed.
    pub permits: Option<PermitsInUse>,
}

/// A rate, its interval and its algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rate {
    pub rate: u32,
    pub interval_ms: u64,
    pub algorithm: &'static str,
}

/// The effect on the permits in use of a limit that is added or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PermitsInUse {
    /// They stay in use: the limit has the same buckets.
    Kept,
    /// The limit has new buckets, which start without permits in use.
    Empty,
}

/// A limit of a route or a domain.
#[derive(Clone, Copy)]
struct Entry<'c> {
    /// The name of the route, or of the domain after a slash.
    route: &'c str,
    limit: &'c Limit,
    /// The descriptors that a limit of a domain counts, if its name does not contain them.
    rule_name: Option<&'c str>,
}

/// Compares the limits of all routes and domains.
pub(super) fn changes(old: &Config, new: &Config) -> Vec<LimitChange> {
    let has_same_store = old.store.keeps_buckets_in(&new.store);
    let mut unmatched: HashMap<_, _> = entries(old).map(|entry| (entry.key(), entry)).collect();
    let mut by_bucket: HashMap<&str, Vec<Entry<'_>>> = HashMap::new();
    entries(old).for_each(|entry| by_bucket.entry(&entry.limit.limiter.name).or_default().push(entry));
    let mut changes = Vec::new();
    for entry in entries(new) {
        let before = unmatched.remove(&entry.key());
        let mut keys = before.map_or_else(Vec::new, |before| changed_keys((old, before), (new, entry)));
        if before.is_some() && !has_same_store {
            keys.push("store");
        }
        if before.is_some() && keys.is_empty() {
            continue;
        }
        let mut same_name = by_bucket.get(entry.limit.limiter.name.as_str()).into_iter().flatten();
        let is_kept = has_same_store && same_name.any(|before| has_same_buckets(*before, entry));
        changes.push(LimitChange {
            change: if before.is_some() { ChangeKind::Changed } else { ChangeKind::Added },
            keys,
            old: before.and_then(|before| Rate::new(before.limit)),
            new: Rate::new(entry.limit),
            permits: Some(if is_kept { PermitsInUse::Kept } else { PermitsInUse::Empty }),
            ..LimitChange::removed(entry)
        });
    }
    let removed = entries(old).filter(|entry| unmatched.contains_key(&entry.key()));
    changes.extend(removed.map(LimitChange::removed));
    changes
}

/// Returns the keys of a limit whose values differ, apart from the store.
fn changed_keys((old, before): (&Config, Entry<'_>), (new, after): (&Config, Entry<'_>)) -> Vec<&'static str> {
    let mut keys = keys::limit(before.limit, after.limit);
    if old.rules.when(before.limit) != new.rules.when(after.limit) {
        keys.push("when");
    }
    if before.rule_name != after.rule_name {
        keys.push("match");
    }
    keys
}

impl LimitChange {
    /// Creates the change that removes a limit.
    fn removed(Entry { route, limit, .. }: Entry<'_>) -> Self {
        Self {
            route: route.to_owned(),
            limit: limit.name.clone(),
            change: ChangeKind::Removed,
            keys: Vec::new(),
            old: Rate::new(limit),
            new: None,
            permits: None,
        }
    }
}

/// Returns the limits of all routes, and then of all domains.
fn entries(config: &Config) -> impl Iterator<Item = Entry<'_>> {
    let of_routes = config.rules.limits().map(|(route, limit)| Entry { route, limit, rule_name: None });
    let domains = config.service.iter().flat_map(|service| service.domains.iter());
    let of_domains = domains.flat_map(|domain| {
        let limits = domain.rule_limits();
        limits
            .filter_map(|named| Some(Entry { route: domain.route(), limit: named.limit?, rule_name: named.rule_name }))
    });
    of_routes.chain(of_domains)
}

impl<'c> Entry<'c> {
    /// Returns the names that identify the limit.
    fn key(&self) -> (&'c str, &'c str) {
        (self.route, &self.limit.name)
    }
}

/// Returns `true` if two limits take permits from the same buckets. Another key, mode, client or algorithm is another
/// bucket. The client of a domain's limit depends on its descriptors.
fn has_same_buckets(old: Entry<'_>, new: Entry<'_>) -> bool {
    let (before, after) = (&*old.limit.limiter, &*new.limit.limiter);
    let has_same_client = || old.limit.client == new.limit.client && old.rule_name == new.rule_name;
    before.name == after.name
        && before.mode == after.mode
        && (before.mode == Mode::Overall || has_same_client())
        && discriminant(&before.quota.algorithm()) == discriminant(&after.quota.algorithm())
        && keys::has_same_parts(&before.spread, &after.spread)
}

impl Rate {
    fn new(limit: &Limit) -> Option<Self> {
        let quota = &limit.limiter.quota;
        let (rate, interval_ms, algorithm) = (quota.rate(), quota.interval(), quota.algorithm().name());
        (!quota.is_adopted()).then_some(Self { rate, interval_ms, algorithm })
    }
}
