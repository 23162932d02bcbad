//! `limit_req` and `limit_conn`, with their zones.

pub(super) mod conn;
mod key;
pub(crate) mod law;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use self::key::{Key, keys};
use self::law::Law;
use super::Conversion;
use super::scope::Scope;
use super::syntax::Directive;
use super::values::Unknown;
use super::values::template::{Part, parts};
use crate::draft::{Limit, LimitUse, Mode};

/// The most limits of a route.
const MAX_LIMITS: usize = 100;

/// A zone of `limit_req_zone` or `limit_conn_zone`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zone<'c> {
    pub(super) directive: &'c Directive,
    /// The text with variables that identifies a client.
    pub(super) key: &'c str,
    /// Thousandths of a request per second. `None` for `limit_conn_zone`, or if it cannot be parsed.
    rate: Option<u64>,
}

/// The zones of a configuration, and the shared limits that the conversion has made of them.
#[derive(Debug, Default)]
pub(super) struct Zones<'c> {
    requests: HashMap<&'c str, Zone<'c>>,
    pub(super) connections: HashMap<&'c str, Zone<'c>>,
    made: HashMap<Use, Vec<String>>,
    /// The routes that count the requests in flight of each zone.
    pub(super) counting: HashMap<String, Vec<&'c Directive>>,
}

/// A use of a zone. Equal uses share a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Use {
    zone: String,
    law: Law,
    is_dry_run: bool,
    /// The name of the server, if the key contains it.
    server: Option<String>,
    /// The values of the variables in the key that `set` assigns.
    assigned: Vec<Option<String>>,
}

// === impl Zones ===

impl<'c> Zones<'c> {
    /// Reads the zones of `http`.
    pub(super) fn read(http: &Scope<'c>) -> Self {
        let mut zones = Self::default();
        for directive in http.own("limit_req_zone") {
            let rate = directive.option("rate").and_then(law::rate);
            if let Some((name, key)) = zone(directive) {
                zones.requests.insert(name, Zone { directive, key, rate });
            }
        }
        for directive in http.own("limit_conn_zone") {
            if let Some((name, key)) = zone(directive) {
                zones.connections.insert(name, Zone { directive, key, rate: None });
            }
        }
        zones
    }
}

/// Returns the name and the key of a zone.
fn zone(directive: &Directive) -> Option<(&str, &str)> {
    let name = directive.option("zone")?;
    Some((name.split_once(':').map_or(name, |(name, _)| name), directive.arg(0)?))
}

// === impl Conversion ===

impl<'c> Conversion<'c, '_> {
    /// Returns the limits of requests in a block. `server` is the first name of its server.
    pub(super) fn limits(&mut self, scope: &Scope<'c>, server: &str) -> Vec<LimitUse> {
        let mut names: Vec<String> = Vec::new();
        for directive in scope.all("limit_req") {
            for name in self.limit_req(directive, scope, server) {
                if !names.contains(&name) && names.len() < MAX_LIMITS {
                    names.push(name);
                }
            }
        }
        if let Some(dry_run) = scope.last("limit_req_dry_run") {
            self.notes.same(dry_run, "`shadow`");
        }
        names.into_iter().map(LimitUse::Shared).collect()
    }

    /// Returns the names of the shared limits of a `limit_req`.
    fn limit_req(&mut self, directive: &'c Directive, scope: &Scope<'c>, server: &str) -> Vec<String> {
        let Some(zone) = directive.option("zone").and_then(|name| self.zones.requests.get(name).copied()) else {
            self.notes.lost(directive, "its zone is not defined");
            return Vec::new();
        };
        let Some(law) = zone.rate.and_then(|rate| law_of(directive, rate)) else {
            self.notes.lost(directive, "its rate or burst is not a number within the bounds of the rule file");
            self.notes
                .lost(zone.directive, "the rate is not `NUMBERr/s` or `NUMBERr/m` within the bounds of the rule file");
            return Vec::new();
        };
        let used = Use {
            zone: directive.option("zone").unwrap_or_default().to_owned(),
            law,
            is_dry_run: scope.is_on("limit_req_dry_run"),
            server: zone.key.contains("server_name").then(|| server.to_owned()),
            assigned: assigned_in(zone.key, scope),
        };
        if let Some(names) = self.zones.made.get(&used).cloned() {
            if names.is_empty() && self.keys_of(zone, scope).is_err() {
                self.notes.lost(directive, "the key of its zone is not supported");
            } else {
                self.notes.same(directive, used.law.algorithm());
            }
            return names;
        }
        let names = match self.keys_of(zone, scope) {
            Ok(keys) => self.make_limits(&used, directive, zone, &keys),
            Err(reason) => {
                self.notes.lost(zone.directive, format!("the key is not supported: {reason}"));
                self.notes.lost(directive, "the key of its zone is not supported");
                Vec::new()
            }
        };
        self.zones.made.insert(used, names.clone());
        names
    }

    /// Returns the keys of a zone in a block. A server without a name has an empty `$server_name`, which is not counted.
    fn keys_of(&self, zone: Zone<'c>, scope: &Scope<'c>) -> Result<Vec<Key>, Unknown> {
        let name = scope.last("server_name").and_then(|names| names.arg(0)).unwrap_or_default();
        if name.is_empty() && matches!(zone.key, "$server_name" | "${server_name}") {
            return Ok(Vec::new());
        }
        keys(&self.variables.values(zone.key, &scope.assigned)?)
    }

    /// Adds the shared limits of a use of a zone.
    fn make_limits(&mut self, used: &Use, directive: &Directive, zone: Zone<'c>, keys: &[Key]) -> Vec<String> {
        let is_second = self
            .zones
            .made
            .keys()
            .any(|other| other.zone == used.zone && other.server == used.server && other.assigned == used.assigned);
        if is_second {
            let reason =
                "its zone has another `burst`, `delay` or dry run elsewhere: there, clients have other buckets";
            self.notes.looser(directive, reason);
        }
        let mut names = Vec::new();
        for key in keys {
            let mut limit = Limit {
                name: self.draft.limit_name(&used.zone),
                mode: if key.client.is_empty() { Mode::Overall } else { Mode::PerClient },
                client: key.client.clone(),
                when: key.when.clone(),
                on_missing_client: key.on_missing_client,
                shadow: used.is_dry_run,
                place: Some(directive.place.clone()),
                ..Limit::default()
            };
            let bounded = used.law.apply(&mut limit, self.replicas.get());
            bounded.into_iter().for_each(|reason| self.notes.stricter(directive, reason));
            for (verdict, reason) in &key.differences {
                self.notes.add(zone.directive, *verdict, reason);
            }
            names.push(limit.name.clone());
            self.draft.limits.push(limit);
        }
        self.note_limit(used, directive, zone);
        names
    }

    fn note_limit(&mut self, used: &Use, directive: &Directive, zone: Zone<'c>) {
        if self.replicas.get() > 1 {
            let reason = "the rates of all replicas are one limit, which a client of one replica can use alone";
            self.notes.looser(zone.directive, reason);
        }
        let rate = used.law.rate;
        self.notes.same(
            zone.directive,
            match rate % 1_000 {
                0 => String::new(),
                _ => format!("nginx rounds the rate to {}.{:03} requests per second", rate / 1_000, rate % 1_000),
            },
        );
        self.notes.same(directive, used.law.algorithm());
    }

    /// Notes the limits of a block that its `return` or `rewrite` precedes: nginx redirects before it counts.
    pub(super) fn note_unlimited(&mut self, scope: &Scope<'c>) {
        for directive in scope.own("limit_req").iter().chain(scope.own("limit_conn")) {
            self.notes.same(directive, "without effect: nginx responds before it counts the request");
        }
    }
}

/// Returns the parameters of a `limit_req`.
fn law_of(directive: &Directive, rate: u64) -> Option<Law> {
    let burst = directive.option("burst").map_or(Some(0), |burst| burst.parse().ok())?;
    let delay = directive.option("delay").map_or(Some(0), |delay| delay.parse().ok())?;
    let is_immediate = directive.texts().any(|text| text == "nodelay");
    Some(Law { rate, burst, delay: if is_immediate { burst } else { delay.min(burst) } })
}

/// Returns the values of the variables in a key that `set` assigns.
fn assigned_in(key: &str, scope: &Scope<'_>) -> Vec<Option<String>> {
    let value = |part| match part {
        Part::Variable(name) => scope.assigned.get(&name).cloned(),
        Part::Text(_) => None,
    };
    parts(key).into_iter().filter_map(value).collect()
}
