//! Upstreams of Kong: the servers behind the host of a service.

use std::collections::HashMap;

use super::model::{Entity, Model};
use crate::draft::value::{Map, Value};
use crate::fields::{Fields, Spelling, setting};
use crate::report::{Report, Verdict};
use crate::tree::{Entry, Node};

/// The largest weight of a target.
const MAX_WEIGHT: u64 = 1_000;

/// The upstreams, by name.
#[derive(Debug, Default)]
pub(super) struct Groups<'n>(HashMap<&'n str, Group>);

/// An upstream.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) servers: Vec<Server>,
    /// The keys of the upstream in the rule file, without `targets`.
    pub(super) more: Map,
}

/// A server without its scheme.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: Option<u16>,
    pub(super) weight: u32,
}

// === impl Groups ===

impl<'n> Groups<'n> {
    /// Reads the upstreams, and reports their settings.
    pub(super) fn of(model: &Model<'n>, report: &mut Report) -> Self {
        let named = model.upstreams.iter().filter_map(|entity| Some((entity.node.get("name")?.text()?, *entity)));
        Self(named.map(|(name, entity)| (name, Group::read(entity, report))).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Group> {
        self.0.get(name)
    }
}

// === impl Group ===

impl Group {
    fn read(entity: Entity<'_>, report: &mut Report) -> Self {
        let mut group = Self::default();
        group.read_targets(entity, report);
        let mut fields = entity.fields();
        fields.skip(&["name", "targets", "slots"]);
        group.read_balance(entity, &mut fields, report);
        if let Some(entry) = fields.take("healthchecks") {
            group.read_checks(entity, entry, report);
        }
        if let Some(entry) = fields.take("host_header") {
            report.lost(&entity.place_of(entry), setting(entry), "set `rewrite.host` of the routes");
        }
        fields.report_rest(entity.text, "the rule file has no such key", report);
        group
    }

    fn read_targets(&mut self, entity: Entity<'_>, report: &mut Report) {
        let mut weights = Vec::new();
        for target in entity.list("targets") {
            let address = target.node.get("target").and_then(Node::text).unwrap_or_default();
            let weight = target.node.get("weight").and_then(Node::number).unwrap_or(100);
            let reason = if weight == 0 { "a weight of 0 excludes the target" } else { "`targets`" };
            report.same(&target.place(), format!("target: {address}"), reason);
            if weight > 0 {
                self.servers.push(Server { port: Some(8000), ..Server::parse(address) }.with_port_of(address));
                weights.push(weight);
            }
        }
        let divisor = weights.iter().copied().fold(0, gcd).max(1);
        let largest = weights.iter().max().copied().unwrap_or(1) / divisor;
        for (server, weight) in self.servers.iter_mut().zip(weights) {
            let weight = weight / divisor;
            let scaled = if largest > MAX_WEIGHT { (weight * MAX_WEIGHT / largest).max(1) } else { weight };
            server.weight = u32::try_from(scaled).unwrap_or(1);
        }
    }

    fn read_balance(&mut self, entity: Entity<'_>, fields: &mut Fields<'_>, report: &mut Report) {
        let algorithm = fields.take("algorithm");
        let (on, header, cookie) =
            (fields.take("hash_on"), fields.take("hash_on_header"), fields.take("hash_on_cookie"));
        fields.skip(&["hash_fallback", "hash_fallback_header", "hash_on_cookie_path"]);
        let text = |entry: Option<&Entry>| entry.and_then(|entry| entry.value.text().map(str::to_owned));
        let hash = match text(on).as_deref() {
            None | Some("none") => None,
            Some("ip") => Some(Some("client".to_owned())),
            Some("header") => Some(text(header).map(|name| format!("header:{name}"))),
            Some("cookie") => Some(text(cookie).map(|name| format!("cookie:{name}"))),
            Some("path") => Some(Some("path".to_owned())),
            Some(_) => Some(None),
        };
        let word = text(algorithm);
        let balance = match (word.as_deref(), &hash) {
            (_, Some(Some(key))) => Some(Value::Map(Map::of([("hash", key.as_str().into())]))),
            (None | Some("round-robin"), None) => Some("round_robin".into()),
            (Some("least-connections"), None) => Some("least_requests".into()),
            _ => None,
        };
        let is_known = balance.is_some();
        self.more.set_some("balance", balance);
        let (verdict, reason) = match is_known {
            true => (Verdict::Same, "`balance`"),
            false => (Verdict::Lost, "the rule file has no such balancing; `least_requests` applies"),
        };
        for entry in [algorithm, on, header, cookie].into_iter().flatten() {
            report.add(&entity.place_of(entry), verdict, setting(entry), reason);
        }
    }

    fn read_checks(&mut self, entity: Entity<'_>, entry: &Entry, report: &mut Report) {
        let mut checks = Fields::of(&entry.value, Spelling::Exact);
        if let Some(active) = checks.take("active") {
            let place = entity.place_of(active);
            match health(&active.value) {
                Some(health) => {
                    self.more.set("health", health);
                    report.same(&place, "healthchecks.active", "`health`");
                }
                None => report.same(&place, "healthchecks.active", "off, since no interval is set"),
            }
        }
        if let Some(passive) = checks.take("passive") {
            let reason = "`eject` is on by default, with its own numbers";
            report.same(&entity.place_of(passive), "healthchecks.passive", reason);
        }
        if let Some(threshold) = checks.take("threshold") {
            report.lost(&entity.place_of(threshold), setting(threshold), "see `panic` of `health`");
        }
        checks.report_rest(entity.text, "the rule file has no such key", report);
    }
}

/// Returns the active checks, if they have an interval.
fn health(active: &Node) -> Option<Map> {
    let number = |path: &[&str]| active.at(path).and_then(Node::number);
    let interval =
        number(&["healthy", "interval"]).max(number(&["unhealthy", "interval"])).filter(|interval| *interval > 0)?;
    let interval = interval.min(3_600);
    let path = active.get("http_path").and_then(Node::text).filter(|path| path.starts_with('/')).unwrap_or("/");
    let mut map = Map::of([("path", path.into()), ("interval", format!("{interval}s").into())]);
    let timeout = number(&["timeout"]).unwrap_or(1).clamp(1, interval);
    map.set("timeout", format!("{timeout}s"));
    let count = |path: &[&str]| number(path).filter(|count| (1..=100).contains(count));
    map.set_some("rise", count(&["healthy", "successes"]));
    let fall = [&["unhealthy", "http_failures"][..], &["unhealthy", "tcp_failures"], &["unhealthy", "timeouts"]];
    map.set_some("fall", fall.into_iter().find_map(count));
    Some(map)
}

fn gcd(left: u64, right: u64) -> u64 {
    if right == 0 { left } else { gcd(right, left % right) }
}

// === impl Server ===

impl Server {
    /// Reads `host` or `host:port`.
    pub(super) fn parse(authority: &str) -> Self {
        let authority = authority.rsplit_once('@').map_or(authority, |(_, authority)| authority);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse().ok()),
            _ => (authority, None),
        };
        Self { host: host.to_owned(), port, weight: 1 }
    }

    /// Keeps the port of an address, if it has one.
    fn with_port_of(self, address: &str) -> Self {
        Self { port: Self::parse(address).port.or(self.port), ..self }
    }
}
