//! Clusters, which become upstreams.

use std::collections::HashSet;

use super::tls::upstream_tls;
use super::{At, Conversion, one};
use crate::draft::value::Map;
use crate::draft::{Target, Upstream, millis};
use crate::ratelimit::values::duration;

/// The largest weight of a target.
const MAX_WEIGHT: u64 = 1_000;

/// Keys of a cluster that change no request.
const WITHOUT_EFFECT: [&str; 9] = [
    "@type",
    "alt_stat_name",
    "dns_lookup_family",
    "dns_refresh_rate",
    "load_assignment",
    "name",
    "respect_dns_ttl",
    "transport_socket",
    "type",
];

impl<'a> Conversion<'a, '_> {
    /// Returns the name of the upstream of a route, which the first route of a cluster adds. `None` if no cluster is known.
    pub(super) fn upstream(&mut self, action: At<'a>) -> Option<String> {
        if let Some(name) = action.text("cluster") {
            return self.of_cluster(name);
        }
        let weighted: Vec<_> = action.items_at(&["weighted_clusters", "clusters"]).collect();
        let mut targets = Vec::new();
        let mut first = None;
        for cluster in &weighted {
            let weight = cluster.get("weight").and_then(|weight| weight.node.number()).unwrap_or(0);
            let known = *self.clusters.get(cluster.text("name")?)?;
            let own = servers(known);
            let count = own.len().max(1) as u64;
            let scaled = |target: &Target| u64::from(target.weight) * weight * 100 / count;
            targets.extend(own.iter().map(|target| (target.url.clone(), scaled(target))));
            first.get_or_insert(known);
        }
        let first = first?;
        let place = action.get("weighted_clusters").map_or_else(|| action.place(), At::place);
        let largest = targets.iter().map(|(_, weight)| *weight).max().unwrap_or(1).max(1);
        let weighted = targets.into_iter().filter(|(_, weight)| *weight > 0).map(|(url, weight)| {
            let weight = (weight * MAX_WEIGHT).div_ceil(largest).clamp(1, MAX_WEIGHT);
            Target { url, weight: u32::try_from(weight).unwrap_or(1) }
        });
        let targets: Vec<_> = weighted.collect();
        if targets.is_empty() {
            return None;
        }
        self.report.same(&place, "weighted_clusters", "one upstream with the weights and the settings of the first");
        let name = self.draft.upstream_name(&format!("{}-weighted", first.text("name").unwrap_or("cluster")));
        let more = self.cluster_settings(first);
        let upstream = Upstream { name: name.clone(), targets, more, place: Some(place), ..Upstream::default() };
        self.draft.upstreams.push(upstream);
        Some(name)
    }

    fn of_cluster(&mut self, cluster: &str) -> Option<String> {
        if let Some(name) = self.upstreams.get(cluster) {
            return Some(name.clone());
        }
        let Some(&known) = self.clusters.get(cluster) else {
            // A route configuration by itself has no clusters.
            if !self.clusters.is_empty() {
                return None;
            }
            let name = self.draft.unknown_upstream();
            self.upstreams.insert(cluster.to_owned(), name.clone());
            return Some(name);
        };
        let targets = servers(known);
        let place = known.place();
        if targets.is_empty() {
            self.report.lost(&place, format!("cluster {cluster}"), "its servers are not in the file: write `targets`");
        } else {
            self.report.same(&place, format!("cluster {cluster}"), "");
        }
        let is_unknown = targets.is_empty();
        let example = || vec![Target { url: "http://127.0.0.1:9000".to_owned(), weight: 1 }];
        let targets = if is_unknown { example() } else { targets };
        let (name, more) = (self.draft.upstream_name(cluster), self.cluster_settings(known));
        let upstream = Upstream { name: name.clone(), targets, more, is_unknown, place: Some(place) };
        self.draft.upstreams.push(upstream);
        self.upstreams.insert(cluster.to_owned(), name.clone());
        Some(name)
    }

    fn cluster_settings(&mut self, cluster: At<'a>) -> Map {
        let mut more = Map::default();
        for (key, value, place) in cluster.entries() {
            let text = value.node.text().unwrap_or_default();
            match (key, text) {
                ("lb_policy", "LEAST_REQUEST" | "RANDOM") => self.report.same(&place, key, "`balance`"),
                ("lb_policy", "ROUND_ROBIN") => {
                    more.set("balance", "round_robin");
                    self.report.same(&place, key, "`balance`");
                }
                ("lb_policy", _) => self.report.lost(&place, key, "write `balance` of the upstream"),
                ("connect_timeout", _) => {
                    if let Some(time) = duration(value.node).filter(|time| !time.is_zero()) {
                        more.set("timeouts", one("connect", millis(time)));
                        self.report.same(&place, key, "`timeouts.connect`");
                    }
                }
                ("http2_protocol_options", _) => {
                    more.set("protocol", "http2");
                    self.report.same(&place, key, "`protocol`");
                }
                ("typed_extension_protocol_options", _) => self.protocol(value, &mut more),
                ("health_checks", _) => self.health(value, &mut more),
                ("type", "STATIC" | "STRICT_DNS" | "LOGICAL_DNS" | "") => {}
                (key, _) if WITHOUT_EFFECT.contains(&key) => {}
                (key, _) => self.report.lost(&place, key, "no key of the rule file"),
            }
        }
        if let Some(socket) = cluster.get("transport_socket") {
            let tls = upstream_tls(socket, self.report);
            more.set_some("tls", (!tls.is_empty()).then_some(tls));
        }
        more
    }

    fn protocol(&mut self, options: At<'a>, more: &mut Map) {
        for (name, options, place) in options.entries() {
            let explicit = options.get("explicit_http_config");
            let is_http2 = explicit.is_some_and(|http| http.node.get("http2_protocol_options").is_some());
            if is_http2 {
                more.set("protocol", "http2");
            }
            let others = options.entries().any(|(key, ..)| !["@type", "explicit_http_config"].contains(&key));
            match others {
                true => self.report.lost(&place, name, "other options than `explicit_http_config`"),
                false => self.report.same(&place, "explicit_http_config", "`protocol`"),
            }
        }
    }

    fn health(&mut self, checks: At<'a>, more: &mut Map) {
        let Some(check) = checks.node.items().first().map(|node| At { node, ..checks }) else { return };
        let path = check.at(&["http_health_check", "path"]).and_then(|path| path.node.text());
        let Some(path) = path.filter(|path| path.starts_with('/')) else {
            self.report.lost(&check.place(), "health_checks", "only checks over HTTP are converted");
            return;
        };
        let mut health = one("path", path);
        let time =
            |key: &str| check.get(key).and_then(|time| duration(time.node)).filter(|time| time.as_millis() >= 100);
        let (interval, timeout) = (time("interval"), time("timeout"));
        health.set_some("interval", interval.map(millis));
        let timeout = timeout.map(|timeout| interval.map_or(timeout, |interval| timeout.min(interval)));
        health.set_some("timeout", timeout.map(millis));
        for (key, own) in [("healthy_threshold", "rise"), ("unhealthy_threshold", "fall")] {
            let count = check.get(key).and_then(|count| count.node.number()).map(|count| count.clamp(1, 100));
            health.set_some(own, count);
        }
        more.set("health", health);
        self.report.same(&check.place(), "health_checks", "`health` of the upstream");
    }
}

/// Returns the servers of a cluster.
fn servers(cluster: At<'_>) -> Vec<Target> {
    let is_tls = cluster.get("transport_socket").is_some_and(|socket| {
        let kind = socket.at(&["typed_config", "@type"]).and_then(|kind| kind.node.text());
        kind.is_some_and(|kind| kind.contains("UpstreamTlsContext"))
    });
    let scheme = if is_tls { "https" } else { "http" };
    let groups = cluster.items_at(&["load_assignment", "endpoints"]);
    let target = |endpoint: At<'_>| {
        let socket = endpoint.at(&["endpoint", "address", "socket_address"]);
        let path = endpoint.at(&["endpoint", "address", "pipe", "path"]);
        let weight = endpoint.get("load_balancing_weight").and_then(|weight| weight.node.number()).unwrap_or(1);
        let weight = u32::try_from(weight.clamp(1, MAX_WEIGHT)).unwrap_or(1);
        if let Some(path) = path.and_then(|path| path.node.text()) {
            return path.starts_with('/').then(|| Target { url: format!("unix:{path}"), weight });
        }
        let (host, port) = (socket?.text("address")?, socket?.text("port_value")?);
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        Some(Target { url: format!("{scheme}://{host}:{port}"), weight })
    };
    let mut urls = HashSet::new();
    let targets = groups.flat_map(|group| group.items("lb_endpoints")).filter_map(target);
    targets.filter(|target| urls.insert(target.url.clone())).collect()
}
