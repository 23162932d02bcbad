//! Finds the route of a request that the layer does not change.
//!
//! The inner service may interpret such a request differently than the rules. The layer rejects an ambiguous request
//! only if a limit applies to it.

use super::find;
use crate::request::facts::{BadRequest, Facts};
use crate::request::path;
use crate::request::sanitize::BadField;
use crate::route::Route;
use crate::rules::Rules;

type Found<'r> = Option<(usize, &'r Route)>;

/// Returns the route of a request whose path is not normalized, with its position. Sets the path of `facts` to the
/// interpretation that matched the route.
///
/// # Errors
/// A limit applies to the request, and its fields, its query or its path are ambiguous.
pub(super) fn find_unchanged<'r>(
    rules: &'r Rules,
    facts: &mut Facts<'_>,
    fault: Option<BadField>,
) -> Result<Found<'r>, BadRequest> {
    let found = find_by_path(rules, facts)?;
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
fn find_by_path<'r>(rules: &'r Rules, facts: &mut Facts<'_>) -> Result<Found<'r>, BadRequest> {
    let readings = facts.path.as_sent().and_then(|path| path::readings(path, rules.requests.encoded_slash));
    let Some(readings) = readings else { return find(rules, facts) };
    let mut best = None;
    for path in readings.paths {
        facts.path = path;
        let found = find(rules, facts)?;
        match best {
            None => best = Some((found, facts.path.clone())),
            Some((before, _)) if is_limited(before) => {
                if is_limited(found) && position(found) != position(before) {
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

fn is_limited(found: Found<'_>) -> bool {
    found.is_some_and(|(_, route)| !route.limits.is_empty())
}

fn position(found: Found<'_>) -> Option<usize> {
    found.map(|(position, _)| position)
}
