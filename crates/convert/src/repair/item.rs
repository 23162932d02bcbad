//! The items of a rule file: which one has a line of the text, and how to correct it.

use super::check::{Fault, faults};
use crate::draft::value::Map;
use crate::draft::{Draft, Limit, LimitUse, Listen, Route, Upstream};
use crate::report::Place;

/// The item that has a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// A key of the rule file without items.
    Key(String),
    Listener(usize),
    Upstream(usize),
    Limit(usize),
    Route(usize),
    Unknown,
}

/// The items of all lines of a text that `draft` has written.
pub(super) struct Owners(Vec<Owner>);

/// A part of an item that was left out: its place, its name, and the error.
pub(super) type LeftOut = (Option<Place>, String, Fault);

// === impl Owners ===

impl Owners {
    /// Reads the text: each key of the rule file starts in the first column, and each item two columns further.
    pub(super) fn of(text: &str) -> Self {
        let (mut owners, mut key, mut items) = (Vec::new(), "", 0_usize);
        for line in text.lines() {
            let rest = line.trim_start_matches(' ');
            match line.len() - rest.len() {
                0 => (key, items) = (line.split(':').next().unwrap_or_default(), 0),
                2 => items += 1,
                _ => {}
            }
            owners.push(Owner::of(key, items));
        }
        Self(owners)
    }

    /// Returns the item of a line, from 1.
    pub(super) fn at(&self, line: usize) -> Owner {
        line.checked_sub(1).and_then(|index| self.0.get(index)).cloned().unwrap_or(Owner::Unknown)
    }
}

// === impl Owner ===

impl Owner {
    fn of(key: &str, items: usize) -> Self {
        let number = items.saturating_sub(1);
        match key {
            "listen" => Self::Listener(number),
            "upstreams" => Self::Upstream(number),
            "limits" => Self::Limit(number),
            "routes" => Self::Route(number),
            _ => Self::Key(key.to_owned()),
        }
    }
}

/// Returns the route without the parts that have errors, and these parts. `None` if that does not suffice: the error is in
/// the conditions of the route.
pub(super) fn corrected(draft: &Draft, route: Route, checks: &mut usize, max: usize) -> Option<(Route, Vec<LeftOut>)> {
    let (mut route, mut left_out) = (route, Vec::new());
    let mut remaining = faults(alone(draft, &route));
    for part in parts(&route) {
        let Some(fault) = remaining.first().cloned() else { break };
        *checks += 1;
        if *checks > max {
            return None;
        }
        let without = part.removed_from(&route);
        let after = faults(alone(draft, &without));
        if after.len() < remaining.len() {
            left_out.push((part.place(&route), part.name(), fault));
            (route, remaining) = (without, after);
        }
    }
    (remaining.is_empty() && !left_out.is_empty()).then_some((route, left_out))
}

/// Returns the keys without those that have errors, and the names of those. `None` if no key has an error, or others remain.
pub(super) fn without_faulty_keys(keys: &Map, faults: impl Fn(&Map) -> usize) -> Option<(Map, Vec<String>)> {
    let (mut kept, mut removed, mut count) = (keys.clone(), Vec::new(), faults(keys));
    for (key, _) in &keys.entries {
        let mut without = kept.clone();
        without.entries.retain(|(name, _)| name != key);
        let after = faults(&without);
        if after < count {
            (kept, count) = (without, after);
            removed.push(key.clone());
        }
    }
    (count == 0 && !removed.is_empty()).then_some((kept, removed))
}

/// Returns the number of errors of a rule file with this upstream alone.
pub(super) fn faults_of_upstream(upstream: Upstream) -> usize {
    let route = Route { name: "all".to_owned(), upstream: Some(upstream.name.clone()), ..Route::default() };
    faults(Draft { upstreams: vec![upstream], routes: vec![route], ..Draft::default() }.text("")).len()
}

/// Returns the number of errors of a rule file with this listener alone.
pub(super) fn faults_of_listener(listen: Listen) -> usize {
    faults(Draft { listen: vec![listen], ..Draft::default() }.text("")).len()
}

/// Returns the rule file with this route alone.
fn alone(draft: &Draft, route: &Route) -> String {
    let uses =
        |limit: &&Limit| route.limits.iter().any(|used| matches!(used, LimitUse::Shared(name) if *name == limit.name));
    let draft = Draft {
        listen: draft.listen.clone(),
        clients: draft.clients.clone(),
        identities: draft.identities.clone(),
        upstreams: draft.upstreams.iter().filter(|it| Some(&it.name) == route.upstream.as_ref()).cloned().collect(),
        tiers: draft.tiers.clone(),
        limits: draft.limits.iter().filter(uses).cloned().collect(),
        routes: vec![route.clone()],
        more: draft.more.clone(),
        ..Draft::default()
    };
    draft.text("")
}

/// A part of a route without which the route has a meaning.
enum Part {
    /// The limit with this name.
    Limit(String, Option<Place>),
    Concurrency,
    Reject,
    /// A key such as `rewrite`.
    Key(String),
}

fn parts(route: &Route) -> Vec<Part> {
    let limit = |used: &LimitUse| match used {
        LimitUse::Shared(name) => Part::Limit(name.clone(), None),
        LimitUse::Own(limit) => Part::Limit(limit.name.clone(), limit.place.clone()),
    };
    let keys = route.more.entries.iter().map(|(key, _)| Part::Key(key.clone()));
    let is_action =
        |key: &Part| matches!(key, Part::Key(key) if ["respond", "redirect", "authorize"].contains(&key.as_str()));
    let keys = keys.filter(|key| !is_action(key));
    route.limits.iter().map(limit).chain(keys).chain([Part::Concurrency, Part::Reject]).collect()
}

// === impl Part ===

impl Part {
    fn name(&self) -> String {
        match self {
            Self::Limit(name, _) => format!("limit {name}"),
            Self::Concurrency => "concurrency".to_owned(),
            Self::Reject => "reject".to_owned(),
            Self::Key(key) => key.clone(),
        }
    }

    fn place(&self, route: &Route) -> Option<Place> {
        match self {
            Self::Limit(_, Some(place)) => Some(place.clone()),
            _ => route.place.clone(),
        }
    }

    fn removed_from(&self, route: &Route) -> Route {
        let mut route = route.clone();
        match self {
            Self::Limit(name, _) => route.limits.retain(|used| match used {
                LimitUse::Shared(other) => other != name,
                LimitUse::Own(limit) => limit.name != *name,
            }),
            Self::Concurrency => route.concurrency = Map::default(),
            Self::Reject => route.reject = Map::default(),
            Self::Key(key) => {
                route.more.entries.retain(|(name, _)| name != key);
                if key == "require" {
                    route.close("`require`");
                }
            }
        }
        route
    }
}
