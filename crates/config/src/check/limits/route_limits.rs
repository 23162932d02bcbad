//! The limits of a route: its own limits, and the shared limits that it names.

use super::shared_limits::SharedLimits;
use super::{RawLimit, with_candidate};
use crate::check::matching::route_context::RouteContext;
use crate::check::names::duplicates;
use crate::check::{Checked, all};
use crate::file;
use crate::file::located::ValueOrMap;
use crate::problem::Problems;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::route::Route;
use tidegate_rules::rules::When;

/// Converts the limits of a route. Adds their conditions to `when`.
pub(crate) fn limits(
    route: &file::Route,
    context: RouteContext<'_>,
    shared: &mut SharedLimits<'_>,
    when: &mut Vec<When>,
    problems: &mut Problems,
) -> Checked<Vec<Limit>> {
    let raw = route.limits.optional(problems)?.map(Vec::as_slice).unwrap_or_default();
    let names = raw.iter().filter_map(|limit| match limit.get()? {
        ValueOrMap::Value(name) => Some((name.as_str(), limit.location)),
        ValueOrMap::Map(keys) => Some((keys.name.get()?.as_str(), keys.name.location)),
    });
    duplicates(names.clone(), "limit", problems);
    // If the name of the route has an error, the limits are only checked and not used.
    let group = context.names.tag(route.name.get().map(String::as_str).unwrap_or_default());
    let mut limits: Vec<Checked<Limit>> = Vec::with_capacity(raw.len());
    for located in raw {
        match located.required(problems) {
            Ok(ValueOrMap::Value(name)) => match shared.get(name, located, problems) {
                Ok(shared) => limits.extend(shared.into_iter().map(Ok)),
                Err(reported) => limits.push(Err(reported)),
            },
            Ok(ValueOrMap::Map(keys)) => {
                let name = own_name(keys, problems);
                let location = located.location;
                let own = RawLimit { keys, location, name, group: &group, shared: false, context };
                limits.extend(with_candidate(own, names.clone().map(|(name, _)| name), when, problems));
            }
            Err(reported) => limits.push(Err(reported)),
        }
    }
    if limits.len() > Route::MAX_LIMITS {
        let (max, count) = (Route::MAX_LIMITS, limits.len());
        let message = format!("a route has at most {max} limits, candidates included, not {count}");
        return Err(route.limits.report(message, "remove limits, or distribute them over several routes", problems));
    }
    all(limits.into_iter())
}

fn own_name<'f>(keys: &'f file::Limit, problems: &mut Problems) -> Checked<&'f str> {
    if !keys.name.is_present() {
        let message = "a limit needs `name`".to_owned();
        return Err(problems.add_missing(keys.name.location, "name", message, "for example `name: per-client`"));
    }
    keys.name.required(problems).map(String::as_str)
}
