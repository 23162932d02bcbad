//! Conditions of routes and limits.

use ipnet::IpNet;

use super::value::{Map, Value};

/// The conditions of a route (`match`), of a limit (`when`), or of an exclusion (`not`). Without conditions, every request
/// matches.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Match {
    pub(crate) hosts: Vec<String>,
    /// Patterns of paths, such as `/a/**`.
    pub(crate) paths: Vec<String>,
    /// Whether letters are equal in both cases.
    pub(crate) ignores_case: bool,
    pub(crate) methods: Vec<String>,
    /// Header fields: each has a text, a list, or a map such as `{ prefix: a }`.
    pub(crate) headers: Map,
    pub(crate) query: Map,
    pub(crate) cookies: Map,
    /// Networks of clients.
    pub(crate) clients: Vec<IpNet>,
    pub(crate) not: Vec<Match>,
    /// Other keys, such as `scheme`, `listener` and `identity`.
    pub(crate) more: Map,
}

impl Match {
    /// Returns the map of the conditions.
    pub(super) fn map(&self) -> Map {
        let mut map = Map::default();
        map.set_list("host", self.hosts.iter().map(String::as_str));
        map.set_list("path", self.paths.iter().map(String::as_str));
        map.set_some("case", self.ignores_case.then_some("insensitive"));
        map.set_list("methods", self.methods.iter().map(String::as_str));
        for (key, values) in [("headers", &self.headers), ("query", &self.query), ("cookies", &self.cookies)] {
            map.set_some(key, (!values.is_empty()).then(|| values.clone()));
        }
        map.set_list("clients", self.clients.iter().map(ToString::to_string));
        map.set_list("not", self.not.iter().map(|not| Value::Map(not.map())));
        map.extend(self.more.clone());
        map
    }

    /// Returns the map of the conditions, or `None` without conditions.
    pub(super) fn map_if_any(&self) -> Option<Map> {
        let map = self.map();
        (!map.is_empty()).then_some(map)
    }
}
