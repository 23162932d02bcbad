//! Virtual hosts in the order of the rule file.
//!
//! Envoy prefers exact hosts, then the longest wildcard, then `*`, and never uses the routes of another virtual host. In a
//! rule file, the first route applies. So virtual hosts are sorted, and each one ends with a route for the rest of its
//! requests, if a later one could match them.

use std::cmp::Reverse;

use super::filters::Filters;
use super::{At, Conversion};
use crate::draft::value::Value;
use crate::draft::{Match, Route};

/// A virtual host, with the domains of one precedence.
pub(super) struct Host<'a> {
    pub(super) node: At<'a>,
    pub(super) name: &'a str,
    /// The hosts. Empty for all.
    pub(super) hosts: Vec<String>,
    /// Whether the settings of the virtual host were reported.
    is_copy: bool,
}

impl<'a> Conversion<'a, '_> {
    /// Converts the virtual hosts of a route configuration.
    pub(super) fn virtual_hosts(&mut self, config: At<'a>, filters: &Filters<'a>, listener: Option<&str>) {
        for (key, _, place) in config.entries() {
            match key {
                "@type" | "name" | "virtual_hosts" | "validate_clusters" | "most_specific_header_mutations_wins" => {}
                _ if super::fields::is_field_key(key) => {
                    self.report.lost(&place, key, "fields of a route configuration: write them into `defaults`");
                }
                _ => self.report.lost(&place, key, "no key of the rule file"),
            }
        }
        let mut hosts: Vec<_> = config.items("virtual_hosts").flat_map(|node| self.split(node)).collect();
        hosts.sort_by_key(|host| host.hosts.first().map_or((2, Reverse(0)), |first| rank(first)));
        let last = hosts.len().saturating_sub(1);
        for (number, host) in hosts.iter().enumerate() {
            let reported = self.report.findings.len();
            for route in host.node.items("routes") {
                self.route(route, host, filters, listener);
            }
            if !host.hosts.is_empty() && number < last {
                self.rest(host, listener);
            }
            match host.is_copy {
                true => self.report.findings.truncate(reported),
                false => self.host_settings(host),
            }
        }
    }

    /// Returns the virtual host once for each precedence of its domains.
    fn split(&mut self, node: At<'a>) -> Vec<Host<'a>> {
        let name = node.text("name").unwrap_or("host");
        let mut exact = Vec::new();
        let mut others = Vec::new();
        for domain in node.items("domains") {
            let text = domain.node.text().unwrap_or_default();
            let host = without_port(text);
            let valid = |host: &str| !host.is_empty() && !host.contains(['*', '/', '[']);
            match host.strip_prefix('*') {
                Some("") => others.push(Vec::new()),
                Some(rest) if rest.strip_prefix('.').is_some_and(valid) => others.push(vec![host.to_owned()]),
                None if valid(host) => exact.push(host.to_owned()),
                _ => self.report.lost(
                    &domain.place(),
                    format!("domain {text}"),
                    "a host has `*` only as its first label",
                ),
            }
        }
        exact.sort();
        exact.dedup();
        let groups = std::iter::once(exact).filter(|exact| !exact.is_empty()).chain(others);
        let host = |(number, hosts)| Host { node, name, hosts, is_copy: number > 0 };
        groups.enumerate().map(host).collect()
    }

    /// Adds a route for requests to the host that match none of its routes.
    fn rest(&mut self, host: &Host<'a>, listener: Option<&str>) {
        let mut matches = Match { hosts: host.hosts.clone(), paths: vec!["/**".to_owned()], ..Match::default() };
        matches.more.set_some("listener", listener);
        let name = self.draft.route_name(&format!("{}-rest", host.name));
        let mut route = Route { name, matches, place: Some(host.node.place()), ..Route::default() };
        route.more.set("respond", super::one("status", Value::Number(404)));
        self.draft.routes.push(route);
    }

    /// Reports the settings of a virtual host.
    fn host_settings(&mut self, host: &Host<'a>) {
        for (key, value, place) in host.node.entries() {
            match key {
                "name" | "domains" | "routes" | "rate_limits" => {}
                "typed_per_filter_config" => self.other_filters(value),
                "require_tls" => self.report.lost(&place, key, "write a `redirect` for `scheme: http`"),
                _ if super::fields::is_field_key(key) => {}
                _ => self.report.lost(&place, key, "no key of the rule file"),
            }
        }
    }
}

/// Returns the precedence of a host: exact hosts, then wildcards from the longest to the shortest.
fn rank(host: &str) -> (u8, Reverse<usize>) {
    if host.starts_with('*') { (1, Reverse(host.len())) } else { (0, Reverse(0)) }
}

/// Returns a host without its port.
fn without_port(domain: &str) -> &str {
    match domain.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit() || byte == b'*') => host,
        _ => domain,
    }
}
