//! Routes: the first route that matches a request, from top to bottom, defines its limits.

pub mod upgrade;

mod action;
mod authorize;
mod body;
mod case;
mod clients;
mod compression;
mod cors;
mod coverage;
mod fields;
mod glob;
mod matcher;
mod on_limit;
mod origin;
mod pattern;
mod preflight;
mod quotas;
mod rewrite;
mod table;
mod value;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method};

use http::header::CONTENT_LENGTH;
use serde::Serialize;

pub use self::action::{Action, FixedResponse, Redirect, Rejection, RejectionPreset, RejectionText};
pub use self::authorize::Authorize;
pub use self::authorize::{OriginalRequest, OriginalRequestError};
pub use self::case::Case;
pub use self::clients::ClientNetworks;
pub use self::compression::{Coding, Compression, MediaTypePattern};
pub use self::cors::Cors;
pub use self::cors::CorsRequest;
pub use self::coverage::{LookupKey, lookup_key};
pub use self::fields::RenderedValues;
pub use self::fields::{FieldChanges, FieldValue};
pub use self::matcher::Matcher;
pub use self::on_limit::OnLimit;
pub use self::origin::OriginPattern;
pub use self::pattern::{HostPattern, PathPattern, PatternError};
use self::quotas::Quotas;
pub use self::rewrite::{HostRewrite, Rewrite};
use self::table::Table;
pub use self::value::{Met, ValueCondition, ValueParts, ValuePattern, ValueRegex, ValueSource, ValueTest};
use crate::json;
use crate::limits::concurrency::Concurrency;
use crate::limits::policy::RateLimitHeaders;
use crate::limits::rule::{Limit, LimitLocation};
use crate::request::body::BodyReads;
use crate::request::facts::{BadRequest, Facts, is_common};
use crate::request::identity::{IdentityKinds, IdentityValue, Requirement};
use crate::route::upgrade::Upgrades;
use crate::template::Template;
use tidegate_usage::Api;

/// The routes of a rule file, in their order.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    list: Vec<Route>,
    /// The positions of the routes, by host and path.
    table: Table,
    /// The routes with a quota, by its path.
    quotas: Quotas,
    /// Whether a route has `cors`.
    has_cors: bool,
    /// The credentials that each route reads.
    reads: Vec<Option<IdentityKinds>>,
    /// The values of bodies that each route reads.
    bodies: Vec<Option<Box<BodyReads>>>,
    /// The credentials that conditions of routes read. `None` for most rule files.
    matched: Option<IdentityKinds>,
    /// The conditions of each route that a lookup has to check. So most lookups need not read the route itself.
    unchecked: Vec<Unchecked>,
    /// The unregistered methods that routes name.
    methods: Vec<Method>,
    /// The single-valued header fields that routes match.
    fields: Vec<HeaderName>,
}

/// The conditions of a route that the table does not check.
#[derive(Clone, Copy, Debug)]
enum Unchecked {
    None,
    Others,
    /// The path, which has patterns, and all others.
    PathAndOthers,
}

/// One entry of `routes:`. serde writes the fields without `skip` to `/api/v1/config`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// The name in the rule file, metrics and logs.
    #[serde(serialize_with = "json::text")]
    pub name: Arc<str>,
    /// The conditions of the route.
    #[serde(skip)]
    pub matcher: Matcher,
    /// The limits of its requests; may be empty.
    #[serde(skip)]
    pub limits: Vec<Limit>,
    /// The maximal length of a request body, in bytes; in a Tower layer, the maximal `Content-Length`.
    #[serde(rename = "max_body_bytes")]
    pub max_body: u64,
    /// The protocols that clients may switch to.
    #[serde(skip)]
    pub upgrades: Upgrades,
    /// The rate limit headers that responses contain.
    #[serde(skip)]
    pub rate_limit_headers: RateLimitHeaders,
    /// The path where clients read their own limits.
    #[serde(skip)]
    pub quota: Option<PathPattern>,
    /// The cross-origin access of browsers, if there is any.
    #[serde(skip)]
    pub cors: Option<Box<Cors>>,
    /// The bound on requests in flight.
    pub concurrency: Option<Box<Concurrency>>,
    /// The credentials that a request must have.
    #[serde(skip)]
    pub require: Requirement,
    /// Evaluates the original requests of proxies, and forwards nothing.
    pub authorize: Option<Authorize>,
    /// The action for admitted requests.
    #[serde(skip)]
    pub action: Action,
    /// The changes of the path and the host that the upstream receives.
    #[serde(skip)]
    pub rewrite: Option<Arc<Rewrite>>,
    /// The changes of the header fields that the upstream receives.
    #[serde(skip)]
    pub request_headers: Option<Arc<FieldChanges>>,
    /// The changes of the header fields of all responses.
    #[serde(skip)]
    pub response_headers: Option<Box<FieldChanges>>,
    /// The longest time from the receipt of a request until the end of its response.
    #[serde(rename = "timeout_ms", serialize_with = "json::optional_millis")]
    pub timeout: Option<Duration>,
    /// The compression of responses. `None` if they are not compressed.
    #[serde(skip)]
    pub compression: Option<Arc<Compression>>,
    /// The response to requests that the limits reject.
    #[serde(skip)]
    pub reject: Option<Box<Rejection>>,
    /// Forwards requests that the limits would reject.
    pub on_limit: Option<OnLimit>,
    /// The values that come from `defaults`.
    #[serde(skip)]
    pub inherited: Arc<[InheritedValue]>,
}

/// A value of a route that comes from `defaults`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InheritedValue {
    /// The key, such as `cors`, `limits.per-ip` or `response_headers.set.Server`.
    pub key: Box<str>,
    /// The position in `defaults`.
    pub location: LimitLocation,
}

// === impl Route ===

impl Route {
    /// The default of `max_body`: 1 GiB, which is more than nearly all requests need, and still a bound.
    pub const DEFAULT_MAX_BODY: u64 = 1 << 30;

    /// The maximal number of limits, including candidates; the store counts them in a byte.
    pub const MAX_LIMITS: usize = 100;

    /// Creates a route without limits that forwards to the inner service.
    pub fn new(name: Arc<str>, matcher: Matcher) -> Self {
        Self {
            name,
            matcher,
            limits: Vec::new(),
            max_body: Self::DEFAULT_MAX_BODY,
            upgrades: Upgrades::default(),
            rate_limit_headers: RateLimitHeaders::default(),
            quota: None,
            cors: None,
            require: Requirement::default(),
            authorize: None,
            action: Action::Forward(None),
            rewrite: None,
            request_headers: None,
            response_headers: None,
            timeout: None,
            compression: None,
            concurrency: None,
            reject: None,
            on_limit: None,
            inherited: Arc::default(),
        }
    }

    /// Returns the values of identities that templates of the route read.
    pub fn template_values(&self) -> impl Iterator<Item = &IdentityValue> {
        let location = match &self.action {
            Action::Redirect(redirect) => Some(&redirect.to),
            Action::Forward(_) | Action::Respond(_) => None,
        };
        let fields = self.request_headers.iter().flat_map(|changes| changes.templates());
        let body = self.reject.as_ref().and_then(|reject| reject.template());
        location.into_iter().chain(fields).chain(body).flat_map(Template::identity_values)
    }

    /// Returns the kinds of credentials that are verified for this route: those that it requires or reads.
    #[doc(hidden)]
    pub fn identity_kinds(&self) -> IdentityKinds {
        let of_limits = self.limits.iter().map(Limit::identity_kinds);
        let of_templates = self.template_values().map(IdentityValue::kinds);
        let of_clients = self.concurrency.iter().map(|concurrency| concurrency.client.identity_kinds());
        of_limits.chain(of_templates).chain(of_clients).fold(self.require.kinds(), IdentityKinds::union)
    }

    /// Returns `true` if the `Content-Length` is too large. A body without a length is checked while it is read. For
    /// safe methods, the check is left to [`has_too_long_body`](Self::has_too_long_body): hardly any of their requests
    /// has a body.
    #[doc(hidden)]
    pub fn is_too_long(&self, facts: &Facts<'_>) -> bool {
        !facts.method.is_safe() && self.has_too_long_body(facts)
    }

    /// Returns the API of the upstream, if the cost of a limit depends on it. All limits of a route have one API.
    pub fn api(&self) -> Option<Api> {
        self.limits.iter().find_map(|limit| limit.permits.usage()?.source.api())
    }

    /// Returns `true` if the cost of a limit is known only after the response.
    pub fn has_budget(&self) -> bool {
        self.limits.iter().any(|limit| limit.permits.usage().is_some())
    }

    /// Returns the bound of each output that is written into requests without one, in tokens: the lowest of all limits.
    pub fn output_bound(&self) -> Option<u32> {
        self.limits.iter().filter_map(|limit| limit.permits.usage()?.output()).min()
    }

    /// Returns `true` if a limit reserves the output of streams in slices.
    pub fn has_slices(&self) -> bool {
        self.limits.iter().filter_map(|limit| limit.permits.usage()).any(|cost| cost.slice.is_some())
    }

    /// Returns `true` if the `Content-Length` is too large. Checked for all requests before they are forwarded.
    #[doc(hidden)]
    pub fn has_too_long_body(&self, facts: &Facts<'_>) -> bool {
        let length = facts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        length.is_some_and(|length: u64| length > self.max_body)
    }
}

// === impl Routes ===

/// Compares the lists: everything else is derived from them.
impl PartialEq for Routes {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Eq for Routes {}

impl Routes {
    /// Creates the routes from a list in the order in which they are tried.
    pub fn new(list: Vec<Route>) -> Self {
        let table = Table::new(list.iter().map(|route| &route.matcher));
        let unchecked = list.iter().map(|route| Unchecked::new(&route.matcher)).collect();
        let reads = list.iter().map(|route| Some(route.identity_kinds()).filter(|kinds| !kinds.is_empty())).collect();
        let bodies = list.iter().map(|route| route.body_reads().map(Box::new)).collect();
        let matched = list.iter().map(|route| route.matcher.identity_kinds());
        let matched = Some(matched.fold(IdentityKinds::default(), IdentityKinds::union));
        let matched = matched.filter(|kinds| !kinds.is_empty());
        let matchers = || list.iter().map(|route| &route.matcher);
        let methods = unique(matchers().flat_map(Matcher::all_methods).filter(|method| !is_common(method)));
        let fields = unique(matchers().flat_map(Matcher::single_fields));
        let quotas = Quotas::new(&list);
        let has_cors = list.iter().any(|route| route.cors.is_some());
        Self { list, has_cors, table, quotas, reads, bodies, matched, unchecked, methods, fields }
    }

    /// Adds conditions that are not of routes, but for which [`check`](Self::check) also rejects ambiguous requests.
    #[must_use]
    pub fn with_conditions<'m>(mut self, conditions: impl Iterator<Item = &'m Matcher> + Clone) -> Self {
        let methods = conditions.clone().flat_map(Matcher::all_methods).filter(|method| !is_common(method));
        let methods: Vec<Method> = methods.cloned().collect();
        let fields: Vec<HeaderName> = conditions.flat_map(Matcher::single_fields).cloned().collect();
        self.methods = unique(self.methods.iter().chain(&methods));
        self.fields = unique(self.fields.iter().chain(&fields));
        self
    }

    /// Rejects requests that an upstream could assign to another route.
    ///
    /// # Errors
    /// The method differs from a route's method only in case, or a header field that a route matches has two values.
    pub fn check(&self, facts: &Facts<'_>) -> Result<(), BadRequest> {
        let sent = facts.method.as_str();
        let differs = |method: &Method| method.as_str() != sent && method.as_str().eq_ignore_ascii_case(sent);
        if self.methods.iter().any(differs) {
            return Err(BadRequest::MethodCase);
        }
        if facts.headers.len() == facts.headers.keys_len() {
            return Ok(()); // no field has two values
        }
        let has_two = |name: &HeaderName| {
            let mut values = facts.headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii());
            values.next().is_some_and(|first| values.any(|other| other != first))
        };
        if self.fields.iter().any(has_two) { Err(BadRequest::TwoValues) } else { Ok(()) }
    }

    /// Returns the first route that matches, with its position. It checks only the routes that the table lists for the
    /// host and the path of the request.
    pub fn find(&self, facts: &Facts<'_>) -> Option<(usize, &Route)> {
        self.find_met(facts).map(|(position, route, _)| (position, route))
    }

    /// As [`find`](Self::find). Also returns whether the request meets the conditions of the route in every reading.
    pub fn find_met(&self, facts: &Facts<'_>) -> Option<(usize, &Route, Met)> {
        // The table tries no position above the last one that was met, so that is the result.
        let found = Cell::new(Met::Yes);
        let meets_other_conditions = |position: usize| {
            let met = match (self.unchecked.get(position), self.list.get(position)) {
                (Some(Unchecked::None), _) => Met::Yes,
                (Some(Unchecked::Others), Some(route)) => route.matcher.met_other(facts),
                (_, Some(route)) if route.matcher.matches_path(facts) => route.matcher.met_other(facts),
                (_, Some(_)) => Met::No,
                (_, None) => Met::No,
            };
            if met != Met::No {
                found.set(met);
            }
            met != Met::No
        };
        let position = self.table.find(&facts.host, facts.path.matched(), meets_other_conditions)?;
        Some((position, self.list.get(position)?, found.get()))
    }

    /// Returns the route whose quota a request asks for, with its position.
    pub fn find_quota(&self, facts: &Facts<'_>) -> Option<(usize, &Route)> {
        let position = self.quotas.find(facts)?;
        Some((position, self.list.get(position)?))
    }

    /// Returns the route at this position of the rule file, from 0. `None` if there are fewer routes.
    pub fn get(&self, position: usize) -> Option<&Route> {
        self.list.get(position)
    }

    /// Returns the credentials that the route at this position reads, apart from its conditions. `None` for most routes.
    pub fn identity_kinds(&self, position: usize) -> Option<IdentityKinds> {
        self.reads.get(position).copied().flatten()
    }

    /// Returns the values of bodies that the route at this position reads. `None` for most routes.
    pub fn body_reads(&self, position: usize) -> Option<&BodyReads> {
        self.bodies.get(position)?.as_deref()
    }

    /// Returns `true` if a route reads bodies of requests or the costs of responses.
    pub(crate) fn read_bodies(&self) -> bool {
        self.bodies.iter().any(Option::is_some) || self.list.iter().any(Route::has_budget)
    }

    /// Returns the credentials that conditions of any route read. `None` for most rule files.
    pub fn matched_kinds(&self) -> Option<IdentityKinds> {
        self.matched
    }

    /// Returns [`matched_kinds`](Self::matched_kinds) if the route of a request, or of its quota, depends on its credentials.
    #[inline]
    pub fn kinds_to_match(&self, facts: &Facts<'_>) -> Option<IdentityKinds> {
        self.matched.filter(|_| self.depends_on_identity(facts))
    }

    /// Returns `true` if the first route that matches for any credentials has a condition on them.
    fn depends_on_identity(&self, facts: &Facts<'_>) -> bool {
        let matches = |matcher: &Matcher| {
            let matches_path = !matcher.has_patterns() || matcher.matches_path(facts);
            matches_path && matcher.met_without_identity(facts) != Met::No
        };
        let has_condition =
            |position: usize| self.list.get(position).is_some_and(|route| !route.matcher.identity.is_empty());
        let matches_route = |position: usize| self.list.get(position).is_some_and(|route| matches(&route.matcher));
        let route = || self.table.find(&facts.host, facts.path.matched(), matches_route);
        self.quotas.find_by(facts, matches).is_some_and(has_condition) || route().is_some_and(has_condition)
    }

    /// Iterates over all routes, in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, Route> {
        self.list.iter()
    }

    /// Iterates over all routes, to change their limits. Their conditions must stay.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Route> {
        self.list.iter_mut()
    }
}

impl Unchecked {
    fn new(matcher: &Matcher) -> Self {
        match () {
            () if matcher.has_patterns() => Self::PathAndOthers,
            () if matcher.has_other() => Self::Others,
            () => Self::None,
        }
    }
}

fn unique<'t, T: Clone + PartialEq + 't>(all: impl Iterator<Item = &'t T>) -> Vec<T> {
    let mut unique = Vec::new();
    for item in all {
        if !unique.contains(item) {
            unique.push(item.clone());
        }
    }
    unique
}
