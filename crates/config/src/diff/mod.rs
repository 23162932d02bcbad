//! The differences between two configurations: what a reload changes, and what happens to the permits in use.
//!
//! Entries of the rule file are identified by their names, listeners by their addresses. No value of the store is part
//! of a difference, since it may be a secret.

mod keys;
mod limits;
mod text;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use serde::Serialize;

pub use self::limits::{LimitChange, PermitsInUse};
use crate::{Config, Listen};
use tidegate_rules::route::Route;
use tidegate_service::Domain;

/// The differences between two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConfigDiff {
    /// The listeners, by address.
    pub listeners: Vec<Change>,
    /// The upstreams, by name.
    pub upstreams: Vec<Change>,
    /// The routes, by name.
    pub routes: Vec<Change>,
    /// Whether the routes that both configurations have are in another order, so that another route may match first.
    pub routes_reordered: bool,
    /// The domains of the service, by name.
    pub domains: Vec<Change>,
    /// The limits, in the order of the routes, and then of the domains. The route of a domain's limit is `/` and the domain.
    pub limits: Vec<LimitChange>,
    /// The other keys of the rule file that changed, such as `store` and `clients`.
    pub settings: Vec<&'static str>,
}

/// A listener, upstream, route or domain that is added, removed or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The name of the route or the key.
    pub name: String,
    /// The kind of the change.
    pub change: ChangeKind,
    /// The keys whose values changed. Empty unless the entry is in both configurations.
    pub keys: Vec<&'static str>,
}

/// How an entry differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// Only the new file has it.
    Added,
    /// Only the old file has it.
    Removed,
    /// Both files have it, with other values.
    Changed,
}

impl ConfigDiff {
    /// Compares two configurations.
    pub fn new(old: &Config, new: &Config) -> Self {
        let mut listeners = changes(listeners(old), listeners(new), keys::listener);
        for Change { name, .. } in &mut listeners {
            *name = new.secrets.mask(&old.secrets.mask(name)).into_owned();
        }
        Self {
            listeners,
            upstreams: changes(
                old.upstreams.iter().map(|(name, upstream)| (name.to_string(), upstream)),
                new.upstreams.iter().map(|(name, upstream)| (name.to_string(), upstream)),
                keys::upstream,
            ),
            routes: changes(routes(old), routes(new), keys::route),
            routes_reordered: is_reordered(old, new),
            domains: changes(domains(old), domains(new), keys::domain),
            limits: limits::changes(old, new),
            settings: keys::settings(old, new),
        }
    }

    /// Returns `true` if the configurations have the same effect.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the listeners, each with its address. Several entries may have port 0; these are numbered.
pub fn listeners(config: &Config) -> Vec<(String, &Listen)> {
    let mut counts = HashMap::new();
    let name = |entry: &Listen| {
        let address = entry.address.to_string();
        let count: &mut u32 = counts.entry(address.clone()).or_default();
        *count += 1;
        if *count == 1 { address } else { format!("{address} ({count})") }
    };
    config.listen.iter().map(name).collect::<Vec<_>>().into_iter().zip(&config.listen).collect()
}

fn routes(config: &Config) -> Vec<(String, &Route)> {
    config.rules.routes.iter().map(|route| (route.name.to_string(), route)).collect()
}

fn domains(config: &Config) -> Vec<(String, &Domain)> {
    let domains = config.service.iter().flat_map(|service| service.domains.iter());
    domains.map(|domain| (domain.name().to_owned(), domain)).collect()
}

fn is_reordered(old: &Config, new: &Config) -> bool {
    let names = |config: &Config| config.rules.routes.iter().map(|route| route.name.clone()).collect::<Vec<_>>();
    let (mut before, mut after) = (names(old), names(new));
    let names = before.clone();
    before.retain(|name| after.contains(name));
    after.retain(|name| names.contains(name));
    before != after
}

/// Compares entries by name: in the order of the new ones, and then the removed ones. `keys` returns the changed keys.
fn changes<'c, T: 'c>(
    old: impl IntoIterator<Item = (String, &'c T)>,
    new: impl IntoIterator<Item = (String, &'c T)>,
    keys: impl Fn(&T, &T) -> Vec<&'static str>,
) -> Vec<Change> {
    let old: Vec<_> = old.into_iter().collect();
    let mut unmatched: HashMap<&str, &T> = old.iter().map(|(name, entry)| (name.as_str(), *entry)).collect();
    let mut changes = Vec::new();
    for (name, entry) in new {
        let (change, keys) = match unmatched.remove(name.as_str()) {
            None => (ChangeKind::Added, Vec::new()),
            Some(before) => (ChangeKind::Changed, keys(before, entry)),
        };
        if change == ChangeKind::Added || !keys.is_empty() {
            changes.push(Change { name, change, keys });
        }
    }
    let removed = old.iter().filter(|(name, _)| unmatched.contains_key(name.as_str()));
    changes.extend(removed.map(|(name, _)| Change {
        name: name.clone(),
        change: ChangeKind::Removed,
        keys: Vec::new(),
    }));
    changes
}
