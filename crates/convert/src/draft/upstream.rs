//! Upstreams of the rule file.

use super::value::{Map, Value};
use crate::report::Place;

/// A group of servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upstream {
    pub(crate) name: String,
    pub(crate) targets: Vec<Target>,
    /// Other keys, such as `balance`, `timeouts`, `retry` and `health`.
    pub(crate) more: Map,
    /// Whether the source names no server, so that the target is only an example.
    pub(crate) is_unknown: bool,
    pub(crate) place: Option<Place>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) weight: u32,
}

impl Upstream {
    /// Returns the map of the upstream, without its name.
    pub(super) fn map(&self) -> Map {
        let mut map = Map { comment: self.place.as_ref().map(Place::to_string), ..Map::default() };
        if self.is_unknown {
            map.comment = Some("the source names no servers: write them here".to_owned());
        }
        map.set("targets", self.targets.iter().map(Target::value).collect::<Vec<_>>());
        map.extend(self.more.clone());
        map
    }
}

impl Target {
    fn value(&self) -> Value {
        match self.weight {
            1 => self.url.as_str().into(),
            weight => Map::of([("url", self.url.as_str().into()), ("weight", weight.into())]).into(),
        }
    }
}
