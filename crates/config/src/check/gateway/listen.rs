//! Listeners for clients and operators.

use std::net::SocketAddr;

use ipnet::IpNet;

use super::listen_tls;
use crate::check::names::duplicates;
use crate::check::{Checked, all};
use crate::file::located::{Located, ValueOrMap};
use crate::file::{self, File};
use crate::problem::{Location, Problems, quote};
use crate::sources::referenced_files::ReferencedFiles;
use crate::{Config, Listen, ListenAddress, Purpose, Source};

const ADDRESS_HELP: &str = "an address is `127.0.0.1:8080`, `[::1]:8080`, `0.0.0.0:8080` for all interfaces, \
                            or `unix:/path` for a Unix socket";

pub(crate) fn listen(file: &File, source: Source<'_>, problems: &mut Problems) -> Checked<Vec<Listen>> {
    let raw = file.listen.optional(problems)?.map(Vec::as_slice).unwrap_or_default();
    let is_service = file.service.is_present() && !file.routes.is_present();
    if source.purpose == Purpose::Gateway && !file.listen.is_present() && !is_service {
        let (message, help) = ("a gateway needs `listen`".to_owned(), "for example `listen: 0.0.0.0:8080`");
        return Err(problems.add_missing(file.listen.location, "listen", message, help));
    }
    duplicates(names(file), "listener", problems);
    all(raw.iter().map(|entry| listener(entry.required(problems)?, source.files, problems)))
}

/// Iterates over the names of listeners, with their locations.
pub(crate) fn names(file: &File) -> impl Iterator<Item = (&str, Location)> + Clone {
    file.listen.items().iter().filter_map(|entry| {
        let name = &entry.get()?.name;
        Some((name.get()?.as_str(), name.location))
    })
}

/// Returns the names of all listeners. Returns `None` if one of them is not known.
pub(crate) fn known_names<'f>(file: &'f File, problems: &Problems) -> Option<Vec<&'f str>> {
    let is_known = |entry: &Located<file::Listen>| {
        entry.get().is_some_and(|listen| !listen.name.is_present() || listen.name.get().is_some())
    };
    let all_known = file.listen.get().is_some() == file.listen.is_present() && file.listen.items().iter().all(is_known);
    (all_known || problems.unknown_values() == 0).then(|| names(file).map(|name| name.0).collect())
}

fn listener(entry: &file::Listen, files: ReferencedFiles<'_>, problems: &mut Problems) -> Checked<Listen> {
    let address = entry.address.required(problems).and_then(|text| address(text, entry.address.location, problems));
    let mode = mode(entry, &address, problems);
    let default = Listen::new(address?);
    let tls = listen_tls::tls(&entry.tls, files, problems);
    reject_tls_of_socket(&entry.tls, &default.address, problems)?;
    let (proxy_protocol, trust_unknown) = match entry.proxy_protocol.get() {
        None => (default.proxy_protocol, default.trust_unknown),
        Some(ValueOrMap::Value(is_on)) => (*is_on, default.trust_unknown),
        Some(ValueOrMap::Map(settings)) => (true, settings.trust_unknown.get().copied().unwrap_or_default()),
    };
    Ok(Listen {
        name: entry.name.optional(problems)?.map(|name| name.as_str().into()),
        tls: tls?,
        http2: entry.http2.get().copied().unwrap_or(default.http2),
        mode: mode?,
        proxy_protocol,
        trust_unknown,
        max_connections: entry.max_connections.number(default.max_connections, problems)?,
        max_connections_per_client: {
            entry.max_connections_per_client.number(default.max_connections_per_client, problems)?
        },
        max_requests: entry.max_requests.number(default.max_requests, problems)?,
        max_streams: entry.max_streams.number(default.max_streams, problems)?,
        header_timeout: entry.header_timeout.duration(default.header_timeout),
        idle_timeout: entry.idle_timeout.duration(default.idle_timeout),
        body_timeout: entry.body_timeout.duration(default.body_timeout),
        min_rate: entry.min_rate.size(default.min_rate, problems)?,
        max_fields: entry.max_fields.number(default.max_fields, problems)?,
        max_field_bytes: entry.max_field_bytes.size(default.max_field_bytes, problems)?,
        max_target: entry.max_target.size(default.max_target, problems)?,
        ..default
    })
}

/// Reports `tls` of a Unix socket.
pub(crate) fn reject_tls_of_socket(
    tls: &Located<file::ListenTls>,
    address: &ListenAddress,
    problems: &mut Problems,
) -> Checked<()> {
    if tls.get().is_none() || address.tcp().is_some() {
        return Ok(());
    }
    let help = "leave it out: other machines cannot connect to a Unix socket";
    Err(tls.report("`tls` applies only to TCP listeners", help, problems))
}

/// Converts the file mode of a Unix socket.
fn mode(entry: &file::Listen, address: &Checked<ListenAddress>, problems: &mut Problems) -> Checked<u32> {
    let Some(text) = entry.mode.get() else { return Ok(Listen::DEFAULT_MODE) };
    if let Ok(ListenAddress::Tcp(_)) = address {
        return Err(entry.mode.report("`mode` applies only to Unix sockets", "leave it out", problems));
    }
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    let help = "use `\"0660\"` to let the socket's user and group connect";
    mode.ok_or_else(|| entry.mode.report(format!("{} is not a file mode", quote(text)), help, problems))
}

pub(crate) fn max_connections(file: &File, problems: &mut Problems) -> Checked<usize> {
    file.max_connections.optional(problems)?;
    file.max_connections.number(Config::DEFAULT_MAX_CONNECTIONS, problems)
}

pub(crate) fn address(text: &str, at: Location, problems: &mut Problems) -> Checked<ListenAddress> {
    ListenAddress::parse(text).map_err(|fault| problems.add(at, format!("{} {fault}", quote(text)), ADDRESS_HELP))
}

/// Reports listeners with `proxy_protocol` if there are no trusted proxies, since no client could connect.
pub(crate) fn proxies(file: &File, listen: &Checked<Vec<Listen>>, trusted: &[IpNet], problems: &mut Problems) {
    for (entry, raw) in listen.iter().flatten().zip(file.listen.items()) {
        if let (true, true, Some(raw)) = (entry.proxy_protocol, trusted.is_empty(), raw.get()) {
            let message = "`proxy_protocol` needs `clients.trusted_proxies`, which is empty";
            let help = "list the proxies: `clients: { trusted_proxies: [10.0.0.0/8] }`";
            raw.proxy_protocol.report(message, help, problems);
        }
    }
}

/// Reports listeners that use the same port or path. Otherwise only the start of the gateway would fail. `service` are the
/// addresses of the service.
pub(crate) fn overlaps<'a>(
    listen: &'a Checked<Vec<Listen>>,
    service: impl Iterator<Item = (&'a ListenAddress, Location)>,
    admin: &'a Checked<Option<ListenAddress>>,
    file: &File,
    problems: &mut Problems,
) {
    let entries = listen.iter().flatten().zip(file.listen.items());
    let entries = entries.map(|(entry, raw)| (&entry.address, raw.location)).chain(service);
    let entries = entries.map(|(address, location)| (address, location, false));
    let is_default = !file.admin.is_present();
    let admin = admin.iter().flatten().map(|address| (address, file.admin.location, is_default));
    let mut taken: Vec<(&ListenAddress, Location)> = Vec::new();
    for (address, location, is_default) in entries.chain(admin) {
        match taken.iter().find(|(other, _)| overlap(other, address)) {
            Some((other, first)) if is_default => {
                let message = format!("`{other}` is the default address of `admin`");
                problems.add(*first, message, "choose another port, or set `admin`");
            }
            Some((other, first)) => {
                let message = format!("`{address}` is already used by `{other}` on line {}", first.line());
                let help = if address.tcp().is_some() { "use different ports" } else { "use different paths" };
                problems.add(location, message, help);
            }
            None => taken.push((address, location)),
        }
    }
}

fn overlap(a: &ListenAddress, b: &ListenAddress) -> bool {
    let (ListenAddress::Tcp(a), ListenAddress::Tcp(b)) = (a, b) else { return a == b };
    let any = |address: &SocketAddr| address.ip().is_unspecified();
    let same = a.ip() == b.ip() || (a.is_ipv4() == b.is_ipv4() && (any(a) || any(b)));
    a.port() == b.port() && a.port() != 0 && same
}
