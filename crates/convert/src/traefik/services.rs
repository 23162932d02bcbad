//! The services: upstreams of the rule file.

use std::collections::{HashMap, HashSet};

use super::model::{Item, Model, duration, local_name};
use crate::draft::value::{Map, Value};
use crate::draft::{Draft, Target, Upstream};
use crate::fields::{Fields, Spelling, setting};
use crate::report::Report;
use crate::tree::{Entry, Node};

/// The deepest nesting of services in services.
const MAX_DEPTH: usize = 8;

/// The most targets of an upstream.
const MAX_TARGETS: usize = 1_000;

/// The largest weight of a target.
const MAX_WEIGHT: f64 = 1_000.0;

/// The upstreams of services, by name.
#[derive(Debug)]
pub(super) struct Services<'n> {
    pub(super) model: &'n Model<'n>,
    upstreams: HashMap<&'n str, Service>,
    /// The services that have been reported. Others can contain them.
    reported: HashSet<&'n str>,
}

/// A service.
#[derive(Clone, Debug)]
pub(super) struct Service {
    /// The name of the upstream.
    pub(super) upstream: String,
    /// Whether the servers receive the host of the request.
    pub(super) passes_host: bool,
}

/// The servers of a service, before it is an upstream.
#[derive(Debug, Default)]
struct Servers {
    targets: Vec<Target>,
    more: Map,
    keeps_host: Option<bool>,
}

// === impl Services ===

impl<'n> Services<'n> {
    pub(super) fn new(model: &'n Model<'n>) -> Self {
        Self { model, upstreams: HashMap::new(), reported: HashSet::new() }
    }

    /// Returns the upstream of a service. The first call adds it.
    pub(super) fn get(&mut self, name: &str, of: Item<'_>, draft: &mut Draft, report: &mut Report) -> Service {
        let wanted = local_name(name);
        let Some(item) = self.find(wanted) else {
            let reason = if name.ends_with("@internal") {
                "services of Traefik itself are not converted"
            } else {
                "no file has this service"
            };
            report.lost(&of.place(), format!("{}.service: {name}", of.entry.key), reason);
            return Service { upstream: draft.unknown_upstream(), passes_host: true };
        };
        let key = item.entry.key.as_str();
        if let Some(known) = self.upstreams.get(key) {
            return known.clone();
        }
        let mut servers = self.read(item, 0, report);
        let upstream = match servers.targets.is_empty() {
            true => draft.unknown_upstream(),
            false => {
                let name = draft.upstream_name(key);
                let has_tls = servers.targets.iter().any(|target| target.url.starts_with("https:"));
                servers.more.entries.retain(|(key, _)| has_tls || key != "tls");
                let (targets, more, place) = (servers.targets, servers.more, Some(item.place()));
                draft.upstreams.push(Upstream { name: name.clone(), targets, more, place, ..Upstream::default() });
                name
            }
        };
        let service = Service { upstream, passes_host: servers.keeps_host.unwrap_or(true) };
        self.upstreams.insert(key, service.clone());
        service
    }

    fn find(&self, name: &str) -> Option<Item<'n>> {
        self.model.services.get(name)
    }

    fn read(&mut self, item: Item<'n>, depth: usize, report: &mut Report) -> Servers {
        let mut unused = Report::default();
        let report = if self.reported.insert(&item.entry.key) { report } else { &mut unused };
        let mut servers = Servers::default();
        for entry in item.entry.value.entries() {
            match entry.key.to_ascii_lowercase().as_str() {
                "loadbalancer" => self.read_balancer(item, entry, &mut servers, report),
                "weighted" if depth < MAX_DEPTH => self.read_weighted(item, entry, depth, &mut servers, report),
                "mirroring" | "failover" if depth < MAX_DEPTH => {
                    let main =
                        entry.value.get("service").and_then(Node::text).and_then(|name| self.find(local_name(name)));
                    if let Some(main) = main {
                        servers = self.read(main, depth + 1, report);
                    }
                    let reason = "only the first service is used";
                    report.lost(&item.place_of(entry), format!("{}.{}", item.entry.key, entry.key), reason);
                }
                _ => report.lost(&item.place_of(entry), item.setting(entry), "the rule file has no such service"),
            }
        }
        servers
    }

    fn read_balancer(&self, item: Item<'n>, balancer: &'n Entry, servers: &mut Servers, report: &mut Report) {
        let mut fields = Fields::of(&balancer.value, Spelling::Relaxed);
        for server in fields.take("servers").map_or(&[][..], |entry| entry.value.items()) {
            read_server(item, server, servers, report);
        }
        if let Some(entry) = fields.take("passHostHeader") {
            servers.keeps_host = entry.value.flag();
            report.same(&item.place_of(entry), item.setting(entry), "`rewrite.host`");
        }
        if let Some(entry) = fields.take("healthCheck") {
            read_health(item, entry, &mut servers.more, report);
        }
        if let Some(entry) = fields.take("serversTransport") {
            self.read_transport(item, entry, &mut servers.more, report);
        }
        if let Some(entry) = fields.take("sticky") {
            report.lost(&item.place_of(entry), item.setting(entry), "see `balance: { hash: ... }` of the upstream");
        }
        fields.skip(&["responseForwarding"]);
        for rest in fields.rest() {
            report.lost(&item.place_of(rest), item.setting(rest), "the rule file has no such key");
        }
    }

    fn read_weighted(
        &mut self,
        item: Item<'n>,
        entry: &Entry,
        depth: usize,
        servers: &mut Servers,
        report: &mut Report,
    ) {
        let place = item.place_of(entry);
        let mut found = Vec::new();
        for part in entry.value.get("services").map_or(&[][..], Node::items) {
            let name = part.get("name").and_then(Node::text).unwrap_or_default();
            let weight = part.get("weight").and_then(Node::float).unwrap_or(1.0);
            let Some(service) = self.find(local_name(name)) else {
                report.lost(&place, format!("{}.weighted: {name}", item.entry.key), "no file has this service");
                continue;
            };
            let inner = self.read(service, depth + 1, report);
            let total: f64 = inner.targets.iter().map(|target| f64::from(target.weight)).sum();
            let share = |target: &Target| weight * f64::from(target.weight) / total.max(1.0);
            found.extend(inner.targets.iter().map(|target| (target.url.clone(), share(target))));
            servers.more.extend(inner.more);
            if found.len() >= MAX_TARGETS {
                break;
            }
        }
        let smallest = found.iter().map(|(_, share)| *share).filter(|share| *share > 0.0).fold(f64::INFINITY, f64::min);
        for (url, share) in found.into_iter().filter(|(_, share)| *share > 0.0).take(MAX_TARGETS) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range")]
            let weight = (share / smallest).round().clamp(1.0, MAX_WEIGHT) as u32;
            add_target(servers, Target { url, weight });
        }
        report.same(&place, format!("{}.weighted", item.entry.key), "`weight` of the targets");
    }

    fn read_transport(&self, item: Item<'n>, entry: &Entry, more: &mut Map, report: &mut Report) {
        let name = entry.value.text().map(local_name).unwrap_or_default();
        let Some(transport) = self.model.transports.get(name) else {
            return report.lost(&item.place_of(entry), item.setting(entry), "no file has this transport");
        };
        let mut fields = transport.fields();
        let mut tls = Map::default();
        let skips = fields.take("insecureSkipVerify").filter(|entry| entry.value.flag() == Some(true));
        tls.set_some("verify", skips.map(|_| false));
        let server_name = fields.take("serverName").and_then(|entry| crate::matching::host(entry.value.text()?));
        tls.set_some("server_name", server_name);
        if !tls.is_empty() {
            more.set("tls", tls);
        }
        if let Some(times) = fields.take("forwardingTimeouts") {
            let mut times = Fields::of(&times.value, Spelling::Relaxed);
            let mut timeouts = Map::default();
            for (key, own) in [("dialTimeout", "connect"), ("responseHeaderTimeout", "response")] {
                let millis = times.take(key).and_then(|entry| duration(entry.value.text()?));
                timeouts.set_some(
                    own,
                    millis.filter(|millis| (1..=3_600_000).contains(millis)).map(|millis| format!("{millis}ms")),
                );
            }
            if !timeouts.is_empty() {
                more.set("timeouts", timeouts);
            }
        }
        fields.skip(&["maxIdleConnsPerHost", "disableHTTP2"]);
        report.same(&item.place_of(entry), item.setting(entry), "`tls` and `timeouts`");
        for rest in fields.rest() {
            let reason = "write the files to `tls` of the upstream";
            report.lost(&transport.place_of(rest), transport.setting(rest), reason);
        }
    }
}

/// Reads a server of a load balancer.
fn read_server(item: Item<'_>, server: &Node, servers: &mut Servers, report: &mut Report) {
    let url = server.get("url").and_then(Node::text).unwrap_or_default();
    let weight = server.get("weight").and_then(Node::number).unwrap_or(1).clamp(1, 1_000);
    let line = server.entries().first().map_or(server.line, |entry| entry.line);
    let place = item.text.place(line);
    match target(url) {
        Some((url, has_path)) => {
            let reason = if has_path { "`targets`, without the path, as in Traefik" } else { "`targets`" };
            report.same(&place, format!("url: {url}"), reason);
            if server.get("url").and_then(Node::text).is_some_and(|url| url.starts_with("h2c:")) {
                servers.more.set("protocol", "http2");
            }
            add_target(servers, Target { url, weight: u32::try_from(weight).unwrap_or(1) });
        }
        None => report.lost(&place, format!("url: {url}"), "not the URL of an HTTP server"),
    }
}

/// Adds a target, unless the upstream has it.
fn add_target(servers: &mut Servers, target: Target) {
    let is_known = servers.targets.iter().any(|known| known.url == target.url);
    if !is_known && servers.targets.len() < MAX_TARGETS {
        servers.targets.push(target);
    }
}

/// Returns the URL of a target, and whether a path was left out.
fn target(url: &str) -> Option<(String, bool)> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = match scheme {
        "http" | "h2c" | "ws" => "http",
        "https" | "wss" => "https",
        _ => return None,
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let is_address =
        host.starts_with('[') && host.ends_with(']') && host[1..host.len() - 1].parse::<std::net::Ipv6Addr>().is_ok();
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    ((is_host || is_address) && is_port).then(|| (format!("{scheme}://{authority}"), path.len() > 1))
}

/// Reads the health check.
fn read_health(item: Item<'_>, check: &Entry, more: &mut Map, report: &mut Report) {
    let mut fields = Fields::of(&check.value, Spelling::Relaxed);
    let mut time = |key: &str| fields.take(key).and_then(|entry| duration(entry.value.text()?));
    let interval = time("interval").unwrap_or(30_000).clamp(100, 3_600_000);
    let timeout = time("timeout").unwrap_or(5_000).clamp(1, interval);
    let path = fields.take("path").and_then(|entry| entry.value.text());
    let path = path.filter(|path| path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()));
    let Some(path) = path else {
        return report.lost(&item.place_of(check), item.setting(check), "the check has no path");
    };
    let times = [("interval", format!("{interval}ms")), ("timeout", format!("{timeout}ms"))];
    let mut health = Map::of([("path", path.into())]);
    times.into_iter().for_each(|(key, time)| health.set(key, time));
    more.set("health", Value::Map(health));
    report.same(&item.place_of(check), format!("{}.{}", item.entry.key, check.key), "`health`");
    for rest in fields.rest() {
        report.lost(&item.place_of(rest), format!("healthCheck.{}", setting(rest)), "see `health` of the upstream");
    }
}
