//! The actions of Envoy, which make the entries of a descriptor from a request.

use std::net::IpAddr;

use ipnet::IpNet;

use super::values::{exact, header_conditions, is_wild, query_conditions, regex_of_wildcard, with_header};
use crate::draft::Match;
use crate::draft::value::{Map, Value};
use crate::tree::Node;

/// An entry of a descriptor.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// A value of the configuration, if the request meets the conditions.
    Fixed { key: String, value: String, when: Box<Match> },
    /// A value of the request. Without it, there is no descriptor, or an optional entry is left out.
    Client { key: String, source: Source, optional: bool },
}

/// The part of a request with a value.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Address,
    Header(String),
    Query(String),
}

/// Returns the entries that a list of actions makes. `cluster` is the name of the route's cluster.
///
/// # Errors
/// Fails with a reason if the rule file cannot have an action.
pub(super) fn parts(actions: &[Node], cluster: &str) -> Result<Vec<Part>, String> {
    actions.iter().map(|action| part(action, cluster)).collect()
}

fn part(action: &Node, cluster: &str) -> Result<Part, String> {
    let entry = action.entries().first().ok_or("an action is empty")?;
    let node = &entry.value;
    let text = |key: &str| node.get(key).and_then(Node::text).map(str::to_owned);
    let key = |default: &str| text("descriptor_key").unwrap_or_else(|| default.to_owned());
    let optional = node.get("skip_if_absent").and_then(Node::flag).unwrap_or(false);
    let needed = |key: &str| text(key).ok_or_else(|| format!("`{key}` of `{}` is missing", entry.key));
    let fixed = |key: String, value: String, when: Match| Part::Fixed { key, value, when: Box::new(when) };
    Ok(match entry.key.as_str() {
        "remote_address" => Part::Client { key: "remote_address".to_owned(), source: Source::Address, optional: false },
        "generic_key" => fixed(key("generic_key"), needed("descriptor_value")?, Match::default()),
        "destination_cluster" => fixed("destination_cluster".to_owned(), cluster.to_owned(), Match::default()),
        "request_headers" => header(&needed("header_name")?, needed("descriptor_key")?, optional)?,
        "query_parameters" => {
            let source = Source::Query(needed("query_parameter_name")?);
            Part::Client { key: needed("descriptor_key")?, source, optional }
        }
        "header_value_match" => {
            let when = header_conditions(node.get("headers").map_or(&[][..], Node::items))?;
            fixed(key("header_match"), needed("descriptor_value")?, expected(node, when))
        }
        "query_parameter_value_match" => {
            let when = query_conditions(node.get("query_parameters").map_or(&[][..], Node::items))?;
            fixed(key("query_match"), needed("descriptor_value")?, expected(node, when))
        }
        "masked_remote_address" => masked(node)?,
        other => return Err(format!("the action `{other}` has no equivalent")),
    })
}

/// Returns the conditions, or their exclusion with `expect_match: false`.
fn expected(node: &Node, when: Match) -> Match {
    match node.get("expect_match").and_then(Node::flag) {
        Some(false) => Match { not: vec![when], ..Match::default() },
        _ => when,
    }
}

fn header(name: &str, key: String, optional: bool) -> Result<Part, String> {
    match name.to_ascii_lowercase().as_str() {
        ":path" | ":method" | ":scheme" => Err(format!("values of `{name}` have no equivalent as a client")),
        ":authority" | "host" => Err("values of the host have no equivalent in `when`: use `client: host`".to_owned()),
        name => Ok(Part::Client { key, source: Source::Header(name.to_owned()), optional }),
    }
}

/// Reads an address with a mask. Only whole addresses are the same.
fn masked(node: &Node) -> Result<Part, String> {
    let length = |key: &str, default| node.get(key).map_or(Some(default), Node::number);
    match (length("v4_prefix_mask_len", 32), length("v6_prefix_mask_len", 128)) {
        (Some(32), Some(128)) => {
            Ok(Part::Client { key: "masked_remote_address".to_owned(), source: Source::Address, optional: false })
        }
        _ => Err("networks of addresses have no equivalent: `clients.ipv6_prefix` applies to all limits".to_owned()),
    }
}

// === impl Source ===

impl Source {
    /// Returns the source of the rule file.
    pub(super) fn client(&self) -> String {
        match self {
            Self::Address => "ip".to_owned(),
            Self::Header(name) => format!("header:{name}"),
            Self::Query(name) => format!("query:{name}"),
        }
    }

    /// Returns `true` if a request can lack the value.
    pub(super) fn can_be_absent(&self) -> bool {
        !matches!(self, Self::Address)
    }

    /// Returns the condition that the value is this one, or matches this wildcard. `None` if no value can.
    pub(super) fn has(&self, value: &str) -> Option<Match> {
        let condition = match is_wild(value) {
            true => Value::Map(Map::of([("regex", regex_of_wildcard(value).into())])),
            false => exact(value),
        };
        match self {
            Self::Address => {
                let network = value.parse::<IpNet>().ok();
                let network = network.or_else(|| value.parse::<IpAddr>().ok().map(IpNet::from))?;
                Some(Match { clients: vec![network], ..Match::default() })
            }
            Self::Header(name) => Some(with_header(name, condition)),
            Self::Query(name) => Some(Match { query: Map::of([(name, condition)]), ..Match::default() }),
        }
    }

    /// Returns the condition that the value is absent.
    pub(super) fn absent(&self) -> Match {
        match self {
            Self::Address => Match::default(),
            Self::Header(name) => with_header(name, "absent".into()),
            Self::Query(name) => Match { query: Map::of([(name, "absent".into())]), ..Match::default() },
        }
    }
}
