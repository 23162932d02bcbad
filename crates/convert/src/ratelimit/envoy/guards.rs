//! Filters that reject requests, and are lost: the routes that they protect are closed.

use super::At;
use crate::guards::is_protective;
use crate::tree::Node;

/// A filter of a connection manager that rejects requests.
#[derive(Clone, Debug)]
pub(super) struct Guard<'a> {
    name: &'a str,
    /// The name with its place, for comments.
    shown: String,
    /// Whether it rejects requests to routes without settings for it.
    is_on: bool,
}

impl<'a> Guard<'a> {
    /// Reads a filter. Returns `None` if it rejects nothing.
    pub(super) fn read(filter: At<'a>) -> Option<Self> {
        let name = filter.text("name").unwrap_or("filter");
        let config = filter.get("typed_config").or_else(|| filter.get("config"));
        let kind = config.and_then(|config| config.text("@type")).unwrap_or(name);
        if !is_protective(kind) && !is_protective(name) {
            return None;
        }
        let is_on = !filter.flag("disabled") && config.is_none_or(|config| rejects(kind, config));
        Some(Self { name, shown: format!("`{name}` ({})", filter.place()), is_on })
    }

    /// Returns a setting of a listener that rejects all requests.
    pub(super) fn of_listener(name: &'a str, at: At<'a>) -> Self {
        Self { name, shown: format!("`{name}` ({})", at.place()), is_on: true }
    }

    /// Returns the guard for comments, unless a route or its virtual host turns it off.
    pub(super) fn closes(&self, route: At<'a>, host: At<'a>) -> Option<String> {
        let own = [route, host].into_iter().find_map(|at| at.at(&["typed_per_filter_config", self.name]));
        let is_on = match own {
            None => self.is_on,
            Some(config) if config.flag("disabled") => false,
            // `rbac` of a route replaces the rules of the filter. Without rules, it admits all requests.
            Some(config) if self.name.contains("rbac") => config.at(&["rbac", "rules"]).is_some(),
            Some(_) => true,
        };
        is_on.then(|| self.shown.clone())
    }
}

/// Returns `true` if the configuration of a filter rejects requests to some routes.
fn rejects(kind: &str, config: At<'_>) -> bool {
    if kind.contains("rbac") || kind.contains("RBAC") {
        return ["rules", "matcher"].iter().any(|key| config.get(key).is_some());
    }
    if kind.contains("jwt_authn") || kind.contains("JwtAuthentication") {
        let requires = |node: &Node| ["requires", "requirement_name"].iter().any(|key| node.get(key).is_some());
        let rules = config.node.get("rules").map_or(&[][..], Node::items);
        return rules.iter().any(requires) || config.get("filter_state_rules").is_some();
    }
    true
}
