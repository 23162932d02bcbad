//! `geo`: values by the network of the client.

use std::collections::BTreeMap;

use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};

use super::Unknown;
use super::branch::Branch;
use super::networks::without_inner;
use super::pattern::{Test, Values};
use super::source::Source;
use crate::nginx::syntax::Directive;

/// The most networks.
const MAX_NETWORKS: usize = 10_000;

/// Values by network. Of the networks that contain an address, the longest one counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Geo {
    default: String,
    networks: BTreeMap<IpNet, String>,
}

// === impl Geo ===

impl Geo {
    /// Parses the entries of a block.
    pub(super) fn parse(block: &[Directive]) -> Result<Self, Unknown> {
        let mut geo = Self::default();
        for entry in block {
            match (entry.name(), entry.arg(0)) {
                ("ranges", _) => {}
                ("default", Some(value)) => geo.default = value.to_owned(),
                ("delete", Some(network)) => {
                    networks(network)?.iter().for_each(|network| _ = geo.networks.remove(network));
                }
                ("proxy" | "proxy_recursive", _) => return Err("`proxy` of `geo` reads X-Forwarded-For".to_owned()),
                (network, Some(value)) => {
                    geo.networks.extend(networks(network)?.into_iter().map(|network| (network, value.to_owned())));
                }
                (other, None) => return Err(format!("`{other}` of `geo` is not supported")),
            }
            if geo.networks.len() > MAX_NETWORKS {
                return Err(format!("`geo` has more than {MAX_NETWORKS} networks"));
            }
        }
        Ok(geo)
    }

    /// Returns the number of networks.
    pub(super) fn len(&self) -> usize {
        self.networks.len()
    }

    /// Returns a branch for each value, which is still a text.
    pub(super) fn groups(&self) -> Vec<(Branch, String)> {
        let all: Vec<IpNet> = self.networks.keys().copied().collect();
        let mut groups: BTreeMap<&str, Vec<IpNet>> = BTreeMap::new();
        for (network, value) in self.networks.iter().filter(|(_, value)| **value != self.default) {
            groups.entry(value).or_default().extend(without_inner(*network, &all));
        }
        let test = |networks: Vec<IpNet>| Test { source: Source::Address, values: Values::Networks(networks) };
        let sets: Vec<_> = groups.into_iter().map(|(value, sets)| (value, IpNet::aggregate(&sets))).collect();
        let others: Vec<IpNet> = sets.iter().flat_map(|(_, networks)| networks.iter().copied()).collect();
        let unless = if others.is_empty() { Vec::new() } else { vec![test(IpNet::aggregate(&others))] };
        let default = (Branch { unless, ..Branch::default() }, self.default.clone());
        let with_value = |(value, networks): (&str, Vec<IpNet>)| {
            (Branch { when: vec![test(networks)], ..Branch::default() }, value.to_owned())
        };
        [default].into_iter().chain(sets.into_iter().map(with_value)).collect()
    }
}

/// Parses an address, a network or a range.
fn networks(text: &str) -> Result<Vec<IpNet>, Unknown> {
    let unknown = || format!("`{text}` of `geo` is not a network");
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (first.parse().map_err(|_| unknown())?, last.parse().map_err(|_| unknown())?),
        None => {
            let network = text.parse().or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from));
            return Ok(vec![network.map_err(|_| unknown())?.trunc()]);
        }
    };
    match (first, last) {
        (std::net::IpAddr::V4(first), std::net::IpAddr::V4(last)) if first <= last => {
            Ok(Ipv4Subnets::new(first, last, 0).map(IpNet::from).collect())
        }
        (std::net::IpAddr::V6(first), std::net::IpAddr::V6(last)) if first <= last => {
            Ok(Ipv6Subnets::new(first, last, 0).map(IpNet::from).collect())
        }
        _ => Err(unknown()),
    }
}
