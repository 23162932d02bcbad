//! Finds the route of a request that the layer does not change.
//!
//! The inner service may interpret such a request differently than the rules. The layer rejects an ambiguous request
//! only if a limit applies to it.

use http::Uri;

use crate::facts::{BadRequest, Facts};
use crate::route::Route;
use crate::ruleset::{CompiledRoute, RuleSet};
use crate::sanitize::BadField;

type Found<'r> = (&'r Route, &'r CompiledRoute);

/// Returns the route of a request. Sets the path of `facts` to the interpretation that matched the route.
///
/// # Errors
/// A limit applies to the request, and its fields, its query or its path are ambiguous.
pub(super) fn find<'r, 'a>(
    rules: &'r RuleSet,
    uri: &'a Uri,
    facts: &mut Facts<'a>,
    fault: Option<BadField>,
) -> Result<Option<Found<'r>>, BadRequest> {
    let found = find_by_path(rules, uri, facts)?;
    let fault = fault.map(BadRequest::from).or_else(|| (!facts.has_valid_query()).then_some(BadRequest::BadQuery));
    match fault {
        Some(fault) if is_limited(found) => Err(fault),
        _ => Ok(found),
    }
}

/// Prefers an interpretation of the path that matches a route with limits.
///
/// # Errors
/// Two interpretations match different routes with limits, or a value that selects a route is ambiguous.
fn find_by_path<'r, 'a>(
    rules: &'r RuleSet,
    uri: &'a Uri,
    facts: &mut Facts<'a>,
) -> Result<Option<Found<'r>>, BadRequest> {
    let Some(readings) = rules.readings(uri.path()) else { return rules.find(facts) };
    let mut best = None;
    for path in readings.paths {
        facts.path = path;
        let found = rules.find(facts)?;
        match best {
            None => best = Some((found, facts.path.clone())),
            Some((before, _)) if is_limited(before) => {
                if is_limited(found) && route_of(found) != route_of(before) {
                    return Err(readings.fault.into());
                }
            }
            Some(_) if is_limited(found) => best = Some((found, facts.path.clone())),
            Some(_) => {}
        }
    }
    let Some((found, path)) = best else { return Ok(None) };
    facts.path = path;
    Ok(found)
}

fn is_limited(found: Option<Found<'_>>) -> bool {
    found.is_some_and(|(route, _)| !route.limits.is_empty())
}

fn route_of<'r>(found: Option<Found<'r>>) -> Option<&'r str> {
    found.map(|(route, _)| &*route.name)
}
