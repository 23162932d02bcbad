//! The values of a recording by name, and the values that other rules read in addition.

use std::collections::{BTreeMap, HashSet};
use std::ops::Not;

use http::HeaderName;
use http::header::{COOKIE, HOST};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::address::Networks;
use super::inputs::{Inputs, is_read_with};
use tidegate_rules::client::ClientSource;
use tidegate_rules::request::identity::IdentityValue;
use tidegate_rules::route::ValueTest;

/// The most networks, and the most bytes of names and of constants, in a mark: it is a single line.
const MAX_NETWORKS: usize = 4096;
const MAX_NAMES: usize = 16 << 10;
const MAX_CONSTANTS: usize = 64 << 10;

/// The bytes around a text in a list.
const QUOTES: usize = 3;

/// The values that a recording has, if a request has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Held {
    fields: Vec<String>,
    cookies: Vec<String>,
    queries: Vec<String>,
    /// The values of verified credentials, such as `key:id`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    identity: Vec<String>,
    /// Whether there are more of these names.
    #[serde(skip_serializing_if = "Not::not")]
    pub(super) more_names: bool,
    /// The header fields, and the values of verified credentials, whose numbers stay readable.
    costs: Vec<String>,
    /// The values that stay readable, by their source.
    constants: BTreeMap<String, Vec<String>>,
    /// Whether there are more of these values.
    #[serde(skip_serializing_if = "Not::not")]
    pub(super) more_constants: bool,
    /// The networks that contain an address after its replacement if they did before.
    networks: Vec<IpNet>,
    /// Whether there are more of these networks: too many, or from files.
    #[serde(skip_serializing_if = "Not::not")]
    pub(super) more_networks: bool,
    /// The length of the prefix that identifies an IPv6 client.
    ipv6_prefix: u8,
}

/// The values that rules read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// The values that the recording lacks.
    pub certain: Vec<String>,
    /// The values that the recording may lack: its mark does not list all values that it has.
    pub possible: Vec<String>,
}

impl Lacking {
    fn add(&mut self, name: String, is_certain: bool) {
        let names = if is_certain { &mut self.certain } else { &mut self.possible };
        names.push(name);
    }
}

impl Held {
    /// Adds the header fields that lines of requests can have.
    pub fn add_fields(&self, add: &mut impl FnMut(HeaderName)) {
        self.fields.iter().filter_map(|name| name.parse().ok()).for_each(&mut *add);
        if !self.cookies.is_empty() {
            add(COOKIE);
        }
    }

    /// Iterates over the values of verified credentials that lines of requests can have.
    pub fn identity(&self) -> impl Iterator<Item = IdentityValue> {
        self.identity.iter().filter_map(|name| IdentityValue::parse(name))
    }

    /// Returns `true` if the recording has this header field, cookie or query parameter.
    pub fn has(&self, source: &ClientSource) -> bool {
        match source {
            ClientSource::Header(name) => *name == HOST || self.fields.iter().any(|field| name == field.as_str()),
            ClientSource::Cookie(_) => {
                self.cookies.iter().any(|name| is_read_with(&ClientSource::Cookie(name.clone()), source))
            }
            ClientSource::Query(_) => {
                self.queries.iter().any(|name| is_read_with(&ClientSource::Query(name.clone()), source))
            }
            _ => false,
        }
    }
}

impl Inputs {
    /// Returns what a recording has by these rules and further sources of clients.
    pub fn held(&self, clients: &[ClientSource]) -> Held {
        let inputs = self.with_clients(clients);
        let mut held = inputs.all_held(MAX_NAMES, MAX_CONSTANTS);
        held.networks = inputs.readable_networks.iter().take(MAX_NETWORKS).copied().collect();
        held.more_networks = held.networks.len() < inputs.networks.networks.len();
        held
    }

    /// Returns everything that a recording has, except names and constants above these numbers of bytes.
    fn all_held(&self, max_names: usize, max_constants: usize) -> Held {
        let Networks { networks, ipv6_prefix } = self.networks.clone();
        let mut held = Held { networks, ipv6_prefix, ..Held::default() };
        let (mut names, mut constants) = (0, 0);
        for input in &self.values {
            names += input.name.len() + QUOTES;
            if names > max_names {
                held.more_names = true;
                continue;
            }
            match &input.source {
                ClientSource::Header(name) => held.fields.push(name.to_string()),
                ClientSource::Cookie(name) => held.cookies.push(name.clone()),
                ClientSource::Query(name) => held.queries.push(name.clone()),
                _ => {}
            }
            held.costs.extend(input.costs.first().map(|cost| cost.name.to_string()));
            for constant in input.readable.iter().filter_map(|constant| str::from_utf8(constant).ok()) {
                constants += constant.len() + QUOTES;
                if constants <= max_constants {
                    held.constants.entry(input.name.clone()).or_default().push(constant.to_owned());
                } else {
                    held.more_constants = true;
                }
            }
        }
        for input in self.identity.iter() {
            names += input.name.len() + QUOTES;
            if names > max_names {
                held.more_names = true;
                continue;
            }
            held.identity.push(input.name.clone());
            held.costs.extend(input.is_rate.then(|| input.name.clone()));
            for constant in &input.readable {
                constants += constant.len() + QUOTES;
                if constants <= max_constants {
                    held.constants.entry(input.name.clone()).or_default().push(constant.to_string());
                } else {
                    held.more_constants = true;
                }
            }
        }
        held
    }

    /// Returns what these rules read, and a recording by them lacks.
    pub fn unheld(&self) -> Vec<String> {
        bounded(self.lacking(&self.all_held(usize::MAX, usize::MAX)).certain)
    }

    /// Returns what these rules read, and a recording with these values lacks. Contains no value of a condition, which
    /// could be a secret.
    pub fn lacking(&self, held: &Held) -> Lacking {
        let mut lacking = Lacking::default();
        let unrecorded = self.unrecorded.iter().filter(|source| !held.has(source));
        unrecorded.for_each(|source| lacking.add(named(source), !held.more_names));
        for input in &self.values {
            if !held.has(&input.source) {
                lacking.add(named(&input.source), !held.more_names);
                continue;
            }
            if input.costs.iter().any(|cost| !held.costs.iter().any(|name| cost.name == name.as_str())) {
                lacking.add(format!("the costs in `{}`", input.name), true);
            }
            let constants = input.conditions.iter().filter_map(|condition| match &condition.test {
                ValueTest::OneOf(constants) => Some(constants),
                ValueTest::Present | ValueTest::Absent => None,
            });
            let held_constants = held.constants.get(&input.name).into_iter().flatten();
            let held_constants: HashSet<_> = held_constants.map(String::as_bytes).collect();
            if constants.flatten().any(|constant| !held_constants.contains(&*constant.to_bytes())) {
                lacking.add(format!("values of conditions on `{}`", input.name), !held.more_constants);
            }
        }
        self.add_lacking_identity(held, &mut lacking);
        let mut kept = held.networks.clone();
        kept.sort_unstable();
        // All bits on the way to a network stay, so networks around it are kept, too: the order has them in front.
        let is_kept = |network: &IpNet| {
            let first = kept.get(kept.partition_point(|kept| kept < network));
            network.prefix_len() == 0 || first.is_some_and(|first| network.contains(first))
        };
        let networks = self.networks.networks.iter().filter(|network| !is_kept(network)).count();
        if networks > 0 {
            let networks = if networks == 1 { "a network".to_owned() } else { format!("{networks} networks") };
            lacking.add(format!("the addresses of {networks}"), !held.more_networks);
        }
        if self.networks.ipv6_prefix > held.ipv6_prefix {
            lacking.add(format!("the bits of IPv6 addresses behind the first {}", held.ipv6_prefix), true);
        }
        lacking
    }
}

impl Inputs {
    /// Adds the values of verified credentials that a recording lacks.
    fn add_lacking_identity(&self, held: &Held, lacking: &mut Lacking) {
        for input in self.identity.iter().filter(|input| input.is_read) {
            let name = &input.name;
            if !held.identity.contains(name) {
                lacking.add(format!("`{name}`"), !held.more_names);
                continue;
            }
            if input.is_rate && !held.costs.contains(name) {
                lacking.add(format!("the rates in `{name}`"), true);
            }
            let constants: HashSet<_> = held.constants.get(name).into_iter().flatten().map(String::as_str).collect();
            if input.constants().any(|constant| !constants.contains(constant)) {
                lacking.add(format!("values of conditions on `{name}`"), !held.more_constants);
            }
        }
    }
}

/// Shortens a list of names to the length that a mark can have.
pub(super) fn bounded(mut names: Vec<String>) -> Vec<String> {
    let mut bytes = 0;
    let is_short = |name: &&String| {
        bytes += name.len() + QUOTES;
        bytes <= MAX_NAMES
    };
    let count = names.iter().take_while(is_short).count();
    if count < names.len() {
        names.truncate(count);
        names.push("other values".to_owned());
    }
    names
}

fn named(source: &ClientSource) -> String {
    format!("`{source}`")
}
