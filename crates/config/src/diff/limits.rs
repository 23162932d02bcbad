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

/// Compares the limits of all routes.
pub(super) fn changes(old: &Config, new: &Config) -> Vec<LimitChange> {
    let has_same_store = old.store.keeps_buckets_in(&new.store);
    let mut unmatched: HashMap<(&str, &str), &Limit> =
        old.rules.limits().map(|(route, limit)| ((route, &*limit.name), limit)).collect();
    let mut changes = Vec::new();
    for (route, limit) in new.rules.limits() {
        let before = unmatched.remove(&(route, &*limit.name));
        let mut keys = before.map_or_else(Vec::new, |before| keys::limit(before, limit));
        if before.is_some_and(|before| old.rules.when(before) != new.rules.when(limit)) {
            keys.push("when");
        }
        if before.is_some() && !has_same_store {
            keys.push("store");
        }
        if before.is_some() && keys.is_empty() {
            continue;
        }
        let is_kept = has_same_store && old.rules.limits().any(|(_, before)| has_same_buckets(before, limit));
        changes.push(LimitChange {
            route: route.to_owned(),
            limit: limit.name.clone(),
            change: if before.is_some() { ChangeKind::Changed } else { ChangeKind::Added },
            keys,
            old: before.and_then(Rate::new),
            new: Rate::new(limit),
            permits: Some(if is_kept { PermitsInUse::Kept } else { PermitsInUse::Empty }),
        });
    }
    let removed = old.rules.limits().filter(|(route, limit)| unmatched.contains_key(&(*route, &*limit.name)));
    changes.extend(removed.map(|(route, limit)| LimitChange {
        route: route.to_owned(),
        limit: limit.name.clone(),
        change: ChangeKind::Removed,
        keys: Vec::new(),
        old: Rate::new(limit),
        new: None,
        permits: None,
    }));
    changes
}

/// Returns `true` if two limits take permits from the same buckets. Another key, mode, client or algorithm is another
/// bucket.
fn has_same_buckets(old: &Limit, new: &Limit) -> bool {
    let (before, after) = (&*old.limiter, &*new.limiter);
    before.name == after.name
        && before.mode == after.mode
        && (before.mode == Mode::Overall || old.client == new.client)
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
