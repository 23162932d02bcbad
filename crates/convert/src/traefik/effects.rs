//! The effects of middlewares on routes.

use ipnet::IpNet;

use super::limits::Plan;
use crate::draft::value::{Map, Value};
use crate::draft::{Match, Route};

/// An effect of a middleware.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    Limit {
        name: String,
        plan: Plan,
    },
    Concurrency(Map),
    /// The prefixes that are removed from paths.
    Strip(Vec<String>),
    /// The prefix that is put before paths.
    Add(String),
    RequestHeaders(Map),
    ResponseHeaders(Map),
    /// A key of a route, with its value.
    Key(&'static str, Value),
    /// A lost protection, for comments.
    Close(String),
    /// The networks of the only clients that are admitted.
    Allow(Vec<IpNet>),
    /// Requests over HTTP are redirected to this status.
    ToHttps {
        status: u64,
        port: Option<String>,
    },
}

// === impl Effect ===

impl Effect {
    /// Returns the key of the rule file, for findings.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::Limit { .. } => "`limits`",
            Self::Concurrency(_) => "`concurrency`",
            Self::Strip(_) => "`rewrite.strip_prefix`",
            Self::Add(_) => "`rewrite.add_prefix`",
            Self::RequestHeaders(_) => "`request_headers`",
            Self::ResponseHeaders(_) => "`response_headers`",
            Self::Key("require", _) => "`require.service`",
            Self::Key("max_body", _) => "`max_body`",
            Self::Key(..) => "`compression`",
            Self::Close(_) => "`respond`",
            Self::Allow(_) => "a route above with `match.not.clients`",
            Self::ToHttps { .. } => "a route above with `redirect`",
        }
    }

    /// Applies the effect to a route. Returns a route that must be above it.
    pub(super) fn apply(&self, route: &mut Route) -> Option<Route> {
        match self {
            Self::Limit { .. } => {}
            Self::Concurrency(bounds) if route.concurrency.is_empty() => route.concurrency = bounds.clone(),
            Self::Concurrency(_) => {}
            Self::Strip(prefixes) => {
                let prefix = prefix_of(prefixes, &route.matches.paths);
                prefix.into_iter().for_each(|prefix| route.set_rewrite("strip_prefix", prefix));
            }
            Self::Add(prefix) if prefix == "/" => {}
            Self::Add(prefix) => route.set_rewrite("add_prefix", prefix),
            Self::RequestHeaders(changes) => merge(route, "request_headers", changes),
            Self::ResponseHeaders(changes) => merge(route, "response_headers", changes),
            Self::Key(key, value) => route.more.set(key, value.clone()),
            Self::Close(setting) => route.close(setting.as_str()),
            Self::Allow(networks) => {
                let mut above = Route { name: format!("{}.denied", route.name), ..copy(route) };
                above.matches.not.push(Match { clients: networks.clone(), ..Match::default() });
                above.more.set("respond", Map::of([("status", 403_u64.into())]));
                return Some(above);
            }
            Self::ToHttps { status, port } => {
                let mut above = Route { name: format!("{}.redirect", route.name), ..copy(route) };
                above.matches.more.set("scheme", "http");
                let port = port.as_ref().map_or_else(String::new, |port| format!(":{port}"));
                let to = format!("https://{{host}}{port}{{uri}}");
                above.more.set("redirect", Map::of([("to", to.into()), ("status", (*status).into())]));
                return Some(above);
            }
        }
        None
    }
}

/// Returns a route with the conditions of another.
fn copy(route: &Route) -> Route {
    Route { matches: route.matches.clone(), place: route.place.clone(), ..Route::default() }
}

/// Returns the prefix that all paths begin with, or the first one.
fn prefix_of<'p>(prefixes: &'p [String], paths: &[String]) -> Option<&'p str> {
    let found = prefixes.iter().find(|prefix| !paths.is_empty() && paths.iter().all(|path| is_above(prefix, path)));
    found.or(prefixes.first()).map(String::as_str).filter(|prefix| *prefix != "/")
}

/// Returns `true` if all paths of a pattern begin with a prefix.
fn is_above(prefix: &str, path: &str) -> bool {
    let base = path.strip_suffix("/**").unwrap_or(path);
    prefix == "/" || base == prefix || base.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
}

/// Splits conditions by the prefixes that are removed: a route can remove only one.
pub(super) fn split(matches: &Match, prefixes: &[String]) -> Vec<Match> {
    let with = |paths: Vec<String>| Match { paths, ..matches.clone() };
    if prefixes.len() < 2 {
        return vec![matches.clone()];
    }
    let mut rest = if matches.paths.is_empty() { vec!["/**".to_owned()] } else { matches.paths.clone() };
    let mut parts = Vec::new();
    for prefix in prefixes {
        let below: Vec<_> = rest.iter().filter(|path| is_above(prefix, path)).cloned().collect();
        rest.retain(|path| !is_above(prefix, path));
        // A wider pattern needs a route for the paths with the prefix.
        let is_inside = rest
            .iter()
            .any(|path| path.strip_suffix("/**").is_some_and(|base| is_above(base, prefix) || base.is_empty()));
        let extra = (is_inside && prefix != "/").then(|| format!("{prefix}/**"));
        let paths: Vec<_> = below.into_iter().chain(extra).collect();
        if !paths.is_empty() {
            parts.push(with(paths));
        }
    }
    if !rest.is_empty() {
        parts.push(with(rest));
    }
    parts
}

/// Merges changes of header fields.
fn merge(route: &mut Route, key: &str, changes: &Map) {
    let Some(Value::Map(own)) = route.more.get_mut(key) else { return route.more.set(key, changes.clone()) };
    for (part, value) in &changes.entries {
        match (own.get_mut(part), value) {
            (Some(Value::Map(old)), Value::Map(new)) => old.extend(new.clone()),
            (Some(Value::List(old)), Value::List(new)) => {
                old.extend(new.iter().filter(|item| !old.contains(item)).cloned().collect::<Vec<_>>());
            }
            _ => own.set(part, value.clone()),
        }
    }
}
