//! Routes: names, upstreams and response fields.

use std::sync::Arc;

use super::matcher::matcher;
use super::names::duplicates;
use super::{Checked, limits, needed, part, reach, spread, upgrades};
use crate::config::Purpose;
use crate::config::file::{self, File};
use crate::config::node::Node;
use crate::config::problem::{Problems, quote, quote_all};
use crate::config::suggest::nearest;
use crate::policy::{RateLimitFields, RateLimitHeaders};
use crate::route::{Matcher, Route, Routes};
use crate::rules::Requests;
use crate::upstream::settings::Protocol;

/// The parts of the configuration that routes depend on.
#[derive(Clone, Copy)]
pub(super) struct RouteContext<'f> {
    pub(super) purpose: Purpose,
    /// The prefix of limiter names.
    pub(super) prefix: &'f str,
    /// Whether the store is a Redis Cluster.
    pub(super) is_cluster: bool,
    /// The checked `requests`, or `None` if they have errors.
    pub(super) requests: Option<Requests>,
}

pub(super) fn routes(file: &File, root: &Node, context: RouteContext<'_>, problems: &mut Problems) -> Checked<Routes> {
    let written = needed(&file.routes, root, problems)?;
    let nodes = root.at("routes").items();
    duplicates(written.iter().map(|route| route.as_ref()?.name.as_deref()).zip(nodes), "route", problems);
    let mut routes = Vec::with_capacity(nodes.len());
    let mut matchers = Vec::with_capacity(nodes.len());
    for (written, node) in written.iter().zip(nodes) {
        let Ok(written) = needed(written, node, problems) else {
            routes.push(Err(problems.reported(node.location)));
            continue;
        };
        let matcher = matcher(written, node, context.requests, problems);
        if let (Ok(matcher), Some(name)) = (&matcher, &written.name) {
            matchers.push((matcher.clone(), name.as_str(), node.location));
        }
        let upstream = upstream(written, node, file, context, problems);
        let limits = limits::limits(written, node, context.prefix, problems);
        let limits = match context.purpose {
            Purpose::Layer => limits,
            Purpose::Gateway => limits::reject_extension(written, node, problems).and(limits),
        };
        let limits =
            limits.map(|limits| if context.is_cluster { spread::apply_default(limits, written) } else { limits });
        let mut route = route(written, node, matcher, upstream, limits, problems);
        if let Ok(route) = &mut route
            && !carries_upgrades(file, route)
        {
            route.upgrades.protocols.clear();
        }
        routes.push(route);
    }
    reach::check(&matchers, problems);
    Ok(Routes::new(routes.into_iter().collect::<Checked<_>>()?))
}

fn route(
    written: &file::Route,
    node: &Node,
    matcher: Checked<Matcher>,
    upstream: Checked<Option<Arc<str>>>,
    limits: Checked<Vec<crate::rule::Limit>>,
    problems: &mut Problems,
) -> Checked<Route> {
    let rate_limit_headers = rate_limit_headers(written, node, problems);
    let upgrades = upgrades::upgrades(written, node, problems);
    let name = Arc::from(needed(&written.name, node, problems)?.as_str());
    let max_body = part(&written.max_body, node, "max_body", problems)?.map_or(Route::DEFAULT_MAX_BODY, |most| most.0);
    Ok(Route {
        name,
        matcher: matcher?,
        limits: limits?,
        max_body,
        upgrades: upgrades?,
        rate_limit_headers: rate_limit_headers?,
        upstream: upstream?,
    })
}

/// Returns `false` if the route's upstream always uses HTTP/2, which has no `Upgrade`.
fn carries_upgrades(file: &File, route: &Route) -> bool {
    let upstream = route.upstream.as_deref().and_then(|name| file.upstreams.as_ref()?.get(name)?.as_ref());
    upstream.is_none_or(|upstream| upstream.protocol != Some(Protocol::Http2))
}

/// Converts `headers`. An empty list sends no fields.
fn rate_limit_headers(written: &file::Route, node: &Node, problems: &mut Problems) -> Checked<RateLimitHeaders> {
    let Some(fields) = part(&written.headers, node, "headers", problems)? else {
        return Ok(RateLimitHeaders::default());
    };
    let has = |fields: &[RateLimitFields], one| fields.contains(&one);
    let fields: Vec<RateLimitFields> =
        fields.iter().map(|field| needed(field, node, problems).copied()).collect::<Checked<_>>()?;
    Ok(RateLimitHeaders { ietf: has(&fields, RateLimitFields::Ietf), legacy: has(&fields, RateLimitFields::Legacy) })
}

fn upstream(
    written: &file::Route,
    node: &Node,
    file: &File,
    context: RouteContext<'_>,
    problems: &mut Problems,
) -> Checked<Option<Arc<str>>> {
    let Some(name) = part(&written.upstream, node, "upstream", problems)? else {
        return match context.purpose {
            Purpose::Layer => Ok(None),
            Purpose::Gateway => {
                let help = "add `upstream: NAME` with a name from `upstreams`";
                let message = "a route of a gateway needs `upstream`".to_owned();
                Err(problems.add_missing(node.location, "upstream", message, help))
            }
        };
    };
    let declared = file.upstreams.iter().flatten().map(|(name, _)| name.as_str());
    if declared.clone().any(|declared| declared == name) {
        return Ok(Some(Arc::from(name.as_str())));
    }
    let help = match (nearest(name, declared.clone()), declared.clone().next()) {
        (Some(near), _) => format!("did you mean {}?", quote(near)),
        (None, Some(_)) => format!("the upstreams are {}", quote_all(declared.take(10))),
        (None, None) => "add it to `upstreams`".to_owned(),
    };
    Err(problems.add(node.at("upstream").location, format!("unknown upstream {}", quote(name)), help))
}
