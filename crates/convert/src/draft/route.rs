//! Routes of the rule file.

use super::limit::Limit;
use super::matcher::Match;
use super::value::{Map, Value};
use crate::report::Place;

/// A route. The first route that matches a request applies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Route {
    pub(crate) name: String,
    pub(crate) matches: Match,
    /// The name of the upstream. `None` if `more` has `respond`, `redirect` or `authorize`.
    pub(crate) upstream: Option<String>,
    pub(crate) limits: Vec<LimitUse>,
    /// The bounds of requests in flight. Empty without bounds.
    pub(crate) concurrency: Map,
    /// The response to requests over a limit. Empty for the default.
    pub(crate) reject: Map,
    /// Other keys, such as `rewrite`, `request_headers`, `timeout` and `respond`.
    pub(crate) more: Map,
    pub(crate) place: Option<Place>,
}

/// A limit that a route uses.
#[derive(Clone, Debug)]
pub(crate) enum LimitUse {
    /// The name of a shared limit.
    Shared(String),
    /// A limit with its own buckets.
    Own(Box<Limit>),
}

impl Route {
    /// Returns the map of the route.
    pub(super) fn map(&self) -> Map {
        let mut map = Map::of([("name", self.name.as_str().into())]);
        map.comment = self.place.as_ref().map(Place::to_string);
        map.set("match", self.matches.map());
        map.set_some("upstream", self.upstream.as_deref());
        map.extend(self.more.clone());
        for (key, part) in [("reject", &self.reject), ("concurrency", &self.concurrency)] {
            map.set_some(key, (!part.is_empty()).then(|| part.clone()));
        }
        if !self.limits.is_empty() {
            map.set("limits", self.limits.iter().map(LimitUse::value).collect::<Vec<_>>());
        }
        map
    }
}

impl LimitUse {
    fn value(&self) -> Value {
        match self {
            Self::Shared(name) => Value::Text(name.clone()),
            Self::Own(limit) => {
                let mut map = Map::of([("name", limit.name.as_str().into())]);
                let keys = limit.map();
                map.comment.clone_from(&keys.comment);
                map.extend(keys);
                Value::Map(map)
            }
        }
    }
}
