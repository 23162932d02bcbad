//! Listeners for clients and operators, and the access log.

use std::net::SocketAddr;
use std::path::Path;

use ipnet::IpNet;

use super::{Checked, duration, listen_tls, needed, number, part};
use crate::config::file::{self, File};
use crate::config::node::Node;
use crate::config::problem::{Location, Problems, quote};
use crate::config::referenced_files::ReferencedFiles;
use crate::config::suggest::nearest;
use crate::config::units::Bytes;
use crate::config::{AccessLog, Config, Listen, ListenAddress, Purpose, Source};

const ADDRESS_HELP: &str = "an address is `127.0.0.1:8080`, `[::1]:8080`, `0.0.0.0:8080` for all interfaces, \
                            or `unix:/path` for a Unix socket";

pub(super) fn listen(file: &File, root: &Node, source: Source<'_>, problems: &mut Problems) -> Checked<Vec<Listen>> {
    let written = part(&file.listen, root, "listen", problems)?.map(Vec::as_slice).unwrap_or_default();
    if source.purpose == Purpose::Gateway && !root.has("listen") {
        let (message, help) = ("a gateway needs `listen`".to_owned(), "for example `listen: 0.0.0.0:8080`");
        return Err(problems.add_missing(root.location, "listen", message, help));
    }
    let pairs = written.iter().zip(root.at("listen").items());
    let entries: Vec<_> =
        pairs.map(|(entry, node)| one(needed(entry, node, problems)?, node, source.files, problems)).collect();
    entries.into_iter().collect()
}

fn one(entry: &file::Listen, node: &Node, files: ReferencedFiles<'_>, problems: &mut Problems) -> Checked<Listen> {
    let address = address(needed(&entry.address, node, problems)?, node.at("address"), problems);
    let mode = mode(entry, &address, node, problems);
    let default = Listen::new(address?);
    let mut count = |value, default, key| number(value, default, node.at(key), problems);
    let max_connections = count(entry.max_connections, default.max_connections, "max_connections");
    let (key, per_client) = ("max_connections_per_client", entry.max_connections_per_client);
    let max_connections_per_client = count(per_client, default.max_connections_per_client, key);
    let max_fields = count(entry.max_fields, default.max_fields, "max_fields");
    let mut size = |value: Option<Bytes>, default, key| count(value.map(|Bytes(bytes)| bytes), default, key);
    let max_field_bytes = size(entry.max_field_bytes, default.max_field_bytes, "max_field_bytes");
    let max_target = size(entry.max_target, default.max_target, "max_target");
    let tls = listen_tls::tls(entry, node, files, problems);
    if entry.tls.is_some() && default.address.path().is_some() {
        let message = "`tls` applies only to TCP listeners";
        return Err(problems.add(
            node.at("tls").location,
            message,
            "leave it out: other machines cannot connect to a Unix socket",
        ));
    }
    Ok(Listen {
        tls: tls?,
        http2: entry.http2.unwrap_or(default.http2),
        mode: mode?,
        proxy_protocol: match &entry.proxy_protocol {
            None => default.proxy_protocol,
            Some(file::ProxyProtocol::Flag(is_on)) => *is_on,
            Some(file::ProxyProtocol::Settings(_)) => true,
        },
        trust_unknown: match &entry.proxy_protocol {
            Some(file::ProxyProtocol::Settings(settings)) => settings.trust_unknown.unwrap_or(default.trust_unknown),
            _ => default.trust_unknown,
        },
        max_connections: max_connections?,
        max_connections_per_client: max_connections_per_client?,
        max_requests: number(entry.max_requests, default.max_requests, node.at("max_requests"), problems)?,
        max_streams: number(entry.max_streams, default.max_streams, node.at("max_streams"), problems)?,
        header_timeout: duration(entry.header_timeout, default.header_timeout),
        idle_timeout: duration(entry.idle_timeout, default.idle_timeout),
        body_timeout: duration(entry.body_timeout, default.body_timeout),
        min_rate: entry.min_rate.map_or(default.min_rate, |Bytes(bytes)| bytes),
        max_fields: max_fields?,
        max_field_bytes: max_field_bytes?,
        max_target: max_target?,
        ..default
    })
}

/// Converts the file mode of a Unix socket.
fn mode(entry: &file::Listen, address: &Checked<ListenAddress>, node: &Node, problems: &mut Problems) -> Checked<u32> {
    let Some(text) = &entry.mode else { return Ok(Listen::DEFAULT_MODE) };
    let location = node.at("mode").location;
    if let Ok(ListenAddress::Tcp(_)) = address {
        return Err(problems.add(location, "`mode` applies only to Unix sockets", "leave it out"));
    }
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    let message = || format!("{} is not a file mode", quote(text));
    mode.ok_or_else(|| problems.add(location, message(), "use `\"0660\"` to let the socket's user and group connect"))
}

pub(super) fn max_connections(file: &File, root: &Node, problems: &mut Problems) -> Checked<usize> {
    let written = part(&file.max_connections, root, "max_connections", problems)?.copied();
    number(written, Config::DEFAULT_MAX_CONNECTIONS, root.at("max_connections"), problems)
}

pub(super) fn admin(file: &File, root: &Node, problems: &mut Problems) -> Checked<Option<ListenAddress>> {
    match part(&file.admin, root, "admin", problems)?.map(String::as_str) {
        None => Ok(Some(Config::DEFAULT_ADMIN)),
        Some("off") => Ok(None),
        Some(text) => address(text, root.at("admin"), problems).map(Some),
    }
}

fn address(text: &str, node: &Node, problems: &mut Problems) -> Checked<ListenAddress> {
    text.parse().map_err(|fault| problems.add(node.location, format!("{} {fault}", quote(text)), ADDRESS_HELP))
}

/// Reports listeners with `proxy_protocol` if there are no trusted proxies, since no client could connect.
pub(super) fn proxies(listen: &Checked<Vec<Listen>>, trusted: &[IpNet], root: &Node, problems: &mut Problems) {
    for (entry, node) in listen.iter().flatten().zip(root.at("listen").items()) {
        if entry.proxy_protocol && trusted.is_empty() {
            let message = "`proxy_protocol` needs `clients.trusted_proxies`, which is empty";
            let help = "list the proxies: `clients: { trusted_proxies: [10.0.0.0/8] }`";
            problems.add(node.at("proxy_protocol").location, message, help);
        }
    }
}

/// Reports listeners that use the same port or path. Otherwise only the start of the gateway would fail.
pub(super) fn overlaps(
    listen: &Checked<Vec<Listen>>,
    admin: &Checked<Option<ListenAddress>>,
    root: &Node,
    problems: &mut Problems,
) {
    let node = root.at("listen");
    let entries = listen.iter().flatten().zip(node.items()).map(|(entry, node)| (&entry.address, node.location));
    let admin = admin.iter().flatten().map(|address| (address, root.at("admin").location));
    let mut taken: Vec<(&ListenAddress, Location)> = Vec::new();
    for (address, location) in entries.chain(admin) {
        match taken.iter().find(|(other, _)| overlap(other, address)) {
            Some((other, first)) if root.has("admin") || location != root.location => {
                let message = format!("`{address}` is already used by `{other}` on line {}", first.line);
                let help = if address.tcp().is_some() { "use different ports" } else { "use different paths" };
                problems.add(location, message, help);
            }
            Some((other, first)) => {
                let message = format!("`{other}` is the default address of `admin`");
                problems.add(*first, message, "choose another port, or set `admin`");
            }
            None => taken.push((address, location)),
        }
    }
}

fn overlap(one: &ListenAddress, other: &ListenAddress) -> bool {
    let (ListenAddress::Tcp(one), ListenAddress::Tcp(other)) = (one, other) else { return one == other };
    let any = |address: &SocketAddr| address.ip().is_unspecified();
    let same = one.ip() == other.ip() || (one.is_ipv4() == other.is_ipv4() && (any(one) || any(other)));
    one.port() == other.port() && one.port() != 0 && same
}

pub(super) fn access_log(
    file: &File,
    root: &Node,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<AccessLog> {
    let text = match part(&file.access_log, root, "access_log", problems)?.map(String::as_str) {
        None | Some("off") => return Ok(AccessLog::Off),
        Some("stdout") => return Ok(AccessLog::Stdout),
        Some(text) => text,
    };
    // A bare word is probably a typo and not a file name.
    if text.contains(['/', '.']) {
        let path = files.path(text);
        if files.are_checked() {
            check_folder(&path, root.at("access_log"), problems)?;
        }
        return Ok(AccessLog::File(path));
    }
    let help = match nearest(text, ["off", "stdout"]) {
        Some(word) => format!("did you mean {}?", quote(word)),
        None => format!("for a file with this name write {}", quote(&format!("./{text}"))),
    };
    let message = format!("`access_log` must be `off`, `stdout` or a path, not {}", quote(text));
    Err(problems.add(root.at("access_log").location, message, help))
}

/// Reports an error if the folder of the access log does not exist. The gateway creates only the file.
fn check_folder(path: &Path, node: &Node, problems: &mut Problems) -> Checked<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() {
        return Ok(());
    }
    let folder = quote(&folder.to_string_lossy());
    let help = "create the folder; a relative path starts at the folder of the rule file";
    Err(problems.add(node.location, format!("the folder of the access log, {folder}, does not exist"), help))
}
