//! Services: the servers of routes.

use std::time::Duration;

use super::groups::{Groups, Server};
use super::model::{Entity, Model};
use crate::draft::value::{Map, Value};
use crate::draft::{Draft, Target, Upstream, millis};
use crate::fields::{Fields, setting};
use crate::report::Report;
use crate::tree::Entry;

/// The longest timeout of the rule file, in milliseconds.
const MAX_TIMEOUT: u64 = 3_600_000;

/// The most attempts in addition to the first one.
const MAX_RETRIES: u64 = 10;

/// The servers of a service.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    /// The name of the upstream.
    pub(super) upstream: String,
    /// The path in front of all paths.
    pub(super) path: Option<String>,
}

/// The address of a service.
#[derive(Clone, Debug, Default)]
struct Address {
    /// `None` if the service does not speak HTTP.
    scheme: Option<&'static str>,
    /// Whether the service speaks only HTTP/2.
    is_grpc: bool,
    server: Server,
    path: Option<String>,
}

/// Converts the services. Returns the servers of each.
pub(super) fn convert(model: &Model<'_>, draft: &mut Draft, report: &mut Report) -> Vec<Servers> {
    let groups = Groups::of(model, report);
    model.services.iter().map(|service| convert_one(*service, &groups, draft, report)).collect()
}

fn convert_one(service: Entity<'_>, groups: &Groups, draft: &mut Draft, report: &mut Report) -> Servers {
    let mut fields = service.fields();
    let address = Address::read(service, &mut fields, report);
    let name = fields.take("name").and_then(|entry| entry.value.text());
    let wish = name.unwrap_or(if address.server.host.is_empty() { "service" } else { &address.server.host });
    let mut more = Map::default();
    let servers = match groups.get(&address.server.host) {
        Some(group) => {
            more.extend(group.more.clone());
            group.servers.clone()
        }
        None => vec![address.server.clone()],
    };
    let targets: Vec<_> = servers.iter().filter_map(|server| target(address.scheme?, server)).collect();
    if address.is_grpc {
        more.set("protocol", "http2");
    }
    read_times(service, &mut fields, &mut more, report);
    read_tls(service, fields, &mut more, report);
    let path = address.path.filter(|path| path != "/");
    if targets.is_empty() {
        if address.scheme.is_some() {
            report.lost(&service.place(), format!("service {wish}"), "it has no servers that the rule file can name");
        }
        return Servers { upstream: draft.unknown_upstream(), path };
    }
    if !targets.iter().any(|target| target.url.starts_with("https:")) {
        more.entries.retain(|(key, _)| key != "tls");
    }
    let upstream = draft.upstream_name(wish);
    let place = Some(service.place());
    draft.upstreams.push(Upstream { name: upstream.clone(), targets, more, place, ..Upstream::default() });
    Servers { upstream, path }
}

/// Returns the target of a server, if its address is valid.
fn target(scheme: &str, server: &Server) -> Option<Target> {
    let is_host = !server.host.is_empty()
        && server.host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte))
        && (server.host.starts_with('[') || !server.host.contains([':', '[', ']']));
    let port = server.port.map_or_else(String::new, |port| format!(":{port}"));
    is_host.then(|| Target { url: format!("{scheme}://{}{port}", server.host), weight: server.weight })
}

/// Reads the timeouts and retries.
fn read_times(service: Entity<'_>, fields: &mut Fields<'_>, more: &mut Map, report: &mut Report) {
    let mut timeouts = Map::default();
    let (connect, read, write) =
        (fields.take("connect_timeout"), fields.take("read_timeout"), fields.take("write_timeout"));
    let time = |entry: Option<&Entry>| {
        let number = entry?.value.number().filter(|number| (1..=MAX_TIMEOUT).contains(number))?;
        Some(millis(Duration::from_millis(number)))
    };
    timeouts.set_some("connect", time(connect));
    timeouts.set_some("response", time(read));
    timeouts.set_some("idle", time(read));
    for (entry, reason) in [
        (connect, "`timeouts.connect`"),
        (read, "`timeouts.response` and `timeouts.idle`"),
        (write, "`timeouts.response` begins again with each part of a request that is sent"),
    ] {
        let Some(entry) = entry else { continue };
        match time(Some(entry)) {
            Some(_) => report.same(&service.place_of(entry), setting(entry), reason),
            None => report.lost(&service.place_of(entry), setting(entry), "not from 1 ms to 1 h"),
        }
    }
    if !timeouts.is_empty() {
        more.set("timeouts", timeouts);
    }
    if let Some(entry) = fields.take("retries") {
        let retries = entry.value.number().unwrap_or(5);
        let value = match retries {
            0 => Value::from("off"),
            count => Map::of([("attempts", count.min(MAX_RETRIES).into())]).into(),
        };
        more.set("retry", value);
        let reason = "`retry`; requests that a server may have processed are sent again only if that is safe";
        report.same(&service.place_of(entry), setting(entry), reason);
    }
}

/// Reads the settings of TLS, and reports what remains.
fn read_tls(service: Entity<'_>, mut fields: Fields<'_>, more: &mut Map, report: &mut Report) {
    fields.skip(&["routes", "plugins", "enabled", "protocol", "host", "port", "path", "url"]);
    if let Some(entry) = fields.take("tls_verify") {
        let verifies = entry.value.flag() == Some(true);
        if !verifies {
            more.set("tls", Map::of([("verify", false.into())]));
        }
        report.same(&service.place_of(entry), setting(entry), "`tls.verify`");
    }
    for entry in fields.rest() {
        let reason = match entry.key.as_str() {
            "client_certificate" => "write the certificate to a file, and name it in `tls` of the upstream",
            "ca_certificates" => "write the authorities to a file, and name it in `tls` of the upstream",
            "tls_verify_depth" => "certificates are verified up to an authority",
            _ => "the rule file has no such key",
        };
        report.lost(&service.place_of(entry), setting(entry), reason);
    }
}

// === impl Address ===

impl Address {
    /// Reads `url`, or `protocol`, `host`, `port` and `path`.
    fn read(service: Entity<'_>, fields: &mut Fields<'_>, report: &mut Report) -> Self {
        let url = fields.take("url");
        let text = |entry: Option<&Entry>| entry.and_then(|entry| entry.value.text().map(str::to_owned));
        let (protocol, host, port, path) =
            (fields.take("protocol"), fields.take("host"), fields.take("port"), fields.take("path"));
        let place = url.or(host).map_or_else(|| service.place(), |entry| service.place_of(entry));
        let mut address = text(url).as_deref().map(Self::parse).unwrap_or_default();
        if let Some(host) = text(host) {
            address.server = Server { host, weight: 1, ..address.server };
        }
        let number = port.and_then(|entry| entry.value.number()).and_then(|port| u16::try_from(port).ok());
        address.server.port = number.filter(|port| *port > 0).or(address.server.port);
        address.path = text(path).or(address.path).and_then(|path| crate::matching::exact(&path));
        let word = text(protocol).or_else(|| text(url).and_then(|url| Some(url.split_once("://")?.0.to_owned())));
        let scheme = word.as_deref().map_or(Some("http"), scheme);
        let shown = url.or(host).map_or_else(|| "host".to_owned(), setting);
        match scheme {
            Some(_) => report.same(&place, shown, "`targets`"),
            None => report.lost(&place, shown, "only HTTP and gRPC are forwarded"),
        }
        let is_grpc = word.is_some_and(|word| word.starts_with("grpc"));
        Self { scheme, is_grpc, ..address }
    }

    fn parse(url: &str) -> Self {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let server = Server::parse(authority);
        Self { scheme: None, is_grpc: false, server, path: (!path.is_empty()).then(|| path.to_owned()) }
    }
}

/// Returns the scheme of targets for a protocol of Kong.
fn scheme(protocol: &str) -> Option<&'static str> {
    match protocol {
        "http" | "grpc" | "ws" => Some("http"),
        "https" | "grpcs" | "wss" => Some("https"),
        _ => None,
    }
}
