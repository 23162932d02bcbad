//! Entry points of the static configuration: listeners.

use super::conditions::network;
use super::limits::trust;
use super::model::{Item, Model, local_name, texts};
use crate::draft::value::Map;
use crate::draft::{Draft, Listen, valid_name};
use crate::fields::{Fields, Spelling, setting};
use crate::report::Report;
use crate::tree::{Entry, Node};

/// The entry points, with the middlewares of all their routers.
#[derive(Debug, Default)]
pub(super) struct EntryPoints<'n>(Vec<EntryPoint<'n>>);

#[derive(Debug)]
struct EntryPoint<'n> {
    name: &'n str,
    middlewares: Vec<&'n str>,
    tls_options: Option<&'n str>,
}

// === impl EntryPoints ===

impl<'n> EntryPoints<'n> {
    /// Reads the entry points, and adds their listeners.
    pub(super) fn of(model: &Model<'n>, draft: &mut Draft, report: &mut Report) -> Self {
        let mut points = Self::default();
        for item in &model.entry_points {
            let mut fields = item.fields();
            let address = fields.take("address");
            let found = address.and_then(|entry| listen_address(entry.value.text()?));
            let Some(found) = found else {
                let place = address.map_or_else(|| item.place(), |entry| item.place_of(entry));
                report.lost(&place, format!("entryPoints.{}", item.entry.key), "not the address of a TCP port");
                continue;
            };
            let name = valid_name(&item.entry.key);
            let is_new = draft.listen.iter().all(|listen| listen.address != found);
            if is_new {
                let more = Map::of([("name", name.as_str().into())]);
                draft.listen.push(Listen { address: found, more, place: Some(item.place()) });
            }
            if let Some(entry) = address {
                report.same(&item.place_of(entry), item.setting(entry), "`listen`");
            }
            let mut point = EntryPoint { name: &item.entry.key, middlewares: Vec::new(), tls_options: None };
            point.read_http(*item, fields.take("http"), report);
            read_forwarded(*item, fields.take("forwardedHeaders"), draft, report);
            for rest in fields.rest() {
                let reason = "see the keys of `listen`";
                report.lost(&item.place_of(rest), item.setting(rest), reason);
            }
            points.0.push(point);
        }
        points
    }

    /// Returns the names of the TLS options of all entry points.
    pub(super) fn tls_options(&self) -> impl Iterator<Item = &'n str> + use<'_, 'n> {
        self.0.iter().filter_map(|point| point.tls_options)
    }

    /// Returns the names of listeners, and the middlewares of their routers, for a router with these entry points. Empty
    /// for all.
    pub(super) fn of_router(&self, names: &[&str]) -> (Vec<String>, Vec<&'n str>) {
        let is_used = |point: &&EntryPoint<'_>| names.is_empty() || names.contains(&point.name);
        let used: Vec<_> = self.0.iter().filter(is_used).collect();
        let listeners =
            if names.is_empty() { Vec::new() } else { used.iter().map(|point| valid_name(point.name)).collect() };
        let mut middlewares: Vec<&'n str> = Vec::new();
        for name in used.iter().flat_map(|point| &point.middlewares) {
            if !middlewares.contains(name) {
                middlewares.push(name);
            }
        }
        (listeners, middlewares)
    }
}

impl<'n> EntryPoint<'n> {
    fn read_http(&mut self, item: Item<'n>, http: Option<&'n Entry>, report: &mut Report) {
        let Some(http) = http else { return };
        let mut fields = Fields::of(&http.value, Spelling::Relaxed);
        if let Some(entry) = fields.take("middlewares") {
            self.middlewares = texts(&entry.value).into_iter().map(local_name).collect();
            report.same(&item.place_of(entry), item.setting(entry), "the keys of all routes");
        }
        if let Some(tls) = http.value.get("tls") {
            self.tls_options = tls.get("options").map_or(Some("default"), Node::text).map(local_name);
        }
        for rest in fields.rest() {
            let reason = match rest.key.to_ascii_lowercase().as_str() {
                "redirections" => "add a route with `redirect` at the top",
                "tls" => "write the certificates to `tls` of `listen`",
                _ => "the rule file has no such key",
            };
            report.lost(&item.place_of(rest), format!("{}.http.{}", item.entry.key, setting(rest)), reason);
        }
    }
}

/// Reads the proxies that may set `X-Forwarded-*`.
fn read_forwarded(item: Item<'_>, forwarded: Option<&Entry>, draft: &mut Draft, report: &mut Report) {
    let Some(forwarded) = forwarded else { return };
    let mut fields = Fields::of(&forwarded.value, Spelling::Relaxed);
    if let Some(entry) = fields.take("trustedIPs") {
        texts(&entry.value).into_iter().filter_map(network).for_each(|network| trust(network, draft));
        report.same(&item.place_of(entry), item.setting(entry), "`clients.trusted_proxies`, for all listeners");
    }
    for rest in fields.rest().filter(|rest| rest.value.flag() != Some(false)) {
        let reason = "set `clients.trusted_proxies`: the fields of any client are never trusted";
        report.lost(&item.place_of(rest), item.setting(rest), reason);
    }
}

/// Returns the address of a listener: `:80`, `127.0.0.1:80`, `[::1]:80`, each with `/tcp` or without.
fn listen_address(text: &str) -> Option<String> {
    let text = text.strip_suffix("/tcp").unwrap_or(text);
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    match host {
        "" => Some(format!("0.0.0.0:{port}")),
        host => text.parse::<std::net::SocketAddr>().ok().map(|_| format!("{host}:{port}")),
    }
}

/// Returns the entry points of a router.
pub(super) fn names(node: Option<&Entry>) -> Vec<&str> {
    node.map(|entry| texts(&entry.value)).unwrap_or_default()
}
