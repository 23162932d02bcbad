//! The routes of Ingresses.

use std::collections::HashMap;

use tidegate_rules::route::HostPattern;

use super::Conversion;
use super::limits::Limits;
use super::manifest::{Ingress, PathKind, PathRule, Rule};
use super::order::{self, Item};
use crate::draft::value::{Map, Value};
use crate::draft::{Match, Route};
use crate::error::ConvertError;
use crate::nginx::client::network;
use crate::nginx::values::units;
use crate::report::Verdict;

/// The most Ingresses, rules and paths together.
const MAX_SIZE: usize = 10_000;

impl Conversion<'_> {
    /// Writes the listeners and the routes of all Ingresses.
    pub(super) fn ingresses(&mut self, ingresses: &[Ingress<'_>]) -> Result<(), ConvertError> {
        let with_default: Vec<Ingress<'_>> =
            ingresses.iter().filter(|ingress| self.is_own(ingress)).map(with_default).collect();
        let (canaries, mains): (Vec<_>, Vec<_>) = with_default.iter().partition(|ingress| ingress.is_on("canary"));
        let size = |ingress: &&Ingress<'_>| {
            let paths: usize = ingress.rules.iter().map(|rule| rule.paths.len()).sum();
            1 + ingress.rules.len() + paths
        };
        if with_default.iter().map(|ingress| size(&ingress)).sum::<usize>() > MAX_SIZE {
            return Err(ConvertError::Bound(format!("there are more than {MAX_SIZE} Ingresses, rules and paths")));
        }
        self.listeners(&mains);
        let mut limits: HashMap<(&str, &str), Limits> = HashMap::new();
        for ingress in &mains {
            limits.insert((&ingress.namespace, &ingress.name), self.limits(ingress));
        }
        let (groups, unmatched) = order::hosts(&mains);
        for (ingress, rule) in unmatched {
            let place = ingress.resource.place(rule.line);
            self.notes.add(&place, format!("path: {}", rule.path), Verdict::Lost, "no pattern of paths describes it");
        }
        for (index, group) in groups.iter().enumerate() {
            let Some(first) = group.first() else { continue };
            let has_https = self.host_redirect(group);
            for item in group {
                let limits = limits.get(&(item.ingress.namespace.as_str(), item.ingress.name.as_str()));
                self.item(item, &canaries, limits.unwrap_or(&Limits::default()), has_https);
            }
            // Other paths of the host have no backend, also if a later route matches all hosts.
            if index + 1 < groups.len() && !first.host.is_empty() {
                self.push_response(first, "rest", 404);
            }
        }
        self.unused_canaries(&canaries);
        with_default.iter().for_each(|ingress| self.note_others(ingress));
        Ok(())
    }

    /// Returns `true` if the controller serves an Ingress.
    fn is_own(&mut self, ingress: &Ingress<'_>) -> bool {
        match ingress.class() {
            Some(class) if !class.contains("nginx") => {
                let place = ingress.resource.place(ingress.resource.node.line);
                self.notes.add(
                    &place,
                    format!("ingressClassName: {class}"),
                    Verdict::Same,
                    "another controller serves it",
                );
                false
            }
            _ => true,
        }
    }

    /// Adds the routes of a path.
    fn item(&mut self, item: &Item<'_, '_>, canaries: &[&Ingress<'_>], limits: &Limits, has_https: bool) {
        let Some(base) = self.matches(item) else { return };
        if !has_https && self.redirects(item) {
            self.push_https(item, base.clone());
        }
        if self.redirect(item, &base) {
            return;
        }
        self.app_root(item, &base);
        self.access(item, &base, limits);
        self.canary_routes(item, &base, canaries, limits);
        let upstream = self.upstream(item.ingress, &item.rule);
        let upstream = self.with_canary(item, upstream, canaries);
        self.push_forward(item, base, upstream, limits);
    }

    /// Adds a route to an upstream. Without one, the route responds with 502.
    pub(super) fn push_forward(
        &mut self,
        item: &Item<'_, '_>,
        matches: Match,
        upstream: Option<String>,
        limits: &Limits,
    ) {
        let mut more = Map::default();
        if upstream.is_some() {
            more = self.forward_keys(item);
        } else {
            more.set("respond", Map::of([("status", Value::Number(502))]));
        }
        let mut route = Route { matches, upstream, more, ..Route::default() };
        limits.set(&mut route, self.defaults.limit_status);
        if let Some(setting) = self.lost_guard(item.ingress) {
            route.close(setting);
        }
        let is_added = self.push(item, &item.ingress.name, route);
        let (place, setting) = (item.ingress.resource.place(item.rule.line), format!("path: {}", item.rule.path));
        match (is_added, item.paths.is_exact) {
            (false, _) => self.notes.add(
                &place,
                setting,
                Verdict::Lost,
                "no request reaches it: earlier routes match all of its paths",
            ),
            (true, false) => {
                let reason = format!("its patterns are only similar: {}", item.paths.patterns.join(" "));
                self.notes.add(&place, setting, Verdict::Lost, reason);
            }
            (true, true) => self.notes.add(&place, setting, Verdict::Same, kind(item.rule.kind)),
        }
    }

    /// Adds a route. Returns `false` if no request can reach it.
    pub(super) fn push(&mut self, item: &Item<'_, '_>, wish: &str, route: Route) -> bool {
        if !self.reach.add(&route.matches) {
            return false;
        }
        let path = item.rule.path.trim_matches('/');
        let wish = if path.is_empty() { wish.to_owned() } else { format!("{wish}-{path}") };
        let name = self.draft.route_name(&wish);
        self.draft.routes.push(Route { name, place: Some(item.ingress.resource.place(item.rule.line)), ..route });
        true
    }

    /// Adds a route that responds to all paths of a host.
    fn push_response(&mut self, item: &Item<'_, '_>, wish: &str, status: u64) {
        let matches = Match { hosts: vec![item.host.clone()], paths: vec!["/**".to_owned()], ..Match::default() };
        let more = Map::of([("respond", Map::of([("status", Value::Number(status))]).into())]);
        if self.reach.add(&matches) {
            let name = self.draft.route_name(&format!("{}-{wish}", item.host.trim_start_matches("*.")));
            let place = Some(item.ingress.resource.place(item.line));
            self.draft.routes.push(Route { name, matches, more, place, ..Route::default() });
        }
    }

    /// Returns the conditions of a path.
    fn matches(&mut self, item: &Item<'_, '_>) -> Option<Match> {
        let mut hosts = Vec::new();
        let aliases = item.ingress.text("server-alias").unwrap_or_default();
        let aliases = aliases.split(',').map(str::trim).filter(|alias| !alias.is_empty() && !item.host.is_empty());
        for host in [item.host.as_str()].into_iter().chain(aliases).filter(|host| !host.is_empty()) {
            if HostPattern::parse(host).is_ok() {
                hosts.push(host.to_owned());
                self.same(item.ingress, "server-alias", "`host`");
            } else {
                self.lost(item.ingress, "server-alias", "not a host, or a regular expression");
                if host == item.host {
                    let place = item.ingress.resource.place(item.line);
                    self.notes.add(&place, format!("host: {host}"), Verdict::Lost, "not a host");
                    return None;
                }
            }
        }
        self.same(item.ingress, "use-regex", "patterns of paths, for all paths of the host");
        let paths = item.paths.patterns.clone();
        Some(Match { hosts, paths, ignores_case: item.ignores_case, ..Match::default() })
    }

    /// Adds the route that rejects clients by their address. Its limits apply as well.
    fn access(&mut self, item: &Item<'_, '_>, base: &Match, limits: &Limits) {
        for (name, is_allowed) in
            [("whitelist-source-range", true), ("allowlist-source-range", true), ("denylist-source-range", false)]
        {
            let Some(text) = item.ingress.text(name) else { continue };
            let networks = text.split(',').map(|text| network(text.trim())).collect::<Option<Vec<_>>>();
            let Some(clients) = networks.filter(|networks| !networks.is_empty()) else {
                self.lost(item.ingress, name, "not a list of networks");
                continue;
            };
            let mut matches = base.clone();
            match is_allowed {
                true => matches.not.push(Match { clients, ..Match::default() }),
                false => matches.clients = clients,
            }
            let more = Map::of([("respond", Map::of([("status", Value::Number(403))]).into())]);
            let mut route = Route { matches, more, ..Route::default() };
            limits.set(&mut route, self.defaults.limit_status);
            self.push(item, &format!("{}-denied", item.ingress.name), route);
            self.same(item.ingress, name, "a route that responds with 403");
        }
    }

    /// Returns the keys of a route that forwards requests.
    fn forward_keys(&mut self, item: &Item<'_, '_>) -> Map {
        let ingress = item.ingress;
        let mut more = Map::default();
        let mut rewrite = self.rewrite(item);
        if let Some(host) = ingress.text("upstream-vhost") {
            let is_host = matches!(HostPattern::parse(host), Ok(HostPattern::Exact(_))) && host != "upstream";
            rewrite.set_some("host", is_host.then_some(host));
            let verdict = if is_host { Verdict::Same } else { Verdict::Lost };
            self.note(ingress, "upstream-vhost", verdict, "`rewrite.host`");
        }
        more.set_some("rewrite", (!rewrite.is_empty()).then_some(rewrite));
        if let Some(prefix) = ingress.text("x-forwarded-prefix") {
            let is_plain = prefix.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && byte != b'{');
            let set = Map::of([("X-Forwarded-Prefix", prefix.into())]);
            more.set_some("request_headers", is_plain.then(|| Map::of([("set", set.into())])));
            let verdict = if is_plain { Verdict::Same } else { Verdict::Lost };
            self.note(ingress, "x-forwarded-prefix", verdict, "`request_headers`");
        }
        let size = ingress.text("proxy-body-size").map(units::size);
        match size {
            Some(None) => self.lost(ingress, "proxy-body-size", "not a size"),
            _ => self.same(ingress, "proxy-body-size", "`max_body`"),
        }
        let size = size.flatten().unwrap_or(self.defaults.max_body);
        more.set("max_body", if size == 0 { "none".to_owned() } else { units::shown_size(size) });
        if ingress.is_on("enable-cors") {
            self.cors(ingress, &mut more);
        }
        more
    }
}

/// Returns the Ingress with a rule for its default backend.
fn with_default<'t>(ingress: &Ingress<'t>) -> Ingress<'t> {
    let mut ingress = ingress.clone();
    if let Some(backend) = ingress.default_backend() {
        let line = backend.line;
        let path = PathRule { path: "/".to_owned(), kind: PathKind::Specific, line, backend: Some(backend) };
        ingress.rules.push(Rule { host: String::new(), line, paths: vec![path] });
    }
    ingress
}

fn kind(kind: PathKind) -> &'static str {
    match kind {
        PathKind::Exact => "",
        PathKind::Prefix => "whole segments",
        PathKind::Specific => "any path with this start, as a `location` of nginx",
    }
}
