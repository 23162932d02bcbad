//! Redirects, `rewrite-target` and CORS.

use super::Conversion;
use super::manifest::{Ingress, PathKind};
use super::order::Item;
use crate::draft::value::{Map, Value};
use crate::draft::{Match, Route};
use crate::nginx::redirect::is_valid;
use crate::nginx::upstreams::forward::is_prefix;

impl Conversion<'_> {
    /// Adds one route that redirects plaintext requests of a host, if all of its paths do. Returns whether it did.
    pub(super) fn host_redirect(&mut self, group: &[Item<'_, '_>]) -> bool {
        let Some(first) = group.first().filter(|first| !first.host.is_empty()) else { return false };
        let all = group.iter().all(|item| self.redirects(item) && item.ingress.annotation("server-alias").is_none());
        if all && tidegate_rules::route::HostPattern::parse(&first.host).is_ok() {
            let matches = Match { hosts: vec![first.host.clone()], paths: vec!["/**".to_owned()], ..Match::default() };
            self.push_https(first, matches);
        }
        all
    }

    /// Returns `true` if plaintext requests to a path are redirected.
    pub(super) fn redirects(&mut self, item: &Item<'_, '_>) -> bool {
        let ingress = item.ingress;
        let flag = |name: &str| ingress.annotation(name).and_then(|entry| entry.value.flag());
        self.same(ingress, "ssl-redirect", "a route with `scheme: http`");
        self.same(ingress, "force-ssl-redirect", "a route with `scheme: http`");
        let is_forced = flag("force-ssl-redirect").unwrap_or(self.defaults.forces_redirects);
        is_forced || flag("ssl-redirect").unwrap_or(self.defaults.redirects) && has_tls(ingress, &item.host)
    }

    /// Adds a route that redirects plaintext requests. The controller does so before it counts them.
    pub(super) fn push_https(&mut self, item: &Item<'_, '_>, mut matches: Match) {
        matches.more.set("scheme", "http");
        let redirect = Map::of([("to", "https://{host}{uri}".into()), ("status", Value::Number(308))]);
        let more = Map::of([("redirect", redirect.into())]);
        self.push(item, &format!("{}-https", item.ingress.name), Route { matches, more, ..Route::default() });
    }

    /// Adds the redirect of a whole path. Returns `false` if it has none.
    pub(super) fn redirect(&mut self, item: &Item<'_, '_>, base: &Match) -> bool {
        for (name, code, default) in [
            ("permanent-redirect", "permanent-redirect-code", 301),
            ("temporal-redirect", "temporal-redirect-code", 302),
        ] {
            let Some(text) = item.ingress.text(name) else { continue };
            let to = text.replace("$request_uri", "{uri}");
            let status =
                item.ingress.number(code).filter(|code| matches!(code, 301..=303 | 307 | 308)).unwrap_or(default);
            self.same(item.ingress, code, "`redirect`");
            if to.contains('$') || !is_valid(&to) {
                self.lost(
                    item.ingress,
                    name,
                    "the target of the redirect has no equivalent: the route responds with 404",
                );
                let more = Map::of([("respond", Map::of([("status", Value::Number(404))]).into())]);
                self.push(item, &item.ingress.name, Route { matches: base.clone(), more, ..Route::default() });
                return true;
            }
            self.same(item.ingress, name, "`redirect`");
            let redirect = Map::of([("to", to.into()), ("status", status.into())]);
            let more = Map::of([("redirect", redirect.into())]);
            self.push(item, &item.ingress.name, Route { matches: base.clone(), more, ..Route::default() });
            return true;
        }
        false
    }

    /// Adds the redirect of `/` to the root of an application.
    pub(super) fn app_root(&mut self, item: &Item<'_, '_>, base: &Match) {
        let Some(to) = item.ingress.text("app-root").filter(|_| item.rule.path == "/") else { return };
        if !to.starts_with('/') || to.contains('$') || !is_valid(to) {
            self.lost(item.ingress, "app-root", "not a path");
            return;
        }
        let matches = Match { paths: vec!["/".to_owned()], ..base.clone() };
        let redirect = Map::of([("to", to.into()), ("status", Value::Number(302))]);
        let more = Map::of([("redirect", redirect.into())]);
        self.push(item, &format!("{}-root", item.ingress.name), Route { matches, more, ..Route::default() });
        self.same(item.ingress, "app-root", "`redirect`");
    }

    /// Returns the change of the path by `rewrite-target`.
    pub(super) fn rewrite(&mut self, item: &Item<'_, '_>) -> Map {
        let mut rewrite = Map::default();
        let Some(target) = item.ingress.text("rewrite-target") else { return rewrite };
        let found = match item.rule.kind {
            PathKind::Exact if !target.contains('$') => Some((item.rule.path.as_str(), target)),
            _ => replaced(&item.rule.path, target),
        };
        let found = found.map(|(from, to)| (from.trim_end_matches('/'), to.trim_end_matches('/')));
        match found.filter(|(from, to)| is_prefix(from) && is_prefix(to)) {
            Some((from, to)) => {
                rewrite.set_some("strip_prefix", (!from.is_empty() && from != to).then_some(from));
                rewrite.set_some("add_prefix", (!to.is_empty() && from != to).then_some(to));
                self.same(item.ingress, "rewrite-target", "`rewrite`");
            }
            None => {
                let reason =
                    "only `/a(/|$)(.*)` with `/b/$2` and similar forms are supported: the path does not change";
                self.lost(item.ingress, "rewrite-target", reason);
            }
        }
        rewrite
    }
}

/// Returns the prefixes of a path and of its `rewrite-target`.
fn replaced<'p>(path: &'p str, target: &'p str) -> Option<(&'p str, &'p str)> {
    for (end, capture) in [("(/|$)(.*)", "$2"), ("/(.*)", "$1"), ("(/.*)", "$1"), ("/?(.*)", "$1"), ("(.*)", "$1")] {
        if let Some(from) = path.strip_suffix(end) {
            return target.strip_suffix(capture).map(|to| (from, to));
        }
    }
    (path == "/" && target == "/").then_some(("", ""))
}

/// Returns `true` if an Ingress has a certificate for a host.
pub(super) fn has_tls(ingress: &Ingress<'_>, host: &str) -> bool {
    let entries = ingress.resource.node.at(&["spec", "tls"]).map(crate::tree::Node::items).unwrap_or_default();
    entries.iter().any(|entry| {
        let hosts = entry.get("hosts").map(crate::tree::Node::items).unwrap_or_default();
        hosts.is_empty() || hosts.iter().any(|item| item.text() == Some(host))
    })
}
