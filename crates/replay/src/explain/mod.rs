//! Explains how the rules apply to a request, and why. `tidegate explain` and the admin API use it. It needs the rule
//! file and the request only, without a store or a connection.

mod action;
mod answer;
mod descriptors;
mod limits;
mod original;
mod request;
mod text;
mod walk;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName};
use http::{Method, Uri, Version};

use self::action::describe_action;
pub use self::action::forwarded_path;
use self::answer::describe;
pub use self::descriptors::{CallExplanation, DescriptorText, ExplainCallError, ExplainedCall};
use self::original::ProxyRequest;
pub use self::request::{field, method, target};
use self::walk::{Ending, Outcome, identify, walk};
use tidegate_config::Config;
use tidegate_limit::calendar::schedule::Minute;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::client::AddressTrace;
use tidegate_rules::condition::Search;
use tidegate_rules::evaluation::{Answer, Evaluation, LastHop, Subject, last_hop};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::request::facts::{BadRequest, Facts, TlsPeer};
use tidegate_rules::request::identity::ServiceCheck;
use tidegate_rules::request::sanitize::{NextHop, RequestContext};
use tidegate_rules::route::Route;
use tidegate_rules::rules::{LimitCheck, Rules};

/// A request to explain.
#[derive(Clone, Debug)]
pub struct ExplainedRequest {
    /// The method.
    pub method: Method,
    /// The target: an absolute URL, or a path.
    pub url: Uri,
    /// The fields.
    pub headers: HeaderMap,
    /// The version of HTTP.
    pub version: Version,
    /// The address of the peer.
    pub peer: IpAddr,
    /// The identity in the certificate of the client.
    pub tls: TlsPeer,
    /// The name of the listener. If it is absent, the listener is the only one that serves the scheme of the URL.
    pub listener: Option<Arc<str>>,
    /// The body. Without it, limits find no values in the body.
    pub body: Option<Vec<u8>>,
}

/// Why the gateway answers a request before it looks for a route.
#[derive(Clone, Debug)]
pub struct EarlyAnswer<'r> {
    request: &'r ExplainedRequest,
    /// The status of the response.
    pub status: u16,
    /// Why the request gets this response.
    pub reason: String,
    /// Whether the response authorizes the request of a proxy.
    pub is_authorized: bool,
}

/// How the rules apply to a request.
#[derive(Debug)]
pub struct Explanation<'r> {
    /// The properties of the request.
    pub facts: &'r Facts<'r>,
    sent: &'r Uri,
    /// Header fields that the gateway removes.
    pub removed: Vec<&'r HeaderName>,
    /// How the client's address was found. `None` without a peer.
    pub trace: Option<AddressTrace<'r>>,
    /// The routes that were compared with the request.
    pub search: Search<'r>,
    /// The check of each limit of the route. Empty without a route.
    pub checks: Vec<(&'r Limit, LimitCheck)>,
    /// The changes of the request and the response, one in a line.
    pub changes: Vec<String>,
    /// The status and the reason of an answer that does not depend on the limits.
    early: Option<(u16, String)>,
    /// The answers after the limits have decided. `None` if they are not asked.
    outcome: Option<Outcome<'r>>,
    /// The request of the proxy that asks about this request, if a proxy does.
    proxy: Option<ProxyRequest<'r>>,
    /// Whether limits read the body, which is not given.
    lacks_body: bool,
    rules: &'r Rules,
    /// The time for which calendar windows are computed.
    now: Timestamp,
}

// === impl ExplainedRequest ===

impl ExplainedRequest {
    /// Passes the explanation to `read`, or the reason why the gateway answers before it looks for a route. Reads the
    /// request as the layer does.
    pub fn explain<T>(
        &self,
        config: &Config,
        now: Timestamp,
        read: impl FnOnce(Result<&Explanation<'_>, &EarlyAnswer<'_>>) -> T,
    ) -> T {
        let answer = |status, reason| EarlyAnswer { request: self, status, reason, is_authorized: false };
        let Self { method, url, version, peer, tls, .. } = self;
        if let Some((status, reason)) = request::describe_large(self, config) {
            return read(Err(&answer(status, reason)));
        }
        let (rules, mut headers) = (&config.rules, self.headers.clone());
        let trusted = rules.addresses.trusts(peer.to_canonical());
        let context = RequestContext { version: *version, trusted, next: NextHop::Origin };
        let filtered = rules.field_filter().apply(&mut headers, context).map_err(BadRequest::from);
        let mut facts = match filtered.and_then(|_| rules.read(method, url, *version, &headers, *peer)) {
            Ok(facts) => facts,
            Err(error) => return read(Err(&answer(request::status(&error), request::reason(&error)))),
        };
        let (uses_tls, extensions) = request::arrival(self, config);
        facts.tls = uses_tls.then_some(tls);
        facts.extensions = Some(&extensions);
        facts.peer_is_trusted = trusted;
        facts.time = Minute::of(now);
        let mut evaluation = Evaluation::new(rules, facts, Subject::Request);
        let (early, outcome) = match walk(&mut evaluation, (config, now), self.body.as_deref()) {
            Ending::Asked(outcome) => (None, Some(outcome)),
            Ending::Unmatched => (Some((404, "no route matches".to_owned())), None),
            Ending::Answered { status, reason, of_route: true } => (Some((status, reason)), None),
            Ending::Answered { status, reason, .. } => return read(Err(&answer(status, reason))),
            Ending::Authorize(route, authorize) => {
                let proxy = ProxyRequest { request: self, route, authorize };
                return proxy.explain(&evaluation, (config, now), read);
            }
        };
        let removed = self.headers.keys().filter(|name| !headers.contains_key(*name)).collect();
        let explanation = Explanation::new(&mut evaluation, (config, now), url);
        let reads = explanation.reads_body();
        let lacks_body = reads && self.body.is_none();
        read(Ok(&Explanation { removed, early, outcome, lacks_body, ..explanation }))
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
    /// Creates the explanation of a request that was sent with this target.
    fn new(evaluation: &'r mut Evaluation<'r, '_>, (config, now): (&Config, Timestamp), sent: &'r Uri) -> Self {
        if let Some(kinds) = evaluation.unverified_kinds() {
            identify(evaluation, kinds, (config, now)); // to show what the limits read
            evaluation.decide_identity();
        }
        let (rules, facts) = (evaluation.rules(), &evaluation.facts);
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
            lacks_body: false,
            early: None,
            outcome: None,
            rules,
            now,
        }
    }

    /// Returns the route, if one matches.
    pub fn route(&self) -> Option<&'r Route> {
        self.search.found
    }

    /// Returns `true` if a limit of the route depends on the body.
    fn reads_body(&self) -> bool {
        self.route().is_some_and(|route| route.limits.iter().any(Limit::reads_body))
    }

    /// Describes why a limit does not count the request. Returns `None` if it counts the request.
    pub fn reason_of_check(&self, limit: &Limit, check: &LimitCheck) -> Option<String> {
        match check {
            LimitCheck::Charge(_) => None,
            LimitCheck::Unmet => self.rules.unmet(limit, self.facts).map(|unmet| unmet.to_string()),
            LimitCheck::Skip(cause) | LimitCheck::Deny(cause) => Some(limits::describe_missing(limit, cause)),
        }
    }

    /// Returns the status of the response to the client, or to the proxy that asks about the request, for this status.
    pub fn response_status(&self, status: u16) -> u16 {
        self.proxy.map_or(status, |proxy| proxy.status(status))
    }

    /// Returns `true` if admitted requests to the route are forwarded. Others are answered by the gateway.
    pub fn is_forwarded(&self) -> bool {
        self.proxy.is_none()
    }

    /// Describes the action for admitted requests to this route.
    pub fn describe_action(&self, route: &Route) -> String {
        self.proxy.map_or_else(|| describe_action(route), |proxy| proxy.describe_action(route))
    }

    /// Returns the service that must allow the request after the limits have granted it.
    pub fn service(&self) -> Option<&'r ServiceCheck> {
        self.outcome?.service
    }

    /// Returns the status and the reason of a response that needs no decision of the store. Returns `None` if the
    /// limits decide.
    pub fn rejection(&self) -> Option<(u16, String)> {
        let rejection = self.early_rejection().or_else(|| self.denial(|_| true)).or_else(|| self.identity_rejection());
        rejection.map(|(status, reason)| (self.response_status(status), reason))
    }

    /// Returns the status and the reason of a response that does not depend on the limits.
    pub fn early_rejection(&self) -> Option<(u16, String)> {
        self.early.clone()
    }

    /// Returns the status of the gateway's own answer if the limits grant the request. Returns `None` if it is forwarded.
    pub fn granted_status(&self) -> Option<u16> {
        match self.outcome?.granted {
            Some(Answer::Authorized(_)) => Some(200),
            Some(answer) => Some(self.response_status(describe(answer, self.facts).0)),
            None => self.failure_to_forward().map(|(status, _)| status),
        }
    }

    /// Returns the status of the answer if the limits refuse the request. Returns `None` if they are not asked, or if the request
    /// is forwarded over its limits.
    pub fn refused_status(&self) -> Option<u16> {
        Some(self.response_status(describe(self.outcome?.refused?, self.facts).0))
    }

    /// Returns the status of the answer to an admitted request that cannot be forwarded, and the reason.
    fn failure_to_forward(&self) -> Option<(u16, &'static str)> {
        let route = self.route().filter(|_| self.outcome.is_some_and(|outcome| outcome.granted.is_none()))?;
        match last_hop(self.facts.method, self.facts.headers) {
            Some(hop @ LastHop::NotForwarded) => Some((hop.status(), "the method is not forwarded")),
            Some(hop) => Some((hop.status(), "`max-forwards: 0` makes the gateway the last recipient")),
            None => route.has_too_long_body(self.facts).then_some((413, "the body is longer than `max_body`")),
        }
    }

    /// Returns the status and the reason if the credentials are not accepted. Limits by address count the request first.
    pub fn identity_rejection(&self) -> Option<(u16, String)> {
        let answer = self.outcome?.granted.filter(|answer| matches!(answer, Answer::NotIdentified { .. }));
        answer.map(|answer| describe(answer, self.facts))
    }

    /// Returns the status and the reason if a limit lacks its input and rejects the request. Only limits at positions
    /// that match `may_reject` reject it.
    pub fn denial(&self, may_reject: impl Fn(usize) -> bool) -> Option<(u16, String)> {
        let denied = self.checks.iter().enumerate().find_map(|(index, (limit, check))| match check {
            LimitCheck::Deny(cause) if may_reject(index) => Some((limit, cause)),
            _ => None,
        });
        let (limit, cause) = denied?;
        Some((400, limits::describe_denial(limit, cause)))
    }
}

#[cfg(test)]
mod tests;
