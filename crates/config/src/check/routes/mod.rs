//! Routes: their names, and what concerns several routes.

pub(crate) mod action;
pub(crate) mod authorize;
pub(crate) mod compression;
pub(crate) mod concurrency;
pub(crate) mod cors;
pub(crate) mod field_changes;
pub(crate) mod fields;
pub(crate) mod on_limit;
pub(crate) mod quota_path;
pub(crate) mod reach;
pub(crate) mod reject;
pub(crate) mod rewrite;
pub(crate) mod team;
pub(crate) mod templates;
pub(crate) mod upgrades;

use std::sync::Arc;

use self::field_changes::{Message, field_changes};
use self::fields::FieldCheck;
use self::quota_path::QuotaMatcher;
use self::reach::NamedMatcher;
use self::templates::Variables;
use crate::Purpose;
use crate::check::limits::raw_limits::{limits_of, own_limits};
use crate::check::limits::shared_limits::SharedLimits;
use crate::check::limits::{redisson, route_limits};
use crate::check::matching::identity::warn_of_issuers;
use crate::check::matching::matcher::matcher;
use crate::check::matching::route_context::RouteContext;
use crate::check::names::duplicates;
use crate::check::{Checked, all, identities, limits};
use crate::file::defaults::Inherited;
use crate::file::include::RouteSources;
use crate::file::keys::Kind;
use crate::file::located::Located;
use crate::file::read::read_item;
use crate::file::{self, File, ROUTE};
use crate::problem::{Location, Problems};
use crate::values::units::Millis;
use crate::yaml::node::Node;
use tidegate_rules::limits::policy::RateLimitHeaders;
use tidegate_rules::request::identity::Requirement;
use tidegate_rules::route::{Action, InheritedValue, Matcher, Route, Routes};
use tidegate_rules::rules::When;
use tidegate_rules::settings::upstream::Protocol;

/// Converts the routes one after the other: a route of the file needs more memory than its result.
struct RouteReader<'f> {
    context: RouteContext<'f>,
    field_check: Option<FieldCheck<'f>>,
    shared: SharedLimits<'f>,
    routes: Vec<Checked<Route>>,
    named: Vec<NamedRoute>,
    quotas: Vec<QuotaMatcher>,
    sources: RouteSources,
    /// The inherited values of the last route. The next route often has the same values.
    inherited: Arc<[InheritedValue]>,
}

/// The routes, apart from the first one, which the file contains.
pub(crate) struct RouteInput {
    /// The values that the first route has inherited.
    pub(crate) first: Vec<Inherited>,
    pub(crate) others: Vec<Node>,
    /// The defaults and the team of each file.
    pub(crate) sources: RouteSources,
}

/// A route of the file whose name is valid.
struct NamedRoute {
    index: usize,
    name: Arc<str>,
    name_location: Location,
    location: Location,
    /// The conditions of a route that has an error elsewhere. They make other routes unreachable as well.
    matcher: Option<Matcher>,
    is_maintenance: bool,
}

/// The parts of a route that are checked even if others have errors.
struct RouteParts {
    matcher: Checked<Matcher>,
    action: Checked<Action>,
    limits: Checked<Vec<tidegate_rules::limits::rule::Limit>>,
    require: Checked<Requirement>,
}

/// The kind of the items of `routes`.
static ROUTE_KIND: Kind = Kind::Map(&ROUTE);

/// Converts the routes of the file, and then the others. Adds their conditions to `when`.
pub(crate) fn routes(
    RouteInput { first: mut inherited, others, sources }: RouteInput,
    context: RouteContext<'_>,
    field_check: Option<FieldCheck<'_>>,
    when: &mut Vec<When>,
    problems: &mut Problems,
) -> Checked<Routes> {
    let first = match context.file.routes.optional(problems)? {
        None if context.file.service.is_present() && !context.file.listen.is_present() => &[],
        routes => routes.ok_or_else(|| problems.reported(context.file.routes.location))?.as_slice(),
    };
    let shared = SharedLimits::new(context, when, problems);
    let (routes, named, quotas) = (Vec::with_capacity(first.len() + others.len()), Vec::new(), Vec::new());
    let mut reader =
        RouteReader { context, field_check, shared, routes, named, quotas, sources, inherited: Arc::default() };
    for raw in first {
        reader.read(raw, std::mem::take(&mut inherited), when, problems);
    }
    for mut node in others {
        let inherited = reader.sources.inherit(&mut node);
        let raw = read_item(&node, "routes", &ROUTE_KIND, problems);
        reader.read(&raw, inherited, when, problems);
    }
    reader.finish(problems)
}

// === impl RouteReader ===

impl RouteReader<'_> {
    fn read(
        &mut self,
        located: &Located<file::Route>,
        inherited: Vec<Inherited>,
        when: &mut Vec<When>,
        problems: &mut Problems,
    ) {
        let route = match located.required(problems) {
            Ok(raw) => self.convert(raw, located.location, when, problems),
            Err(reported) => Err(reported),
        };
        let inherited = self.inherited(inherited, problems);
        self.routes.push(route.map(|route| Route { inherited, ..route }));
    }

    /// Converts inherited values. Equal values of successive routes share memory.
    fn inherited(&mut self, inherited: Vec<Inherited>, problems: &Problems) -> Arc<[InheritedValue]> {
        let location = |value: &Inherited| problems.limit_location(value.location);
        let convert = |value: Inherited| InheritedValue { location: location(&value), key: value.key.into() };
        let inherited: Vec<_> = inherited.into_iter().map(convert).collect();
        if *self.inherited != *inherited {
            self.inherited = inherited.into();
        }
        Arc::clone(&self.inherited)
    }

    fn convert(
        &mut self,
        raw: &file::Route,
        location: Location,
        when: &mut Vec<When>,
        problems: &mut Problems,
    ) -> Checked<Route> {
        let context = self.context;
        let team = self.sources.team(location.file).cloned();
        let matcher = matcher(&raw.r#match, context.matching, problems);
        let matcher = matcher.and_then(|matcher| check_identity(matcher, raw, context, problems));
        let matcher = matcher.and_then(|matcher| team::check_hosts(matcher, raw, team.as_deref(), problems));
        let conditions = matcher.clone().ok();
        let action = action::action(raw, context, problems);
        let is_maintenance = action.as_ref().is_ok_and(Action::is_maintenance);
        let require = identities::require(raw, context, problems);
        let limits = self.limits(raw, when, problems);
        let limits = limits.inspect(|limits| team::check_limits(limits, raw, team.as_deref(), problems));
        let concurrency = concurrency::concurrency(raw, context, problems);
        let parts = RouteParts { matcher, action, limits, require };
        let route = route(raw, context, parts, problems);
        let route = route.and_then(|route| Ok(Route { concurrency: concurrency?, ..route }));
        let route = route.map(|mut route| {
            if !carries_upgrades(context.file, &route) {
                route.upgrades.protocols.clear();
            }
            rewrite::check_prefix(raw, &route, problems);
            route
        });
        for value in route.iter().flat_map(Route::template_values) {
            _ = identities::check_configured(value.kinds(), context, &raw.name, problems);
        }
        self.quotas.extend(route.as_ref().ok().and_then(|route| quota_path::quota_matcher(route, raw)));
        authorize::check_proxies(raw, context.file, problems);
        if let Some(name) = raw.name.get() {
            let matcher = conditions.filter(|_| route.is_err());
            let (index, name, name_location) = (self.routes.len(), name.as_str().into(), raw.name.location);
            self.named.push(NamedRoute { index, name, name_location, location, matcher, is_maintenance });
        }
        route
    }

    fn limits(
        &mut self,
        raw: &file::Route,
        when: &mut Vec<When>,
        problems: &mut Problems,
    ) -> Checked<Vec<tidegate_rules::limits::rule::Limit>> {
        let Self { context, field_check, .. } = *self;
        let limits = route_limits::limits(raw, context, &mut self.shared, when, problems);
        let limits = limits::check_identities(raw, context, problems).and(limits);
        let at = raw.limits.location;
        let limits = limits.and_then(|limits| limits::body::check_number(&limits, at, problems).map(|()| limits));
        let limits =
            limits.and_then(|limits| limits::usage_source::check_single(&limits, at, problems).map(|()| limits));
        redisson::reject_duplicate_keys(limits_of(context.file, raw), problems);
        if let Some(check) = field_check {
            check.check_route(raw, problems);
        }
        match context.purpose {
            Purpose::Command => limits,
            Purpose::Layer => limits::body::reject_bodies(own_limits(raw), problems).and(limits),
            Purpose::Gateway => limits::reject_extension(own_limits(raw), problems).and(limits),
        }
    }

    /// Checks what concerns several routes.
    fn finish(self, problems: &mut Problems) -> Checked<Routes> {
        let Self { context: RouteContext { file, .. }, field_check, shared, routes, named, quotas, .. } = self;
        duplicates(named.iter().map(|route| (&*route.name, route.name_location)), "route", problems);
        shared.warn_of_unused(file, problems);
        for limit in file.limits.get().into_iter().flatten().filter_map(|(_, limit)| limit.get()) {
            field_check.into_iter().for_each(|check| check.check_limit(limit, problems));
        }
        // A request for a quota is answered before the routes are tried.
        let quotas = quotas.iter().map(|(matcher, name, location)| NamedMatcher {
            matcher,
            name,
            location: *location,
            is_maintenance: false,
        });
        let named = named.iter().filter_map(|NamedRoute { index, name, location, matcher, is_maintenance, .. }| {
            let of_route = || routes.get(*index)?.as_ref().ok().map(|route| &route.matcher);
            let matcher = matcher.as_ref().or_else(of_route)?;
            Some(NamedMatcher { matcher, name, location: *location, is_maintenance: *is_maintenance })
        });
        reach::check(&quotas.chain(named).collect::<Vec<_>>(), problems);
        Ok(Routes::new(all(routes.into_iter())?))
    }
}

fn route(
    raw: &file::Route,
    context: RouteContext<'_>,
    RouteParts { matcher, action, limits, require }: RouteParts,
    problems: &mut Problems,
) -> Checked<Route> {
    let rate_limit_headers = rate_limit_headers(raw, problems);
    let upgrades = upgrades::upgrades(raw, problems);
    let quota = quota_path::quota_path(raw, problems);
    let cors = cors::cors(raw, problems);
    let authorize = authorize::authorize(raw, matcher.as_ref().ok(), problems);
    let limits = limits.inspect(|limits| quota_path::check_limits(raw, limits, problems));
    let rewrite = rewrite::check_keys(raw, problems).and(rewrite::rewrite(&raw.rewrite, problems));
    let request = field_changes(&raw.request_headers, Message::Request, Variables::request(context), problems);
    let response = field_changes(&raw.response_headers, Message::Response, Variables::response(context), problems);
    let reject = reject::reject(&raw.reject, context, problems);
    let on_limit = on_limit::on_limit(raw, limits.as_deref().ok(), context, problems);
    let compression = compression::compression(raw, problems);
    let timeout = raw.timeout.optional(problems).map(|timeout| timeout.copied().map(Millis::duration));
    if let (Ok(Action::Redirect(_) | Action::Respond(_)), Ok(limits)) = (&action, &limits)
        && limits.iter().any(|limit| limit.charge_on.is_some())
    {
        let message = "`charge_on` has no effect without `upstream`: the status is always the same";
        problems.add(raw.limits.location, message, "remove `charge_on`");
    }
    let name = Arc::from(raw.name.required(problems)?.as_str());
    let max_body = raw.max_body.optional(problems)?.map_or(Route::DEFAULT_MAX_BODY, |most| most.0);
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
        compression: compression?,
        reject: reject?,
        on_limit: on_limit?,
        inherited: Arc::default(),
    })
}

/// Checks the conditions of a route on credentials.
fn check_identity(
    matcher: Matcher,
    raw: &file::Route,
    context: RouteContext<'_>,
    problems: &mut Problems,
) -> Checked<Matcher> {
    if let Some(identity) = raw.r#match.get().map(|conditions| &conditions.identity) {
        identities::check_configured(matcher.identity_kinds(), context, identity, problems)?;
        let issuers = identities::issuers(context.file);
        warn_of_issuers(&matcher.identity, &issuers, identity.location, problems);
    }
    Ok(matcher)
}

/// Returns `false` if the route's upstream always uses HTTP/2, which has no `Upgrade`.
fn carries_upgrades(file: &File, route: &Route) -> bool {
    let upstream = route.action.upstream().and_then(|name| file.upstreams.get()?.get(&**name)?.get());
    upstream.is_none_or(|upstream| upstream.protocol.get() != Some(&Protocol::Http2))
}

/// Converts `headers`. An empty list sends no fields.
fn rate_limit_headers(raw: &file::Route, problems: &mut Problems) -> Checked<RateLimitHeaders> {
    let Some(fields) = raw.headers.optional(problems)? else { return Ok(RateLimitHeaders::default()) };
    let fields = all(fields.iter().map(|field| field.required(problems)))?;
    let has = |field| fields.contains(&&field);
    Ok(RateLimitHeaders::new(has))
}
