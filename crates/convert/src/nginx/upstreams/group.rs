//! `upstream` blocks.

use super::url::target;
use crate::draft::value::{Map, Value};
use crate::draft::{Target, millis};
use crate::nginx::Conversion;
use crate::nginx::syntax::Directive;
use crate::nginx::values::source::Source;
use crate::nginx::values::units;

/// The port of servers without one, also with `https`.
const DEFAULT_PORT: u16 = 80;

/// The largest weight of a rule file.
const MAX_WEIGHT: u32 = 1_000;

/// Methods of other modules.
const OTHERS: [&str; 5] = ["sticky", "least_time", "ntlm", "balancer_by_lua_block", "queue"];

impl<'c> Conversion<'c, '_> {
    /// Returns the targets of a group, and its settings. Returns the reason if it has no usable server.
    pub(super) fn group(&mut self, group: &'c Directive, is_tls: bool) -> Result<(Vec<Target>, Map), String> {
        let servers: Vec<&Directive> = group.inner().iter().filter(|inner| inner.name() == "server").collect();
        let has = |server: &Directive, word: &str| server.texts().any(|text| text == word);
        let has_primary = servers.iter().any(|server| !has(server, "backup") && !has(server, "down"));
        let mut targets: Vec<Target> = Vec::new();
        for server in servers {
            match (has(server, "down"), has(server, "backup") && has_primary) {
                (true, _) => self.notes.same(server, "left out, because it is `down`"),
                (_, true) => self.notes.lost(server, "targets have no `backup`: the server is left out"),
                (false, false) => self.add_server(server, is_tls, &mut targets),
            }
        }
        self.notes.same(group, "");
        if targets.is_empty() {
            return Err(format!("`{}` has no usable server", group.arg(0).unwrap_or_default()));
        }
        let mut more = Map::default();
        self.balance(group, &mut more);
        failures(group, &mut more);
        Ok((targets, more))
    }

    fn add_server(&mut self, server: &Directive, is_tls: bool, targets: &mut Vec<Target>) {
        let url = match target(server.arg(0).unwrap_or_default(), is_tls, DEFAULT_PORT) {
            Ok(url) => url,
            Err(reason) => return self.notes.lost(server, reason),
        };
        let weight: u32 = server.option("weight").and_then(|weight| weight.parse().ok()).unwrap_or(1).max(1);
        match targets.iter_mut().find(|target| target.url == url) {
            Some(known) => known.weight = known.weight.saturating_add(weight).min(MAX_WEIGHT),
            None => targets.push(Target { url, weight: weight.min(MAX_WEIGHT) }),
        }
        match (weight > MAX_WEIGHT, server.option("slow_start").or(server.option("route"))) {
            (true, _) => self.notes.lost(server, "weights are at most 1,000"),
            (_, Some(_)) => self.notes.lost(server, "`slow_start` and `route` of a server are not supported"),
            (false, None) => self.notes.same(server, "`targets`"),
        }
    }

    /// Sets how requests are distributed. nginx uses servers in turn by default.
    fn balance(&mut self, group: &Directive, more: &mut Map) {
        more.set("balance", "round_robin");
        for directive in group.inner() {
            match directive.name() {
                "least_conn" | "random" => {
                    more.set("balance", "least_requests");
                    self.notes.same(directive, "`least_requests`");
                }
                "ip_hash" => {
                    more.set("balance", Map::of([("hash", "client".into())]));
                    self.notes.same(directive, "`hash: client`, which uses the whole IPv4 address");
                }
                "hash" => match directive.arg(0).and_then(hash_key) {
                    Some(key) => {
                        more.set("balance", Map::of([("hash", key.into())]));
                        self.notes.same(directive, "`hash`");
                    }
                    None => self.notes.lost(directive, "the key of `hash` has no equivalent"),
                },
                "keepalive" | "keepalive_requests" | "keepalive_timeout" | "keepalive_time" => {
                    self.notes.same(directive, "connections are always kept");
                }
                "resolver" => self.notes.same(directive, "names are resolved again when their TTL ends"),
                name if OTHERS.contains(&name) => self.notes.lost(directive, "not supported"),
                _ => {}
            }
        }
    }
}

/// Sets when a failing server is left out, if the group says so.
fn failures(group: &Directive, more: &mut Map) {
    let servers = || group.inner().iter().filter(|inner| inner.name() == "server");
    let option = |key: &str| servers().find_map(|server| server.option(key));
    let (fails, time) = (option("max_fails"), option("fail_timeout"));
    if fails == Some("0") {
        more.set("eject", "off");
    } else if fails.is_some() || time.is_some() {
        let number: u64 = fails.and_then(|number| number.parse().ok()).unwrap_or(1);
        let mut eject = Map::of([("after", number.min(1_000_000).into())]);
        let day = std::time::Duration::from_secs(86_400);
        let time = time.and_then(units::time).filter(|time| !time.is_zero() && *time <= day);
        eject.set("for", time.map_or_else(|| "10s".to_owned(), millis));
        more.set("eject", eject);
    }
    let most = option("max_conns").and_then(|number| number.parse().ok());
    more.set_some("max_connections", most.filter(|most| (1..=1_000_000_u64).contains(most)).map(Value::Number));
}

/// Returns the key of `hash` in a rule file.
fn hash_key(text: &str) -> Option<String> {
    match Source::of(text.strip_prefix('$')?) {
        Source::Address => Some("client".to_owned()),
        Source::Path | Source::Target => Some("path".to_owned()),
        Source::Header(name) => Some(format!("header:{name}")),
        Source::Cookie(name) => Some(format!("cookie:{name}")),
        _ => None,
    }
}
