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
    /// Why a route with an upstream responds with 403 instead: the protection of the source that is lost.
    pub(crate) closed: Option<String>,
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

/// The keys that only a route with an upstream has.
const OF_UPSTREAMS: [&str; 5] = ["rewrite", "request_headers", "timeout", "compression", "upgrades"];

impl Route {
    /// Closes the route, because a setting that protects it is lost. The first setting counts.
    pub(crate) fn close(&mut self, setting: impl Into<String>) {
        self.closed.get_or_insert(setting.into());
    }

    /// Sets a key of `rewrite`.
    pub(crate) fn set_rewrite(&mut self, key: &str, value: &str) {
        match self.more.get_mut("rewrite") {
            Some(Value::Map(rewrite)) => rewrite.set(key, value),
            _ => self.more.set("rewrite", Map::of([(key, value.into())])),
        }
    }

    /// Returns `true` if the route responds with this status.
    pub(crate) fn responds_with(&self, status: u64) -> bool {
        matches!(self.more.get("respond"), Some(Value::Map(respond)) if respond.get("status") == Some(&status.into()))
    }

    /// Returns the keys of the action: the upstream, or a response with 403 and the upstream as a comment.
    fn action(&self) -> Map {
        let (closed, Some(upstream)) = (&self.closed, &self.upstream) else { return self.more.clone() };
        let mut action = Map::of([("upstream", upstream.as_str().into())]);
        action.extend(self.more.clone());
        let Some(setting) = closed else { return action };
        for (key, value) in &mut action.entries {
            if key == "upstream" || OF_UPSTREAMS.contains(&key.as_str()) {
                let open = std::mem::replace(value, Value::Flag(false));
                *value = Value::Disabled(Box::new(open));
            }
        }
        let mut respond = Map::of([("status", Value::Number(403))]);
        respond.comment = Some(format!("closed: {setting} is lost. To open, write `require` instead of this line"));
        let mut map = Map::of([("respond", respond.into())]);
        map.extend(action);
        map
    }

    /// Returns the map of the route.
    pub(super) fn map(&self) -> Map {
        let mut map = Map::of([("name", self.name.as_str().into())]);
        map.comment = self.place.as_ref().map(Place::to_string);
        map.set("match", self.matches.map());
        map.extend(self.action());
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
