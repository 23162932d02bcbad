//! Routes that no request can reach: a rule file must not have them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tidegate_rules::request::facts::Scheme;
use tidegate_rules::route::{Case, HostPattern, Matcher, PathPattern, lookup_key};

use crate::draft::Match;
use crate::draft::value::Value;

/// The key of a route by its host and first segment.
type Key = (Option<String>, Option<String>);

/// The routes so far.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    routes: Vec<Matcher>,
    by_key: HashMap<Key, Vec<usize>>,
}

// === impl Reach ===

impl Reach {
    /// Returns `true` if a request can reach a route after the routes so far.
    pub(super) fn can_reach(&self, matches: &Match) -> bool {
        let (matcher, _) = matcher(matches);
        matcher.pairs().any(|(host, path)| !self.covers(&matcher, host, path))
    }

    /// Adds a route. Returns `false` if earlier routes match all of its requests.
    pub(crate) fn add(&mut self, matches: &Match) -> bool {
        let (matcher, has_more) = matcher(matches);
        let pairs: Vec<_> = matcher.pairs().collect();
        if pairs.iter().all(|(host, path)| self.covers(&matcher, *host, *path)) {
            return false;
        }
        let keys: HashSet<Key> = pairs.iter().map(|(host, path)| owned(lookup_key(*host, *path))).collect();
        // A route with more conditions does not match all requests on its paths.
        if !has_more {
            let index = self.routes.len();
            keys.into_iter().for_each(|key| self.by_key.entry(key).or_default().push(index));
            self.routes.push(matcher);
        }
        true
    }

    fn covers(&self, matcher: &Matcher, host: Option<&HostPattern>, path: Option<&PathPattern>) -> bool {
        let (own_host, segment) = owned(lookup_key(host, path));
        let keys = [(own_host.clone(), segment.clone()), (None, segment), (own_host, None), (None, None)];
        let candidates = keys.iter().filter_map(|key| self.by_key.get(key)).flatten();
        candidates.map(|index| &self.routes[*index]).any(|earlier| earlier.covers_pair(host, path, matcher))
    }
}

fn owned((host, segment): (Option<&str>, Option<&str>)) -> Key {
    (host.map(str::to_owned), segment.map(str::to_owned))
}

/// Returns the matcher of conditions on hosts, paths, methods, schemes and listeners, and whether there are others.
fn matcher(matches: &Match) -> (Matcher, bool) {
    let case = if matches.ignores_case { Case::Insensitive } else { Case::Sensitive };
    let path = |path: &String| PathPattern::parse(path).ok().map(|path| path.with_case(case));
    let mut has_more = [&matches.headers, &matches.query, &matches.cookies].iter().any(|values| !values.is_empty());
    has_more |= !matches.clients.is_empty();
    let mut not = Vec::new();
    for excluded in &matches.not {
        let (excluded, excluded_more) = matcher(excluded);
        has_more |= excluded_more;
        not.push(excluded);
    }
    let text = |value: &Value| match value {
        Value::Text(text) => Some(Arc::from(text.as_str())),
        _ => None,
    };
    let listeners: Vec<Arc<str>> = match matches.more.get("listener") {
        Some(Value::List(names)) => names.iter().filter_map(text).collect(),
        name => name.and_then(text).into_iter().collect(),
    };
    let scheme = match matches.more.get("scheme").and_then(text).as_deref() {
        Some("http") => Some(Scheme::Http),
        Some("https") => Some(Scheme::Https),
        _ => None,
    };
    let matcher = Matcher {
        hosts: matches.hosts.iter().filter_map(|host| HostPattern::parse(host).ok()).collect(),
        paths: matches.paths.iter().filter_map(path).collect(),
        case,
        methods: matches.methods.iter().filter_map(|method| method.parse().ok()).collect(),
        scheme,
        listeners,
        not,
        ..Matcher::default()
    };
    (matcher, has_more)
}
