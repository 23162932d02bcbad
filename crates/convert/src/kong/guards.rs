//! Plugins that protect routes: addresses become routes that reject requests, and routes with other ones are closed.

use std::collections::BTreeSet;

use super::model::{Model, Plugin, Scope};
use super::plugins::{Sender, applying};
use crate::draft::value::{Map, Value};
use crate::draft::{Match, Route};
use crate::guards::is_protective;
use crate::nginx::client::network;
use crate::tree::Node;

pub(super) const ADDRESSES: &str = "ip-restriction";

/// The plugin that the conversion has.
const KEYS: &str = "key-auth";

/// Plugins that reject the requests of a consumer.
const OF_CONSUMERS: [&str; 3] = [ADDRESSES, "request-termination", "acl"];

/// The names of the plugins that protect routes.
pub(super) struct Guards<'n> {
    names: BTreeSet<&'n str>,
}

impl<'n> Guards<'n> {
    pub(super) fn of(model: &Model<'n>) -> Self {
        let names = model.plugins.iter().map(|plugin| plugin.name);
        Self { names: names.filter(|name| *name != KEYS && (is_protective(name) || *name == ADDRESSES)).collect() }
    }

    /// Closes a route that loses a plugin. Returns the routes above it that reject clients by their address.
    pub(super) fn apply(&self, model: &Model<'n>, position: usize, has_keys: bool, route: &mut Route) -> Vec<Route> {
        let mut above = Vec::new();
        for name in &self.names {
            let Some(plugin) = applying(model, name, position, &Sender::default()) else { continue };
            let plugin = &model.plugins[plugin];
            match denied(plugin) {
                Some(groups) => above.extend(groups.into_iter().map(|group| rejecting(route, plugin, group))),
                None if admits_anonymous(model, plugin) => {}
                None => route.close(shown(plugin)),
            }
        }
        // The rule file has no plugins of a consumer.
        let own = model.plugins.iter().find(|plugin| {
            let Scope { service, route: of_route, consumer, group } = plugin.scope;
            let is_here = of_route.is_none_or(|of_route| of_route == position)
                && service.is_none_or(|service| model.routes[position].service == Some(service));
            is_here && (consumer.is_some() || group.is_some()) && OF_CONSUMERS.contains(&plugin.name)
        });
        if let Some(plugin) = own.filter(|_| has_keys) {
            route.close(shown(plugin));
        }
        above
    }
}

/// Returns the clients that a plugin rejects by their address. `None` for other plugins, and other forms of addresses.
pub(super) fn denied(plugin: &Plugin<'_>) -> Option<Vec<Match>> {
    let is_of_all = plugin.scope.consumer.is_none() && plugin.scope.group.is_none();
    let config = plugin.config.filter(|_| plugin.name == ADDRESSES && is_of_all)?;
    let list = |keys: [&str; 2]| {
        let nodes = keys.iter().find_map(|key| config.get(key)).map_or(&[][..], Node::one_or_more);
        nodes.iter().filter(|node| !node.is_null()).map(|node| network(node.text()?)).collect::<Option<Vec<_>>>()
    };
    let (allowed, denied) = (list(["allow", "whitelist"])?, list(["deny", "blacklist"])?);
    let not = Match { clients: allowed, ..Match::default() };
    let groups = [Match { clients: denied, ..Match::default() }, Match { not: vec![not.clone()], ..Match::default() }];
    let is_used = [!groups[0].clients.is_empty(), !not.clients.is_empty()];
    Some(groups.into_iter().zip(is_used).filter(|(_, is_used)| *is_used).map(|(group, _)| group).collect())
}

/// Returns a route that rejects the clients of a group. Kong rejects them before it counts their requests.
fn rejecting(route: &Route, plugin: &Plugin<'_>, group: Match) -> Route {
    let mut matches = route.matches.clone();
    matches.clients = group.clients;
    matches.not.extend(group.not);
    let status = plugin.config.and_then(|config| config.get("status")?.number());
    let status = status.filter(|status| (400..600).contains(status)).unwrap_or(403);
    let more = Map::of([("respond", Map::of([("status", Value::Number(status))]).into())]);
    let (name, place) = (format!("{}.denied", route.name), Some(plugin.entity.place()));
    Route { name, matches, more, place, ..Route::default() }
}

/// Returns `true` if Kong admits requests without credentials as a consumer that it does not restrict.
fn admits_anonymous(model: &Model<'_>, plugin: &Plugin<'_>) -> bool {
    let anonymous = plugin.config.and_then(|config| config.get("anonymous")?.text());
    let restricts = |plugin: &Plugin<'_>| plugin.scope.consumer.is_some() && OF_CONSUMERS.contains(&plugin.name);
    anonymous.is_some_and(|consumer| !consumer.is_empty()) && !model.plugins.iter().any(restricts)
}

fn shown(plugin: &Plugin<'_>) -> String {
    format!("`{}` ({})", plugin.name, plugin.entity.place())
}
