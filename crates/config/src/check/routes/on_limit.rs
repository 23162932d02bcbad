//! `on_limit` of a route: forwards requests over a limit.

use super::action::upstream;
use crate::check::matching::route_context::RouteContext;
use crate::check::names::{Message, changed_field};
use crate::check::{Checked, present_keys, reject_keys};
use crate::problem::{Problems, quote};
use crate::{Purpose, file};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::route::OnLimit;

/// Converts `on_limit` of a route with these limits.
pub(crate) fn on_limit(
    route: &file::Route,
    limits: Option<&[Limit]>,
    context: RouteContext<'_>,
    problems: &mut Problems,
) -> Checked<Option<OnLimit>> {
    let Some(raw) = route.on_limit.optional(problems)? else { return Ok(None) };
    if route.authorize.is_present() {
        return Ok(None); // reported
    }
    let checked = check_route(route, problems).and(check_limits(route, limits.unwrap_or_default(), problems));
    let effect = match (&raw.upstream, &raw.mark) {
        (upstream, mark) if upstream.is_present() && mark.is_present() => {
            let message = "`on_limit` has one effect, not both `upstream` and `mark`";
            Err(mark.report(message, "remove one of them", problems))
        }
        (name, _) if name.is_present() && context.purpose == Purpose::Layer => {
            let message = "`upstream` of `on_limit` works only in the gateway: a layer has one inner service";
            Err(name.report(message, "use `mark: X-Over-Limit`", problems))
        }
        (name, _) if name.is_present() => upstream(name, context.file, problems).map(OnLimit::Upstream),
        (_, mark) if mark.is_present() => mark
            .required(problems)
            .and_then(|name| changed_field(name, mark.location, Message::Request, problems))
            .map(OnLimit::Mark),
        _ => {
            let message = "`on_limit` needs `upstream` or `mark`";
            Err(route.on_limit.report(message, "for example `mark: X-Over-Limit`", problems))
        }
    };
    checked?;
    effect.map(Some)
}

/// Reports a route that forwards no requests, or that has no limits.
fn check_route(route: &file::Route, problems: &mut Problems) -> Checked<()> {
    let help = "leave it out";
    if let Some((key, _)) = present_keys!(route, redirect respond).first() {
        let message = format!("`on_limit` has no effect with {}", quote(key));
        return Err(problems.add(route.on_limit.key_location(), message, help));
    }
    match route.limits.items().is_empty() {
        true if !route.limits.is_present() || route.limits.get().is_some() => {
            reject_keys(&present_keys!(route, on_limit), "without `limits`", help, problems)
        }
        _ => Ok(()),
    }
}

/// Reports limits that let a request wait, or charge it later: the request is forwarded at once, and its charges are final.
fn check_limits(route: &file::Route, limits: &[Limit], problems: &mut Problems) -> Checked<()> {
    let mut checked = Ok(());
    for limit in limits {
        let key = match limit {
            Limit { wait_policy: Some(_), .. } => "max_wait",
            Limit { charge_on: Some(_), .. } => "charge_on",
            limit if limit.limiter.quota.algorithm().has_time_slots() => "leaky_bucket",
            _ => continue,
        };
        let message = format!("`on_limit` does not work with {}, as in limit {}", quote(key), quote(&limit.name));
        checked = Err(problems.add(route.on_limit.key_location(), message, "leave one of them out"));
    }
    checked
}
