//! The action of a route: forwards, redirects or responds.

use super::{At, Conversion, one};
use crate::draft::value::{Map, Value};
use crate::draft::{Route, millis};
use crate::ratelimit::values::duration;

impl<'a> Conversion<'a, '_> {
    /// Sets the action of a route. Returns `false` if the rule file cannot have it.
    pub(super) fn action(&mut self, node: At<'a>, route: &mut Route) -> bool {
        if let Some(redirect) = node.get("redirect") {
            return self.redirect(redirect, route);
        }
        if let Some(response) = node.get("direct_response") {
            return self.respond(response, route);
        }
        match node.get("route") {
            Some(action) => self.forward(action, node, route),
            None => {
                self.report.lost(&node.place(), "route", "it neither forwards, redirects nor responds");
                false
            }
        }
    }

    fn forward(&mut self, action: At<'a>, node: At<'a>, route: &mut Route) -> bool {
        route.upstream = self.upstream(action);
        if route.upstream.is_none() {
            self.report.lost(&action.place(), "route", "its cluster is not known: the route is left out");
            return false;
        }
        let mut rewrite = Map::default();
        for (key, value, place) in action.entries() {
            let text = value.node.text().unwrap_or_default();
            match (key, duration(value.node)) {
                ("cluster" | "weighted_clusters" | "rate_limits" | "include_vh_rate_limits", _) => {}
                ("timeout", Some(time)) => {
                    route.more.set("timeout", if time.is_zero() { "none".to_owned() } else { millis(time) });
                    self.report.same(&place, format!("timeout: {text}"), "`timeout` of the route");
                }
                ("prefix_rewrite", _) => self.prefix_rewrite(value, node, &mut rewrite),
                ("host_rewrite_literal" | "host_rewrite", _) => {
                    rewrite.set("host", text);
                    self.report.same(&place, key, "`rewrite.host`");
                }
                ("auto_host_rewrite", _) => {
                    if value.node.flag() == Some(true) {
                        rewrite.set("host", "upstream");
                    }
                    self.report.same(&place, key, "`rewrite.host`");
                }
                ("upgrade_configs", _) => self.report.same(&place, key, "`upgrades` of the route has `websocket`"),
                ("idle_timeout", Some(time)) if time.is_zero() => self.report.same(&place, key, ""),
                ("retry_policy", _) => self.report.lost(&place, key, "write `retry` of the upstream"),
                _ => self.report.lost(&place, key, "no key of the rule file"),
            }
        }
        if !rewrite.is_empty() {
            route.more.set("rewrite", rewrite);
        }
        true
    }

    fn prefix_rewrite(&mut self, value: At<'a>, node: At<'a>, rewrite: &mut Map) {
        let to = value.node.text().unwrap_or_default().trim_end_matches('/');
        let from = node.get("match").and_then(|matches| {
            ["prefix", "path", "path_separated_prefix"].into_iter().find_map(|key| matches.text(key))
        });
        let from = from.unwrap_or_default().trim_end_matches('/');
        let is_path =
            |text: &str| text.is_empty() || text.starts_with('/') && !text.contains(['{', '*', '%', '?', '#']);
        if !is_path(from) || !is_path(to) {
            self.report.lost(&value.place(), "prefix_rewrite", "not a path that `rewrite` can have");
            return;
        }
        rewrite.set_some("strip_prefix", (!from.is_empty()).then_some(from));
        rewrite.set_some("add_prefix", (!to.is_empty()).then_some(to));
        self.report.same(&value.place(), format!("prefix_rewrite: {to}/"), "`rewrite`, of whole segments");
    }

    fn redirect(&mut self, redirect: At<'a>, route: &mut Route) -> bool {
        let status = match redirect.text("response_code") {
            None | Some("MOVED_PERMANENTLY") => 301_u64,
            Some("FOUND") => 302,
            Some("SEE_OTHER") => 303,
            Some("TEMPORARY_REDIRECT") => 307,
            Some(_) => 308,
        };
        let scheme = match redirect.flag("https_redirect") {
            true => Some("https"),
            false => redirect.text("scheme_redirect"),
        };
        let host = redirect.text("host_redirect").or((!route.matches.hosts.is_empty()).then_some("{host}"));
        let path = redirect.text("path_redirect").unwrap_or("{uri}");
        let is_known = redirect.get("prefix_rewrite").is_none()
            && redirect.get("regex_rewrite").is_none()
            && redirect.get("port_redirect").is_none();
        let to = match (host, scheme) {
            _ if !is_known => None,
            (Some(host), scheme) => {
                let same = if self.is_tls { "https" } else { "http" };
                Some(format!("{}://{host}{path}", scheme.unwrap_or(same)))
            }
            (None, None) if path != "{uri}" => Some(path.to_owned()),
            (None, _) => None,
        };
        let Some(to) = to else {
            self.report.lost(&redirect.place(), "redirect", "write `redirect` with a literal host, or `match.host`");
            return false;
        };
        route.more.set("redirect", Map::of([("to", to.into()), ("status", status.into())]));
        self.report.same(&redirect.place(), "redirect", "");
        true
    }

    fn respond(&mut self, response: At<'a>, route: &mut Route) -> bool {
        let status = response.get("status").and_then(|status| status.node.number()).unwrap_or(200);
        if !(200..600).contains(&status) {
            self.report.lost(&response.place(), "direct_response", "a status is from 200 to 599");
            return false;
        }
        let mut respond = one("status", Value::Number(status));
        match (response.get("body"), response.at(&["body", "inline_string"])) {
            (Some(_), Some(text)) => respond.set_some("body", text.node.text()),
            (Some(body), None) => self.report.lost(&body.place(), "body", "only `inline_string` is converted"),
            (None, _) => {}
        }
        route.more.set("respond", respond);
        self.report.same(&response.place(), "direct_response", "`respond` of the route");
        true
    }
}
