//! Routes: names, upstreams and response fields.

use std::sync::Arc;

use super::field_changes::{Message, field_changes};
use super::limits::RouteContext;
use super::matcher::matcher;
use super::names::duplicates;
use super::shared_limits::SharedLimits;
use super::templates::Variables;
use super::written_limits::own_limits;
use super::{
    Checked, action, authorize, concurrency, cors, identities, limits, quota_path, reach, rewrite, route_limits,
    upgrades,
};
use crate::config::Purpose;
use crate::config::file::{self, File};
use crate::config::problem::Problems;
use crate::config::units::Millis;
use crate::identity::IdentityKinds;
use crate::policy::{RateLimitFields, RateLimitHeaders};
use crate::route::{Action, Matcher, Route, Routes};
use crate::rules::When;
use crate::upstream::settings::Protocol;

pub(super) fn routes(
    file: &File,
    context: RouteContext<'_>,
    when: &mut Vec<When>,
    problems: &mut Problems,
) -> Checked<Routes> {
    let all = file.routes.required(problems)?;
    let shared = SharedLimits::new(file, context, when, problems);
    duplicates(all.iter().filter_map(|route| Some(&route.get()?.name)), "route", problems);
    let mut routes = Vec::with_capacity(all.len());
    let mut matchers = Vec::with_capacity(all.len());
    let mut quotas = Vec::new();
    for located in all {
        let Ok(written) = located.required(problems) else {
            routes.push(Err(problems.reported(located.location)));
            continue;
        };
        let matcher = matcher(&written.r#match, context.matching, problems);
        if let (Ok(matcher), Some(name)) = (&matcher, written.name.get()) {
            matchers.push((matcher.clone(), name.as_str(), located.location));
        }
        let action = action::action(written, file, context, problems);
        let require = identities::require(written, file, context.purpose, problems);
        let limits = route_limits::limits(written, (file, context), &shared, when, problems);
        let limits = limits::check_identities(written, (file, context.purpose), problems).and(limits);
        let limits = match context.purpose {
            Purpose::Layer => limits,
            Purpose::Gateway => limits::reject_extension(own_limits(written), problems).and(limits),
        };
        let concurrency = concurrency::concurrency(written, context.names, problems);
        let mut route = route(written, context, (matcher, action, limits, require), problems);
        match (concurrency, &mut route) {
            (Ok(concurrency), Ok(route)) => route.concurrency = concurrency,
            (Err(reported), route) => *route = Err(reported),
            (Ok(_), Err(_)) => {}
        }
        if let Ok(route) = &mut route
            && !carries_upgrades(file, route)
        {
            route.upgrades.protocols.clear();
        }
        if let Ok(route) = &route {
            rewrite::check_prefix(written, route, problems);
        }
        for value in route.iter().flat_map(Route::template_values) {
            _ = identities::check_configured(value.kinds(), (file, context.purpose), &written.name, problems);
        }
        quotas.extend(route.as_ref().ok().and_then(|route| quota_path::quota_matcher(route, written)));
        authorize::check_proxies(written, file, problems);
        routes.push(route);
    }
    // A request for a quota is answered before the routes are tried.
    let quotas = quotas.iter().map(|(matcher, name, location)| (matcher.clone(), name.as_str(), *location));
    reach::check(&quotas.chain(matchers).collect::<Vec<_>>(), problems);
    Ok(Routes::new(routes.into_iter().collect::<Checked<_>>()?))
}

fn route(
    written: &file::Route,
    context: RouteContext<'_>,
    (matcher, action, limits, require): (
        Checked<Matcher>,
        Checked<Action>,
        Checked<Vec<crate::rule::Limit>>,
        Checked<IdentityKinds>,
    ),
    problems: &mut Problems,
) -> Checked<Route> {
    let rate_limit_headers = rate_limit_headers(written, problems);
    let upgrades = upgrades::upgrades(written, problems);
    let quota = quota_path::quota_path(written, problems);
    let cors = cors::cors(written, problems);
    let authorize = authorize::authorize(written, matcher.as_ref().ok(), problems);
    let limits = limits.inspect(|limits| quota_path::check_limits(written, limits, problems));
    let rewrite = rewrite::check_keys(written, problems).and(rewrite::rewrite(&written.rewrite, problems));
    let request = field_changes(&written.request_headers, Message::Request, Variables::request(context), problems);
    let response = field_changes(&written.response_headers, Message::Response, Variables::response(context), problems);
    let reject = rewrite::reject(&written.reject, context, problems);
    let timeout = written.timeout.optional(problems).map(|timeout| timeout.copied().map(Millis::duration));
    if let (Ok(Action::Redirect(_) | Action::Respond(_)), Ok(limits)) = (&action, &limits)
        && limits.iter().any(|limit| limit.charge_on.is_some())
    {
        let message = "`charge_on` has no effect without `upstream`: the status is always the same";
        problems.add(written.limits.location, message, "remove `charge_on`");
    }
    let name = Arc::from(written.name.required(problems)?.as_str());
    let max_body = written.max_body.optional(problems)?.map_or(Route::DEFAULT_MAX_BODY, |most| most.0);
    Ok(Route {
        name,
        matcher: matcher?,
        limits: limits?,
        max_body,
        upgrades: upgrades?,
        rate_limit_headers: rate_limit_headers?,
        quota: quota?,
        cors: cors?,
        require: require?,
        authorize: authorize?,
        concurrency: None,
        action: action?,
        rewrite: rewrite?.map(Arc::new),
        request_headers: request?.map(Arc::new),
        response_headers: response?.map(Box::new),
        timeout: timeout?,
        reject: reject?,
    })
}

/// Returns `false` if the route's upstream always uses HTTP/2, which has no `Upgrade`.
fn carries_upgrades(file: &File, route: &Route) -> bool {
    let upstream = route.action.upstream().and_then(|name| file.upstreams.get()?.get(&**name)?.get());
    upstream.is_none_or(|upstream| upstream.protocol.get() != Some(&Protocol::Http2))
}

/// Converts `headers`. An empty list sends no fields.
fn rate_limit_headers(written: &file::Route, problems: &mut Problems) -> Checked<RateLimitHeaders> {
    let Some(fields) = written.headers.optional(problems)? else { return Ok(RateLimitHeaders::default()) };
    let fields: Vec<_> = fields.iter().map(|field| field.required(problems)).collect::<Checked<_>>()?;
    let has = |field| fields.contains(&&field);
    Ok(RateLimitHeaders { ietf: has(RateLimitFields::Ietf), legacy: has(RateLimitFields::Legacy) })
}
