//! Converts the structs of [`file`](super::file) to the types of the program.
//!
//! Each part is checked even if others have errors. A part with an error becomes [`Reported`].

mod candidate;
mod cluster;
mod cost;
mod fields;
mod limits;
mod listen;
mod listen_tls;
mod matcher;
mod names;
mod quota;
mod reach;
mod redisson;
mod requests;
mod routes;
mod sentinel;
mod spread;
mod store;
mod tls;
mod upgrades;
mod upstream_tls;
mod upstreams;
mod windows;

use std::fmt::Display;

use ipnet::IpNet;

use super::file::File;
use super::node::Node;
use super::problem::{Problems, Reported, quote};
use super::units::Millis;
use super::{Config, Source, shape, tree};
use crate::client::AddressRules;
use crate::rules::Rules;

/// A checked value, or the proof that an error was reported.
type Checked<T> = Result<T, Reported>;

/// Parses, validates and converts a rule file.
pub(super) fn check(text: &str, source: Source<'_>) -> Result<Config, Problems> {
    let mut problems = Problems::default();
    match run_steps(text, source, &mut problems) {
        Ok(config) if problems.is_empty() => Ok(Config { warnings: problems.take_warnings(), ..config }),
        Ok(_) | Err(Reported { .. }) => Err(problems),
    }
}

fn run_steps(text: &str, source: Source<'_>, problems: &mut Problems) -> Checked<Config> {
    let root = tree::read(text, problems)?;
    let valid = shape::validate(&root, &super::file::FILE, problems)?;
    // Validated values fit the fields, so an error here is a bug.
    let file: File = serde_yaml::from_value(valid).map_err(|_| problems.reported(root.location))?;
    config(&file, &root, source, problems)
}

fn config(file: &File, root: &Node, source: Source<'_>, problems: &mut Problems) -> Checked<Config> {
    let Source { purpose, files } = source;
    let listen = listen::listen(file, root, source, problems);
    let max_connections = listen::max_connections(file, root, problems);
    let admin = listen::admin(file, root, problems);
    listen::overlaps(&listen, &admin, root, problems);
    let access_log = listen::access_log(file, root, files, problems);
    let store = store::store(file, root, files, problems);
    let addresses = addresses(file, root, problems);
    if let Ok(addresses) = &addresses {
        listen::proxies(&listen, &addresses.trusted_proxies, root, problems);
    }
    let requests = requests::requests(file, root, problems);
    let upstreams = upstreams::upstreams(file, root, files, problems);
    let (prefix, is_cluster) = (store::prefix(&store), store::is_cluster(&store));
    let context = routes::RouteContext { purpose, prefix, is_cluster, requests: requests.ok() };
    let routes = routes::routes(file, root, context, problems);
    redisson::check(file, root, &store, problems);
    let fields = fields::fields(file, root, problems);
    if let (Ok(fields), Ok(addresses)) = (&fields, &addresses) {
        let has_trusted_proxies = !addresses.trusted_proxies.is_empty();
        fields::FieldCheck { fields, has_trusted_proxies, purpose }.check(file, root, problems);
    }
    let listen = listen?;
    let rules = Rules { requests: requests?, addresses: addresses?, fields: fields?, routes: routes? };
    Ok(Config {
        listen,
        max_connections: max_connections?,
        admin: admin?,
        access_log: access_log?,
        store: store?,
        upstreams: upstreams?,
        rules,
        warnings: Vec::new(),
    })
}

fn addresses(file: &File, root: &Node, problems: &mut Problems) -> Checked<AddressRules> {
    let (clients, node) = (part(&file.clients, root, "clients", problems)?, root.at("clients"));
    let default = AddressRules::default();
    let written = clients.and_then(|clients| clients.trusted_proxies.as_deref()).unwrap_or_default();
    let pairs = written.iter().zip(node.at("trusted_proxies").items());
    let networks: Vec<_> = pairs.map(|(text, node)| network(needed(text, node, problems)?, node, problems)).collect();
    let ipv6_prefix = clients.and_then(|clients| clients.ipv6_prefix);
    Ok(AddressRules {
        trusted_proxies: networks.into_iter().collect::<Checked<_>>()?,
        ipv6_prefix: number(ipv6_prefix, default.ipv6_prefix, node.at("ipv6_prefix"), problems)?,
    })
}

fn network(text: &str, node: &Node, problems: &mut Problems) -> Checked<IpNet> {
    let address = || text.parse().ok().map(|address: std::net::IpAddr| IpNet::from(address));
    let Some(network) = text.parse().ok().or_else(address) else {
        let message = format!("{} is not a network", quote(text));
        return Err(problems.add(node.location, message, "write `10.0.0.0/8`, `2001:db8::/32` or a single address"));
    };
    if network.trunc() != network {
        let (whole, one) = (network.trunc(), IpNet::from(network.addr()));
        let help = format!(
            "write {} for the network, or {} for the address",
            quote(&whole.to_string()),
            quote(&one.to_string())
        );
        return Err(problems.add(node.location, format!("{} has bits set after its prefix", quote(text)), help));
    }
    match network {
        // The gateway converts mapped addresses of clients to IPv4 before it compares them.
        IpNet::V6(v6) if v6.addr().to_ipv4_mapped().is_some() => {
            let message = format!("{} is an IPv4 network in IPv6 form", quote(text));
            Err(problems.add(node.location, message, "write it as an IPv4 network"))
        }
        network => Ok(network),
    }
}

/// Returns a required value, whose absence has been reported.
fn needed<'f, T>(value: &'f Option<T>, node: &Node, problems: &mut Problems) -> Checked<&'f T> {
    value.as_ref().ok_or_else(|| problems.reported(node.location))
}

/// Returns an optional value, or [`Reported`] if the key is present with an invalid value.
fn part<'f, T>(value: &'f Option<T>, of: &Node, key: &str, problems: &mut Problems) -> Checked<Option<&'f T>> {
    match value {
        None if of.has(key) => Err(problems.reported(of.at(key).location)),
        value => Ok(value.as_ref()),
    }
}

/// Converts a number to the type of the program.
fn number<T: TryFrom<u64>>(value: Option<u64>, default: T, node: &Node, problems: &mut Problems) -> Checked<T> {
    match value {
        Some(value) => T::try_from(value).map_err(|_| problems.reported(node.location)),
        None => Ok(default),
    }
}

/// Converts an optional duration.
fn duration(value: Option<Millis>, default: std::time::Duration) -> std::time::Duration {
    value.map_or(default, Millis::duration)
}

/// Reports the error of a parser at the location of the value.
fn parsed<T, E: Display>(result: Result<T, E>, help: &str, node: &Node, problems: &mut Problems) -> Checked<T> {
    result.map_err(|error| problems.add(node.location, error.to_string(), help))
}
