//! A route, with its limits.

use super::filters::{Filters, Global};
use super::hosts::Host;
use super::{At, Conversion, fields, matching};
use crate::draft::value::Map;
use crate::draft::{Match, Route};
use crate::ratelimit::actions::parts;
use crate::ratelimit::plan::{Charge, find};
use crate::tree::Node;

impl<'a> Conversion<'a, '_> {
    /// Converts a route of a virtual host.
    pub(super) fn route(&mut self, node: At<'a>, host: &Host<'a>, filters: &Filters<'a>, listener: Option<&str>) {
        let place = node.place();
        let Some(matches) = node.get("match").and_then(|matches| matching::matches(matches, self.report)) else {
            return;
        };
        let Some(hosts) = within(&host.hosts, matches.hosts.clone()) else {
            self.report.same(&place, "route", "left out: no request to the virtual host has these hosts");
            return;
        };
        let mut matches = Match { hosts, ..matches };
        matches.more.set_some("listener", listener);
        let wish = node.text("name").map_or_else(|| format!("{}{}", host.name, matches.paths.concat()), str::to_owned);
        let name = self.draft.route_name(&wish);
        let mut route = Route { name, matches, place: Some(place.clone()), ..Route::default() };
        if !self.action(node, &mut route) {
            return;
        }
        for message in ["request", "response"] {
            let changes = fields::changes(message, &[host.node, node], self.report);
            if !changes.is_empty() && (message == "response" || route.upstream.is_some()) {
                route.more.set(&format!("{message}_headers"), changes);
            }
        }
        if filters.status() != 429 {
            let reject =
                [("status", filters.status().into()), ("content_type", "text/plain".into()), ("body", "".into())];
            route.reject = Map::of(reject);
        }
        if let Some(setting) = filters.guards.iter().find_map(|guard| guard.closes(node, host.node)) {
            route.close(setting);
        }
        self.report.same(&place, format!("route {}", route.name), "");
        let number = self.draft.routes.len();
        self.draft.routes.push(route);
        self.global_limits(node, host, filters, number);
        self.local_limits(node, host, filters, number);
        self.other_settings(node);
    }

    /// Adds the limits that the actions of a route find in the domains of the filters.
    fn global_limits(&mut self, node: At<'a>, host: &Host<'a>, filters: &Filters<'a>, number: usize) {
        for entry in effective(node, host) {
            if !self.compare(self.rules, &entry.place()) {
                return;
            }
            let stage = entry.get("stage").and_then(|stage| stage.node.number()).unwrap_or(0);
            let names = action_names(entry);
            if let Some(disable) = entry.get("disable_key") {
                self.report.lost(&disable.place(), "disable_key", "a runtime key cannot turn off the limit");
            }
            let used = filters.global.iter().filter(|filter| filter.stage == stage);
            let used: Vec<&Global<'a>> = used.collect();
            if used.is_empty() {
                if filters.local.is_empty() {
                    self.report.same(&entry.place(), names, "no filter has this stage");
                }
                continue;
            }
            for filter in used {
                self.found_limits(entry, &names, filter, node, number);
            }
        }
    }

    fn found_limits(&mut self, entry: At<'a>, names: &str, filter: &Global<'a>, node: At<'a>, number: usize) {
        let cluster = node.get("route").and_then(|action| action.text("cluster")).unwrap_or_default();
        let actions = entry.node.get("actions").map_or(&[][..], Node::items);
        let permits = match entry.get("hits_addend") {
            None => Some(1),
            Some(addend) => addend.get("number").and_then(|number| number.node.number()).filter(|number| *number > 0),
        };
        let charge = Charge {
            scope: filter.domain,
            on_store_failure: Some(filter.on_store_failure),
            permits: permits.unwrap_or(1),
            replicas: 1,
            shadow: false,
        };
        let place = entry.place();
        let known = self.domains.iter().filter(|domain| domain.name == filter.domain);
        let parts = match parts(actions, cluster) {
            _ if permits.is_none() => Err("`hits_addend` is not a number from 1".to_owned()),
            _ if known.clone().next().is_none() => Err(format!("no file has the domain {}", filter.domain)),
            parts => parts,
        };
        match parts {
            Err(reason) => self.report.lost(&place, names, reason),
            Ok(parts) => {
                let found: Result<Vec<_>, _> = known.map(|domain| find(&domain.rules, &parts)).collect();
                match found.and_then(|found| self.plan.add(&found.concat(), &charge, number)) {
                    Ok(limits) if limits.is_empty() => {
                        self.report.same(&place, names, "the domain has no limit for this descriptor");
                    }
                    Ok(limits) => self.report.same(&place, names, format!("limits {}", limits.join(", "))),
                    Err(reason) => self.report.lost(&place, names, reason),
                }
            }
        }
    }

    /// Reports the settings of filters that limit no requests.
    pub(super) fn other_filters(&mut self, config: At<'a>) {
        for (name, _, place) in config.entries().filter(|(name, ..)| !name.contains("ratelimit")) {
            self.report.lost(&place, name, "no equivalent that is converted");
        }
    }

    /// Reports all other settings of a route.
    fn other_settings(&mut self, node: At<'a>) {
        for (key, value, place) in node.entries() {
            match key {
                "match" | "route" | "redirect" | "direct_response" | "name" | "metadata" | "decorator"
                | "stat_prefix" => {}
                "typed_per_filter_config" => self.other_filters(value),
                key if fields::is_field_key(key) => {}
                key => self.report.lost(&place, key, "no key of the rule file"),
            }
        }
    }
}

/// Returns the entries of `rate_limits` that apply to a route: its own ones, and the ones of its virtual host
/// if the route has none or includes them.
pub(super) fn effective<'a>(node: At<'a>, host: &Host<'a>) -> Vec<At<'a>> {
    let own: Vec<_> = node.items_at(&["route", "rate_limits"]).collect();
    let includes = node.get("route").is_some_and(|action| action.flag("include_vh_rate_limits"));
    let filter = node.at(&["typed_per_filter_config", "envoy.filters.http.ratelimit"]);
    let takes_host = match filter.and_then(|filter| filter.text("vh_rate_limits")) {
        Some("INCLUDE") => true,
        Some("IGNORE") => false,
        _ => includes || own.is_empty(),
    };
    let host = host.node.items("rate_limits").filter(|_| takes_host);
    own.into_iter().chain(host).collect()
}

/// Returns the hosts of a condition that the virtual host has, or the hosts of the virtual host without a condition.
/// `None` if it has none of them.
fn within(own: &[String], condition: Vec<String>) -> Option<Vec<String>> {
    if condition.is_empty() {
        return Some(own.to_vec());
    }
    let includes = |own: &String, host: &str| match own.strip_prefix('*') {
        Some(end) => host.ends_with(end),
        None => own == host,
    };
    let is_within = |host: &String| own.is_empty() || own.iter().any(|own| includes(own, host));
    let hosts: Vec<_> = condition.into_iter().filter(is_within).collect();
    (!hosts.is_empty()).then_some(hosts)
}

/// Returns the actions of an entry, for the report.
fn action_names(entry: At<'_>) -> String {
    let action = |action: At<'_>| action.entries().next().map_or_else(String::new, |(name, ..)| name.to_owned());
    let names: Vec<_> = entry.items("actions").map(action).collect();
    format!("rate_limits: {}", names.join(", "))
}
