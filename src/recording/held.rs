//! The values of a recording by name, and the values that other rules read in addition.

use std::collections::BTreeMap;

use http::HeaderName;
use http::header::{COOKIE, HOST};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::inputs::{Inputs, is_read_with};
use crate::client::ClientSource;
use crate::route::ValueTest;

/// The most networks, and the most bytes of constants. Others count as missing: the mark is a single line.
const MAX_NETWORKS: usize = 4096;
const MAX_CONSTANTS: usize = 64 << 10;

/// The values that a recording has, if a request has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Held {
    fields: Vec<String>,
    cookies: Vec<String>,
    queries: Vec<String>,
    /// The header fields whose numbers stay readable.
    costs: Vec<String>,
    /// The values that stay readable, by their source.
    constants: BTreeMap<String, Vec<String>>,
    /// The networks that contain an address after its replacement if they did before.
    networks: Vec<IpNet>,
    /// The length of the prefix that identifies an IPv6 client.
    ipv6_prefix: u8,
}

impl Held {
    /// Adds the header fields that lines of requests can have.
    pub(crate) fn add_fields(&self, add: &mut impl FnMut(HeaderName)) {
        self.fields.iter().filter_map(|name| name.parse().ok()).for_each(&mut *add);
        if !self.cookies.is_empty() {
            add(COOKIE);
        }
    }

    /// Returns `true` if the recording has this header field, cookie or query parameter.
    pub(crate) fn has(&self, source: &ClientSource) -> bool {
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

    /// Returns `true` if addresses are in the network after their replacement if they were before.
    fn keeps(&self, network: &IpNet) -> bool {
        // All bits on the way to a network stay.
        network.prefix_len() == 0 || self.networks.iter().any(|held| network.contains(held))
    }
}

impl Inputs {
    /// Returns what a recording has by these rules and further sources of clients.
    pub(crate) fn held(&self, clients: &[ClientSource]) -> Held {
        let inputs = self.with_clients(clients);
        let networks = inputs.readable_networks.iter().take(MAX_NETWORKS).copied().collect();
        let mut held = Held { networks, ipv6_prefix: inputs.networks.ipv6_prefix, ..Held::default() };
        let mut bytes = 0;
        for input in &inputs.values {
            match &input.source {
                ClientSource::Header(name) => held.fields.push(name.to_string()),
                ClientSource::Cookie(name) => held.cookies.push(name.clone()),
                ClientSource::Query(name) => held.queries.push(name.clone()),
                _ => {}
            }
            held.costs.extend(input.costs.first().map(|cost| cost.name.to_string()));
            for constant in input.readable.iter().filter_map(|constant| str::from_utf8(constant).ok()) {
                bytes += constant.len();
                if bytes <= MAX_CONSTANTS {
                    held.constants.entry(input.name.clone()).or_default().push(constant.to_owned());
                }
            }
        }
        held
    }

    /// Returns what these rules read, and a recording by them lacks.
    pub(crate) fn unheld(&self) -> Vec<String> {
        // All networks are kept, also those that the mark does not list.
        self.lacking(&Held { networks: self.networks.networks.clone(), ..self.held(&[]) })
    }

    /// Returns what these rules read, and a recording with these values lacks. Contains no value of a condition, which
    /// could be a secret.
    pub(crate) fn lacking(&self, held: &Held) -> Vec<String> {
        let mut lacking: Vec<_> = self.unrecorded.iter().filter(|source| !held.has(source)).map(named).collect();
        for input in &self.values {
            if !held.has(&input.source) {
                lacking.push(named(&input.source));
                continue;
            }
            if input.costs.iter().any(|cost| !held.costs.iter().any(|name| cost.name == name.as_str())) {
                lacking.push(format!("the costs in `{}`", input.name));
            }
            let constants = input.conditions.iter().filter_map(|condition| match &condition.test {
                ValueTest::OneOf(constants) => Some(constants),
                ValueTest::Present | ValueTest::Absent => None,
            });
            let known = held.constants.get(&input.name);
            let is_known =
                |constant: &[u8]| known.is_some_and(|known| known.iter().any(|one| one.as_bytes() == constant));
            if constants.flatten().any(|constant| !is_known(constant)) {
                lacking.push(format!("values of conditions on `{}`", input.name));
            }
        }
        let networks = self.networks.networks.iter().filter(|network| !held.keeps(network)).count();
        if networks > 0 {
            let of = if networks == 1 { "a network".to_owned() } else { format!("{networks} networks") };
            lacking.push(format!("the addresses of {of}"));
        }
        if self.networks.ipv6_prefix > held.ipv6_prefix {
            lacking.push(format!("the bits of IPv6 addresses behind the first {}", held.ipv6_prefix));
        }
        lacking
    }
}

fn named(source: &ClientSource) -> String {
    format!("`{source}`")
}
