//! Replaces the rules of a layer, and reports what changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{RateLimitLayer, compile};
use tidegate_config::Config;
use tidegate_rules::limits::rule::LimitLocation;
use tidegate_rules::route::Route;
use tidegate_rules::rules::{Rules, When};
use tidegate_rules::settings::store::StoreSettings;

/// The effect of [`RateLimitLayer::replace_rules`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RulesChange {
    /// The names of new routes.
    pub added: Vec<String>,
    /// The names of routes whose conditions, limits or other keys changed.
    pub changed: Vec<String>,
    /// The names of routes that were removed.
    pub removed: Vec<String>,
    /// The top-level keys that changed and apply to all routes, such as `clients`.
    pub keys: Vec<&'static str>,
    /// The top-level keys that changed and were ignored, such as `store`: they apply when a layer is built.
    pub ignored: Vec<&'static str>,
}

/// The settings of a configuration that only the start of a layer uses.
#[derive(Clone, Debug)]
pub(super) struct StartSettings {
    store: StoreSettings,
    buckets: Vec<Duration>,
}

impl RulesChange {
    /// Returns `true` if nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl StartSettings {
    pub(super) fn new(config: &Config) -> Self {
        Self { store: config.store.clone(), buckets: config.buckets.clone() }
    }

    /// Returns the keys whose values differ.
    fn differences(&self, other: &Self) -> Vec<&'static str> {
        let keys = [("store", self.store == other.store), ("metrics", self.buckets == other.buckets)];
        keys.into_iter().filter(|(_, is_equal)| !is_equal).map(|(key, _)| key).collect()
    }
}

impl RateLimitLayer {
    /// Replaces the rules for all later requests by the rules of `config`. Keeps the store, the permits in use and the
    /// counters. Returns what changed. All clones of the layer, and its services, use the new rules.
    pub fn replace_rules(&self, config: &Config) -> RulesChange {
        let mut start = self.state.replacing.lock();
        let active = self.state.active.load();
        let rules = compile(config, self.state.store(&active), &self.state.metrics);
        let new_start = StartSettings::new(config);
        let mut change = compare(&active.rules.rules, &rules.rules);
        change.ignored = start.differences(&new_start);
        *start = new_start;
        self.state.store(&active).set_active_limits(rules.limiters(), active.rules.limiters());
        self.state.active.store(Arc::new(active.with_rules(rules, active.stores.clone())));
        change
    }
}

fn compare(before: &Rules, after: &Rules) -> RulesChange {
    let (old, new) = (meanings(before), meanings(after));
    let names = |routes: &mut dyn Iterator<Item = &String>| routes.cloned().collect::<Vec<_>>();
    let order = |rules: &Rules| rules.routes.iter().map(|route| Arc::clone(&route.name)).collect::<Vec<_>>();
    let added = names(&mut new.keys().filter(|name| !old.contains_key(*name)));
    let removed = names(&mut old.keys().filter(|name| !new.contains_key(*name)));
    let changed = new.iter().filter(|(name, route)| old.get(*name).is_some_and(|other| other != *route));
    let changed = names(&mut changed.map(|(name, _)| name));
    let is_reordered = added.is_empty() && removed.is_empty() && order(before) != order(after);
    let keys = [
        ("clients", before.addresses == after.addresses),
        ("requests", (before.requests, &before.fields) == (after.requests, &after.fields)),
        ("identities", before.credentials == after.credentials),
        ("routes", !is_reordered),
    ];
    let keys = keys.into_iter().filter(|(_, is_equal)| !is_equal).map(|(key, _)| key).collect();
    RulesChange { added, changed, removed, keys, ignored: Vec::new() }
}

/// Returns the routes by name.
fn meanings(rules: &Rules) -> BTreeMap<String, (Route, Vec<Option<&When>>)> {
    rules.routes.iter().map(|route| (route.name.to_string(), meaning(rules, route))).collect()
}

/// Returns a route without the lines of its values, and the conditions of its limits.
fn meaning<'r>(rules: &'r Rules, route: &Route) -> (Route, Vec<Option<&'r When>>) {
    let mut route = route.clone();
    let conditions = route.limits.iter().map(|limit| rules.when(limit)).collect();
    route.inherited = Arc::default();
    for limit in &mut route.limits {
        (limit.location, limit.when) = (LimitLocation::default(), None);
    }
    (route, conditions)
}
