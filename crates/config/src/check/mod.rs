//! Converts the structs of [`file`](crate::file) to the types of the program.
//!
//! Each part is checked even if others have errors. A part with an error becomes [`Reported`](crate::problem::Reported).

mod gateway;
mod identities;
mod limits;
pub(crate) mod matching;
pub(crate) mod names;
pub(crate) mod prices;
mod request_value;
mod requests;
mod routes;
mod rules;
pub(crate) mod service;
mod store;
mod tls;
mod upstreams;

use std::fmt::Display;
use std::sync::Arc;

use ipnet::IpNet;

use self::gateway::{access_log, admin, dns, listen, metrics};
use self::matching::spelling;
pub(crate) use self::prices::PriceFiles;
pub(crate) use self::routes::RouteInput;
use self::service::Addresses;
use crate::descriptors::DescriptorFiles;
use crate::file::File;
use crate::file::located::Located;
use crate::problem::secrets::Secrets;
use crate::problem::suggest::nearest;
use crate::problem::{Checked, Location, Problems, quote, quote_all};
use crate::{Config, Source};
use tidegate_rules::client::AddressRules;
use tidegate_rules::settings::store::{BucketNames, StoreSettings};

/// The parts of a rule file that are not in the file's struct.
pub(crate) struct Parts {
    /// The other routes.
    pub(crate) route_input: RouteInput,
    /// The files of `descriptors`.
    pub(crate) descriptors: DescriptorFiles,
    /// The files of `prices`.
    pub(crate) prices: PriceFiles,
}

/// Converts the file and its other parts.
pub(crate) fn config(
    file: &File,
    Parts { route_input, descriptors, prices }: Parts,
    source: Source<'_>,
    problems: &mut Problems,
) -> Checked<Config> {
    let files = source.files;
    let teams = route_input.sources.teams.iter().map(|team| (**team).clone()).collect();
    let listen = listen::listen(file, source, problems);
    let max_connections = listen::max_connections(file, problems);
    let admin = admin::address(file, problems);
    let admin_tokens = admin::tokens(file, files, problems);
    let show_clients = admin::show_clients(file, problems);
    let talkers = admin::talkers(file, problems);
    let dashboard = admin::dashboard(file, problems);
    let addresses_of_service = service::addresses(file, files, problems);
    listen::overlaps(&listen, addresses_of_service.iter().flat_map(Addresses::all), &admin, file, problems);
    let access_log = access_log::access_log(file, files, problems);
    let buckets = metrics::buckets(file, problems);
    let store = store::store(file, files, problems);
    let addresses = addresses(file, problems);
    if let Ok(addresses) = &addresses {
        listen::proxies(file, &listen, &addresses.trusted_proxies, problems);
    }
    let dns_servers = dns::servers(file, problems);
    let mut upstreams = upstreams::upstreams(file, files, problems);
    let rules = rules::rules(file, (route_input, &prices), source, (&store, addresses), &mut upstreams, problems);
    let included = file.include.optional(problems).map(|_| problems.file_names(1..descriptors.numbers().start));
    let names = store.as_ref().map_or_else(|_| BucketNames::default(), StoreSettings::bucket_names);
    let service = service::service(file, (&descriptors, files), addresses_of_service, &names, problems);
    let has_defaults = file.defaults.optional(problems).map(drop);
    let (rules, identities, loaded) = rules?;
    has_defaults?;
    Ok(Config {
        listen: listen?,
        max_connections: max_connections?,
        admin: admin?,
        admin_tokens: admin_tokens?,
        show_clients: show_clients?,
        talkers: talkers?,
        dashboard: dashboard?,
        access_log: access_log?,
        buckets: buckets?,
        store: store?,
        dns_servers: dns_servers?,
        upstreams: upstreams?,
        verifier: loaded.verifier,
        identities,
        included: included?,
        service: service?,
        teams,
        rules: Arc::new(rules),
        secrets: Secrets::default(),
        warnings: Vec::new(),
    })
}

fn addresses(file: &File, problems: &mut Problems) -> Checked<AddressRules> {
    let default = AddressRules::default();
    let Some(raw) = file.clients.optional(problems)? else { return Ok(default) };
    Ok(AddressRules {
        trusted_proxies: all(raw.trusted_proxies.items().iter().map(|raw| network(raw, problems)))?,
        ipv6_prefix: raw.ipv6_prefix.number(default.ipv6_prefix, problems)?,
    })
}

fn network(raw: &Located<String>, problems: &mut Problems) -> Checked<IpNet> {
    let text = raw.required(problems)?.as_str();
    let address = || text.parse().ok().map(|address: std::net::IpAddr| IpNet::from(address));
    let Some(network) = text.parse().ok().or_else(address) else {
        let message = format!("{} is not a network", quote(text));
        return Err(raw.report(message, "write `10.0.0.0/8`, `2001:db8::/32` or a single address", problems));
    };
    if network.trunc() != network {
        let (whole, one) = (network.trunc(), IpNet::from(network.addr()));
        let help = format!(
            "write {} for the network, or {} for the address",
            quote(&whole.to_string()),
            quote(&one.to_string())
        );
        return Err(raw.report(format!("{} has bits set after its prefix", quote(text)), help, problems));
    }
    if let Some(spelling) = spelling::of_address(text, &network) {
        spelling.warn(raw.location, problems);
    }
    match network {
        // The gateway converts mapped addresses of clients to IPv4 before it compares them.
        IpNet::V6(v6) if v6.addr().to_ipv4_mapped().is_some() => {
            let message = format!("{} is an IPv4 network in IPv6 form", quote(text));
            Err(raw.report(message, "write it as an IPv4 network", problems))
        }
        network => Ok(network),
    }
}

/// Returns the present keys among these keys, each with its location.
macro_rules! present_keys {
    ($map:expr, $($key:ident)+) => {
        crate::check::present(&[$((stringify!($key), $map.$key.key)),+])
    };
}

use present_keys;

/// Rejects keys that have no effect for this reason, such as "without `upstream`".
fn reject_keys(
    present: &[(&'static str, Location)],
    reason: &str,
    help: &'static str,
    problems: &mut Problems,
) -> Checked<()> {
    let mut checked = Ok(());
    for (key, location) in present {
        checked = Err(problems.add(*location, format!("{} has no effect {reason}", quote(key)), help));
    }
    checked
}

fn present(keys: &[(&'static str, Option<Location>)]) -> Vec<(&'static str, Location)> {
    keys.iter().filter_map(|(key, location)| Some((*key, (*location)?))).collect()
}

/// Collects values, after all have been converted, so that each error is reported.
pub(crate) fn all<T>(values: impl Iterator<Item = Checked<T>>) -> Checked<Vec<T>> {
    let mut all = Ok(Vec::new());
    for value in values {
        match (&mut all, value) {
            (Ok(values), Ok(value)) => values.push(value),
            (Ok(_), Err(reported)) => all = Err(reported),
            (Err(_), _) => {}
        }
    }
    all
}

/// Returns the help for an unknown name: a similar name, some of `names`, or how to define one.
pub(crate) fn help_for_unknown<'n>(
    name: &str,
    names: impl Iterator<Item = &'n str> + Clone,
    title: &str,
    definition: impl FnOnce() -> String,
) -> String {
    match (nearest(name, names.clone()), names.clone().next()) {
        (Some(near), _) => format!("did you mean {}?", quote(near)),
        (None, Some(_)) => format!("the {title} are {}", quote_all(names.take(10))),
        (None, None) => definition(),
    }
}

/// Converts a number to the type of the program.
fn convert<T: TryFrom<u64>>(value: u64, at: Location, problems: &mut Problems) -> Checked<T> {
    T::try_from(value).map_err(|_| problems.reported(at))
}

/// Reports the error of a parser at the location of the value.
fn parsed<T, E: Display>(
    result: Result<T, E>,
    help: &'static str,
    at: Location,
    problems: &mut Problems,
) -> Checked<T> {
    result.map_err(|error| problems.add(at, error.to_string(), help))
}
