//! Explains how the rules apply to a request, and why. `tidegate explain` and the admin API use it. It needs the rule
//! file and the request only, without a store or a connection.

mod action;
mod conditions;
mod limits;
mod original;
mod request;
mod text;

use std::fmt;
use std::net::IpAddr;

use http::header::{HeaderMap, HeaderName};
use http::{Method, Uri, Version};

use self::action::describe_action;
pub(crate) use self::action::forwarded_path;
use self::original::ProxyRequest;
pub(crate) use self::request::{field, method, target};
use crate::client::AddressTrace;
use crate::clock::Timestamp;
use crate::condition::Search;
use crate::config::Config;
use crate::credentials::IdentityNeeds;
use crate::facts::{BadRequest, Facts, TlsPeer};
use crate::identity::IdentityFault;
use crate::route::Route;
use crate::rule::Limit;
use crate::rules::{LimitCheck, Rules};
use crate::sanitize::{NextHop, RequestContext};

/// A request to explain.
#[derive(Clone, Debug)]
pub(crate) struct ExplainedRequest {
    pub(crate) method: Method,
    pub(crate) url: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) version: Version,
    pub(crate) peer: IpAddr,
    pub(crate) tls: TlsPeer,
}

/// Why the gateway answers a request before it looks for a route.
#[derive(Clone, Debug)]
pub(crate) struct EarlyAnswer<'r> {
    request: &'r ExplainedRequest,
    pub(crate) status: u16,
    pub(crate) reason: String,
    /// Whether the response authorizes the request of a proxy.
    pub(crate) is_authorized: bool,
}

/// How the rules apply to a request.
#[derive(Debug)]
pub(crate) struct Explanation<'r> {
    pub(crate) facts: &'r Facts<'r>,
    sent: &'r Uri,
    /// Header fields that the gateway removes.
    pub(crate) removed: Vec<&'r HeaderName>,
    pub(crate) trace: Option<AddressTrace<'r>>,
    pub(crate) search: Search<'r>,
    /// The check of each limit of the route. Empty without a route.
    pub(crate) checks: Vec<(&'r Limit, LimitCheck)>,
    /// The changes of the request and the response, one in a line.
    pub(crate) changes: Vec<String>,
    /// The request of the proxy that asks about this request, if a proxy does.
    proxy: Option<ProxyRequest<'r>>,
    rules: &'r Rules,
    /// The time for which calendar windows are computed.
    now: Timestamp,
}

// === impl ExplainedRequest ===

impl ExplainedRequest {
    /// Passes the explanation to `read`, or the reason why the gateway answers before it looks for a route. Reads the
    /// request as the layer does.
    pub(crate) fn explain<T>(
        &self,
        config: &Config,
        now: Timestamp,
        read: impl FnOnce(Result<&Explanation<'_>, &EarlyAnswer<'_>>) -> T,
    ) -> T {
        let answer = |status, reason| EarlyAnswer { request: self, status, reason, is_authorized: false };
        let Self { method, url, version, peer, tls, .. } = self;
        if let Some(max) = request::exceeded_max_target(url, config) {
            return read(Err(&answer(414, format!("target is longer than {max} bytes"))));
        }
        let (rules, mut headers) = (&config.rules, self.headers.clone());
        let trusted = rules.addresses.trusts(peer.to_canonical());
        let context = RequestContext { version: *version, trusted, next: NextHop::Origin };
        let filtered = rules.field_filter().apply(&mut headers, context).map_err(BadRequest::from);
        let mut facts = match filtered.and_then(|_| rules.read(method, url, *version, &headers, *peer)) {
            Ok(facts) => facts,
            Err(error) => return read(Err(&answer(request::status(&error), request::reason(&error)))),
        };
        facts.tls = Some(tls);
        facts.peer_is_trusted = trusted;
        if facts.is_for_server() {
            return read(Err(&answer(204, "the request is about the gateway itself".to_owned())));
        }
        if let Some((_, route)) = rules.routes.find_preflight(&facts) {
            let (status, result) = action::describe_preflight(route, &facts);
            return read(Err(&answer(status, result)));
        }
        if let Some((_, route)) = rules.routes.find_quota(&facts) {
            return read(Err(&answer(200, format!("the gateway returns the quota of route `{}`", route.name))));
        }
        let found = rules.routes.find(&facts).map(|(_, route)| route);
        if let Some((route, authorize)) = found.and_then(|route| Some((route, route.authorize?))) {
            if route.matcher.is_ambiguous(&facts) {
                return read(Err(&answer(400, BadRequest::AmbiguousValue.to_string())));
            }
            let proxy = ProxyRequest { request: self, route, authorize };
            return proxy.explain(&facts, (config, now), read);
        }
        if let Some(needs) = found.and_then(IdentityNeeds::of_route) {
            let identity = config.verifiers.identify(needs, &rules.credentials, &facts, now.as_millis() / 1000);
            facts.identity = Some(Box::new(identity));
        }
        let removed = self.headers.keys().filter(|name| !headers.contains_key(*name)).collect();
        read(Ok(&Explanation { removed, ..Explanation::new(rules, &facts, url, now) }))
    }
}

impl fmt::Display for EarlyAnswer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExplainedRequest { method, url, .. } = self.request;
        writeln!(f, "{method} {url}\n\nanswered with {}: {}", self.status, self.reason)
    }
}

// === impl Explanation ===

impl<'r> Explanation<'r> {
    fn new(rules: &'r Rules, facts: &'r Facts<'r>, sent: &'r Uri, now: Timestamp) -> Self {
        let search = rules.routes.search(facts);
        let limits = search.found.map(|route| route.limits.as_slice()).unwrap_or_default();
        let checks = limits.iter().map(|limit| (limit, rules.check_limit(limit, facts))).collect();
        let changes = search.found.map(|route| action::changes(route, rules, facts)).unwrap_or_default();
        Self {
            facts,
            sent,
            removed: Vec::new(),
            trace: rules.addresses.trace(facts),
            search,
            checks,
            changes,
            proxy: None,
            rules,
            now,
        }
    }

    pub(crate) fn route(&self) -> Option<&'r Route> {
        self.search.found
    }

    /// Describes why a limit does not count the request. Returns `None` if it counts the request.
    pub(crate) fn reason_of_check(&self, limit: &Limit, check: &LimitCheck) -> Option<String> {
        match check {
            LimitCheck::Charge(_) => None,
            LimitCheck::Unmet => self.rules.unmet(limit, self.facts).map(|unmet| unmet.to_string()),
            LimitCheck::Skip(cause) | LimitCheck::Deny(cause) => Some(limits::describe_missing(limit, cause)),
        }
    }

    /// Returns the status of the response to the client, or to the proxy that asks about the request, for this status.
    pub(crate) fn response_status(&self, status: u16) -> u16 {
        self.proxy.map_or(status, |proxy| proxy.status(status))
    }

    /// Returns `true` if admitted requests to the route are forwarded. Others are answered by the gateway.
    pub(crate) fn is_forwarded(&self) -> bool {
        self.proxy.is_none()
    }

    /// Describes the action for admitted requests to this route.
    pub(crate) fn describe_action(&self, route: &Route) -> String {
        self.proxy.map_or_else(|| describe_action(route), |proxy| proxy.describe_action(route))
    }

    /// Returns the status and the reason of a response that needs no decision of the store. Returns `None` if the
    /// limits decide.
    pub(crate) fn rejection(&self) -> Option<(u16, String)> {
        let rejection = self.early_rejection().or_else(|| self.denial(|_| true)).or_else(|| self.identity_rejection());
        rejection.map(|(status, reason)| (self.response_status(status), reason))
    }

    /// Returns the status and the reason of a response that does not depend on the limits.
    pub(crate) fn early_rejection(&self) -> Option<(u16, String)> {
        let Some(route) = self.route() else { return Some((404, "no route matches".to_owned())) };
        if route.matcher.is_ambiguous(self.facts) {
            return Some((400, BadRequest::AmbiguousValue.to_string()));
        }
        // The proxy limits the body of an original request.
        if self.proxy.is_none() && route.is_too_long(self.facts) {
            return Some((
                413,
                format!("content-length is larger than {} bytes, the `max_body` of the route", route.max_body),
            ));
        }
        None
    }

    /// Returns the status and the reason if the credentials are not accepted. Limits by address count the request first.
    pub(crate) fn identity_rejection(&self) -> Option<(u16, String)> {
        let fault = self.facts.identity_fault()?;
        Some((if fault == IdentityFault::Unavailable { 503 } else { 401 }, fault.to_string()))
    }

    /// Returns the status and the reason if a limit lacks its input and rejects the request. Only limits at positions
    /// that match `may_reject` reject it.
    pub(crate) fn denial(&self, may_reject: impl Fn(usize) -> bool) -> Option<(u16, String)> {
        let denied = self.checks.iter().enumerate().find_map(|(index, (limit, check))| match check {
            LimitCheck::Deny(cause) if may_reject(index) => Some((limit, cause)),
            _ => None,
        });
        let (limit, cause) = denied?;
        Some((400, limits::describe_denial(limit, cause)))
    }
}
