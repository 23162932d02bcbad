//! The `quota` of a route: the path where clients read their own limits.

use crate::check::Checked;
use crate::file;
use crate::problem::{Location, Problems, quote};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::route::{Matcher, PathPattern, Route};

/// The conditions of requests for a quota, with a name for messages, and the location of the path.
pub(crate) type QuotaMatcher = (Matcher, String, Location);

pub(super) fn quota_path(raw: &file::Route, problems: &mut Problems) -> Checked<Option<PathPattern>> {
    let Some(text) = raw.quota.optional(problems)? else { return Ok(None) };
    if let Ok(path) = PathPattern::parse(text)
        && path.is_literal()
        && !path.has_encoded_slash()
    {
        return Ok(Some(path));
    }
    let message = format!("{} is not a normalized path without patterns", quote(text));
    Err(raw.quota.report(message, "write a path such as `/.well-known/quota`", problems))
}

/// Reports a quota without a limit that clients see.
pub(super) fn check_limits(raw: &file::Route, limits: &[Limit], problems: &mut Problems) {
    if raw.quota.get().is_some() && !limits.iter().any(Limit::is_visible_in_quota) {
        let help = "add a live limit with `mode: PER_CLIENT` and a `client` without `path`, or remove `quota`";
        raw.quota.report("the route has no `PER_CLIENT` limit that `quota` can show", help, problems);
    }
}

/// Returns the conditions of requests for the quota of a route, to compare them with other routes.
pub(super) fn quota_matcher(route: &Route, raw: &file::Route) -> Option<QuotaMatcher> {
    Some((route.quota_matcher()?, format!("quota of {}", route.name), raw.quota.location))
}
