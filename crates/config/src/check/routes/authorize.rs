//! Routes that evaluate requests for proxies.

use crate::check::{Checked, present_keys, reject_keys};
use crate::file::{self, File};
use crate::problem::Problems;
use tidegate_rules::route::{Authorize, Matcher, PathPattern};

pub(crate) fn authorize(
    route: &file::Route,
    matcher: Option<&Matcher>,
    problems: &mut Problems,
) -> Checked<Option<Authorize>> {
    let Some(raw) = route.authorize.optional(problems)? else { return Ok(None) };
    let keys = present_keys!(route, upstream redirect respond on_limit limits quota concurrency);
    let help = "leave it out: the limits of the original request's route apply";
    _ = reject_keys(&keys, "with `authorize`", help, problems);
    let nginx = raw.nginx.or_default(problems)?;
    let paths = matcher.map(|matcher| matcher.paths.as_slice()).unwrap_or_default();
    let prefix = paths.iter().find_map(PathPattern::segments_before_rest);
    if prefix.is_some() && paths.len() > 1 {
        let message = "an `authorize` route with a path that ends in `/**` can have no other path";
        return Err(route.authorize.report(message, "write a route for each path", problems));
    }
    Ok(Some(Authorize { nginx, prefix }))
}

/// Reports an `authorize` route without trusted proxies, which would reject all requests.
pub(super) fn check_proxies(route: &file::Route, file: &File, problems: &mut Problems) {
    let has_proxies = file.clients.get().is_some_and(|clients| !clients.trusted_proxies.items().is_empty());
    if let Some(location) = route.authorize.key.filter(|_| !has_proxies) {
        let message = "`authorize` needs the networks of the proxies that may ask";
        problems.add(location, message, "add them to `trusted_proxies` in `clients`");
    }
}
