//! The clients that an override concerns.

use std::fmt;

use ipnet::IpNet;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The clients that an override concerns. Contains no client value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// The addresses of a network.
    #[serde(rename = "address", serialize_with = "write_network", deserialize_with = "read_network")]
    Network(IpNet),
    /// The client with this keyed hash, as in the keys of the store.
    #[serde(rename = "hash", serialize_with = "write_hash", deserialize_with = "read_hash")]
    Hash(u128),
}

impl Target {
    /// Returns how specific the target is: a client is more specific than a network, and a longer prefix than a shorter
    /// one.
    pub(super) fn specificity(&self) -> u8 {
        match self {
            Self::Network(network) => network.prefix_len(),
            Self::Hash(_) => u8::MAX,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) if network.prefix_len() == network.max_prefix_len() => network.addr().fmt(f),
            Self::Network(network) => network.fmt(f),
            Self::Hash(hash) => write!(f, "{hash:032x}"),
        }
    }
}

/// Parses a network, or an address, which is the network of this one address. Returns `None` if the text is neither.
pub fn parse_network(text: &str) -> Option<IpNet> {
    let network = text.parse::<IpNet>().ok().or_else(|| Some(IpNet::from(text.parse::<std::net::IpAddr>().ok()?)))?;
    // IPv4 clients of a dual-stack socket have IPv4 addresses.
    let mapped = match network {
        IpNet::V6(network) if network.prefix_len() >= 96 => network.addr().to_ipv4_mapped(),
        _ => None,
    };
    let network = match mapped {
        Some(address) => IpNet::new(address.into(), network.prefix_len() - 96).ok()?,
        None => network,
    };
    Some(network.trunc())
}

/// Parses a hash as in the access log. Returns `None` if the text is not a hash.
pub fn parse_hash(text: &str) -> Option<u128> {
    let is_hash = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_hash)
}

fn write_network<S: Serializer>(network: &IpNet, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Target::Network(*network))
}

fn read_network<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpNet, D::Error> {
    parse_network(&String::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("not an address or a network"))
}

fn write_hash<S: Serializer>(hash: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{hash:032x}"))
}

fn read_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
    parse_hash(&String::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("not a hash"))
}
