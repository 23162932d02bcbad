//! The evaluation of a request by the rules: **the order of its stages, once**, for all that evaluate requests.
//!
//! ```text
//! server -> preflight -> quota -> route -> tunnel -> size -> checks -> identity -> body -> limits -> service -> action
//! ```
//!
//! If the route depends on credentials, they are verified before it is found. Otherwise they are verified later, so that
//! requests over a limit cost no verification. A service is asked after the limits, so that they also protect the service.
//!
//! An [`Evaluation`] does no IO and does not wait. Its driver carries out a [`Step`] and calls [`Evaluation::next`] again,
//! until the step ends the evaluation. The drivers are the layer (for requests, and for the original requests of proxies),
//! `explain`, and the replay of access logs.

pub mod reason;

mod answer;
mod head;
mod hop;
mod readings;
mod stage;
mod step;
pub mod wait;

use http::{Method, Uri};

pub use self::answer::Answer;
pub use self::head::{HeadLimits, LargeHead, MAX_METHOD};
pub use self::hop::{LastHop, last_hop, max_forwards};
use self::readings::find_unchanged;
use self::stage::Stage;
pub use self::step::{Event, Step, Verdict};
use crate::request::body::ReadBody;
use crate::request::facts::{BadRequest, Facts, HostRequirement, NO_CERTIFICATE};
use crate::request::identity::{Identity, IdentityKinds, OnServiceFailure, ServiceCheck, ServiceVerdict};
use crate::request::sanitize::BadField;
use crate::route::upgrade::{Offer, Upgrade};
use crate::route::{Authorize, Met, OnLimit, OriginalRequest, OriginalRequestError, Rejection, Route};
use crate::rules::Rules;

/// The evaluation of one request.
#[derive(Debug)]
pub struct Evaluation<'r, 'f> {
    /// The properties of the request.
    pub facts: Facts<'f>,
    /// The protocol that the client may switch to. Boxed, since few requests offer one.
    pub upgrade: Option<Box<Upgrade>>,
    /// The target as it was sent. `None` if the request has no authority other than its host.
    pub target: Option<&'f Uri>,
    rules: &'r Rules,
    route: Option<&'r Route>,
    /// The position of the route.
    position: u32,
    subject: Subject,
    /// Whether the request can only be forwarded as an upgrade.
    is_tunnel: bool,
    stage: Stage,
}

/// The kind of request that is evaluated.
#[derive(Clone, Copy, Debug)]
pub enum Subject {
    /// A request with a normalized path.
    Request,
    /// A request that the layer does not change, and whose path is not normalized. This is the fault of its fields.
    Unchanged(Option<BadField>),
    /// The original request that a proxy asks about.
    Original,
    /// A request of an access log, which lacks most fields. This is the position of its route, if the log has it.
    Logged(Option<u32>),
}

impl<'r, 'f> Evaluation<'r, 'f> {
    /// Starts the evaluation of a request with these facts.
    pub fn new(rules: &'r Rules, facts: Facts<'f>, subject: Subject) -> Self {
        Self {
            facts,
            upgrade: None,
            target: None,
            rules,
            route: None,
            position: 0,
            subject,
            is_tunnel: false,
            stage: Stage::Server,
        }
    }

    /// Sets the target, and whether the request is a tunnel, which can only be forwarded as an upgrade (RFC 8441).
    pub fn with_target(self, target: &'f Uri, is_tunnel: bool) -> Self {
        Self { target: Some(target), is_tunnel, ..self }
    }

    /// Returns the route of the request, with its position, as soon as it is found.
    pub fn route(&self) -> Option<(usize, &'r Route)> {
        self.route.map(|route| (self.position as usize, route))
    }

    /// Returns the rules that are applied.
    pub fn rules(&self) -> &'r Rules {
        self.rules
    }

    /// Returns `true` if a proxy asks about the request, which is not forwarded.
    pub fn is_original(&self) -> bool {
        matches!(self.subject, Subject::Original)
    }

    /// Returns the next step. `event` is the result of the last one.
    pub fn next(&mut self, event: Event) -> Step<'r> {
        loop {
            let stage = self.stage;
            self.stage = stage.following();
            let step = match stage {
                Stage::Server => self.server(),
                Stage::Preflight => self.preflight(),
                Stage::PreflightAnswer => self.answer_preflight(),
                Stage::MatchedIdentity => self.matched_identity(),
                Stage::Quota => self.quota(),
                Stage::QuotaMethod => self.quota_method(),
                Stage::QuotaIdentity | Stage::Identity => self.unverified_kinds().map(Step::Verify),
                Stage::QuotaIdentified | Stage::Identified => self.decide_identity().map(Step::Identified),
                Stage::QuotaState => self.route.map(Step::Quota),
                Stage::Route => self.find_route(),
                Stage::Authorize => self.authorize(),
                Stage::Tunnel => self.tunnel(),
                Stage::Size => self.size(),
                Stage::Check => Some(Step::Check(self.unverified_kinds().filter(|_| !self.forwards_over_limit()))),
                Stage::Body => self.body(),
                Stage::Limits => Some(self.limits()),
                Stage::Decision => self.decision(event),
                Stage::Ask => self.service().map(Step::Ask),
                Stage::Asked => self.asked(event),
                Stage::Action => self.action(),
                Stage::Forward => Some(self.forward()),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Reads the original request that the fields of this request describe.
    ///
    /// # Errors
    /// The peer may not ask about requests, or the fields are not valid.
    pub fn original(&self, authorize: Authorize) -> Result<OriginalRequest, Answer<'r>> {
        if !self.facts.peer_is_trusted {
            return Err(Answer::UntrustedProxy);
        }
        OriginalRequest::read(authorize, &self.facts).map_err(Answer::BadOriginal)
    }

    /// Starts the evaluation of the original request that this request asks about.
    ///
    /// # Errors
    /// The original request is ambiguous.
    pub fn of_original<'o>(&self, original: &'o OriginalRequest) -> Result<Evaluation<'r, 'o>, BadRequest>
    where
        'f: 'o,
    {
        let OriginalRequest { method, uri } = original;
        let Facts { headers, peer, extensions, time, .. } = self.facts;
        let read = self.rules.read(method, uri, HostRequirement::Optional, headers, peer)?;
        // The certificate of the connection is the certificate of the proxy.
        let tls = (uri.scheme_str() == Some("https")).then_some(&NO_CERTIFICATE);
        let facts = Facts { peer_is_trusted: true, extensions, time, tls, ..read };
        Ok(Evaluation { target: Some(uri), ..Evaluation::new(self.rules, facts, Subject::Original) })
    }

    /// `OPTIONS *` asks about the gateway itself, unless a handler serves it.
    fn server(&self) -> Option<Step<'r>> {
        let is_answered = matches!(self.subject, Subject::Request | Subject::Logged(_)) && self.facts.is_for_server();
        is_answered.then_some(Step::Respond(Answer::Options))
    }

    fn preflight(&mut self) -> Option<Step<'r>> {
        self.set_route(self.rules.routes.find_preflight(&self.facts));
        self.found_or(Stage::MatchedIdentity)
    }

    /// Browsers send preflights without credentials. The origin behind a proxy answers them.
    fn answer_preflight(&self) -> Option<Step<'r>> {
        let route = self.route?;
        let is_allowed = route.cors.as_ref().is_some_and(|cors| cors.allows_origin(self.facts.headers));
        Some(Step::Respond(match (is_allowed, self.subject) {
            (true, Subject::Original) => Answer::Authorized(route),
            (true, _) => Answer::Preflight(route),
            (false, _) => Answer::OriginNotAllowed(route),
        }))
    }

    /// Verifies the credentials that conditions of routes read. Logs have none.
    fn matched_identity(&mut self) -> Option<Step<'r>> {
        if self.is_original() {
            self.stage = Stage::Route; // the proxy forwards requests for quotas
        }
        let routes = &self.rules.routes;
        let kinds = match self.subject {
            Subject::Request | Subject::Original => routes.kinds_to_match(&self.facts),
            Subject::Unchanged(_) => routes.matched_kinds(), // the path has several interpretations
            Subject::Logged(_) => None,
        };
        kinds.map(Step::Verify)
    }

    fn quota(&mut self) -> Option<Step<'r>> {
        self.set_route(self.rules.routes.find_quota(&self.facts));
        self.found_or(Stage::Route)
    }

    fn quota_method(&self) -> Option<Step<'r>> {
        let is_read = *self.facts.method == Method::GET || *self.facts.method == Method::HEAD;
        Some(if is_read { Step::AdmitQuota } else { Step::Respond(Answer::QuotaMethod) })
    }

    fn find_route(&mut self) -> Option<Step<'r>> {
        let found = match self.subject {
            Subject::Unchanged(fault) => find_unchanged(self.rules, &mut self.facts, fault),
            Subject::Logged(Some(position)) => at(self.rules, position as usize, &self.facts),
            Subject::Request | Subject::Original | Subject::Logged(None) => find(self.rules, &self.facts),
        };
        match found {
            Err(error) => Some(Step::Respond(Answer::BadRequest(error))),
            Ok(None) => Some(Step::Unmatched),
            Ok(found @ Some((_, route))) => self.refusal(route).map(Step::Respond).or_else(|| {
                self.set_route(found);
                Some(Step::Found)
            }),
        }
    }

    /// Returns the answer to a request that its route cannot evaluate.
    fn refusal(&self, route: &'r Route) -> Option<Answer<'r>> {
        match self.subject {
            Subject::Original if route.authorize.is_some() => {
                Some(Answer::BadOriginal(OriginalRequestError::Recursive))
            }
            // Logs lack the field that distinguishes preflights.
            Subject::Logged(_) if route.cors.is_some() && *self.facts.method == Method::OPTIONS => {
                Some(Answer::Preflight(route))
            }
            _ => None,
        }
    }

    fn authorize(&self) -> Option<Step<'r>> {
        let route = self.route?;
        route.authorize.map(|authorize| Step::Authorize(route, authorize))
    }

    /// Chooses the protocol to switch to. An extended CONNECT needs one.
    fn tunnel(&mut self) -> Option<Step<'r>> {
        let offer = self.facts.extensions.filter(|_| !self.is_original())?.get::<Offer>()?;
        let route = self.route?;
        self.upgrade = route.upgrades.choose(offer).map(Box::new);
        (self.is_tunnel && self.upgrade.is_none()).then_some(Step::Respond(Answer::Tunnel))
    }

    /// A proxy limits the body of an original request itself.
    fn size(&self) -> Option<Step<'r>> {
        let route = self.route.filter(|_| !self.is_original())?;
        route.is_too_long(&self.facts).then_some(Step::Respond(Answer::BodyTooLong(route)))
    }

    /// The body of a request whose credentials are not accepted is not read. A proxy does not send the body of an original
    /// request.
    fn body(&self) -> Option<Step<'r>> {
        let is_read = !self.is_original() && self.facts.identity_fault().is_none();
        let (position, _) = self.route().filter(|_| is_read)?;
        self.rules.routes.body_reads(position).map(Step::ReadBody)
    }

    /// A request whose credentials are not accepted is counted by limits by address only, and takes no slot.
    fn limits(&self) -> Step<'r> {
        Step::Decide(!self.is_original() && self.facts.identity_fault().is_none())
    }

    fn decision(&self, event: Event) -> Option<Step<'r>> {
        let fault = self.facts.identity_fault();
        let answer = match event {
            Event::Done | Event::Asked(_) | Event::Decided(Verdict::Granted) => {
                Answer::NotIdentified { fault: fault?, route: self.route? }
            }
            Event::Decided(Verdict::Refused) => self.refused(),
            Event::Decided(Verdict::Busy) => Answer::Busy,
            Event::Decided(Verdict::StoreFailed) => Answer::StoreFailed,
        };
        Some(Step::Respond(answer))
    }

    /// Returns the service that must allow the request, after the limits have granted it.
    fn service(&self) -> Option<&'r ServiceCheck> {
        self.route?.require.service(self.facts.identity.as_deref())
    }

    fn asked(&self, event: Event) -> Option<Step<'r>> {
        let Event::Asked(verdict) = event else { return None };
        let admits = || self.service().is_some_and(|service| service.on_failure == OnServiceFailure::Allow);
        let answer = match verdict {
            ServiceVerdict::Allowed => return None,
            ServiceVerdict::Unavailable if admits() => return None,
            ServiceVerdict::Denied => Answer::ServiceDenied,
            ServiceVerdict::Unavailable | ServiceVerdict::Undecided => Answer::ServiceFailed,
        };
        Some(Step::Respond(answer))
    }

    /// Returns the answer to the request if limits refuse it.
    pub fn refused(&self) -> Answer<'r> {
        Answer::Refused(self.rejection().filter(|_| self.facts.identity_fault().is_none()))
    }

    /// Returns the effect of limits that refuse the request, if they do not reject it. Limits protect the verification of
    /// credentials: they reject requests whose credentials are not accepted.
    pub fn on_limit(&self) -> Option<&'r OnLimit> {
        self.route.filter(|_| self.forwards_over_limit() && self.facts.identity_fault().is_none())?.on_limit.as_ref()
    }

    /// Returns `true` if the route forwards requests over a limit. The answer to a proxy cannot name another upstream.
    fn forwards_over_limit(&self) -> bool {
        !self.is_original() && self.route.is_some_and(|route| route.on_limit.is_some())
    }

    /// Returns the response of the route to requests that limits refuse.
    fn rejection(&self) -> Option<&'r Rejection> {
        self.route.filter(|_| !self.is_original())?.reject.as_deref()
    }

    /// A route can answer requests itself. A proxy lets its request pass if that is a success.
    fn action(&self) -> Option<Step<'r>> {
        let route = self.route?;
        let status = route.action.status()?;
        let is_denied = !self.is_original() || !status.is_success();
        is_denied.then_some(Step::Respond(Answer::Configured(route)))
    }

    fn forward(&self) -> Step<'r> {
        match self.route.filter(|_| self.is_original()) {
            Some(route) => Step::Respond(Answer::Authorized(route)),
            None => Step::Forward,
        }
    }

    /// Returns the credentials that the route reads and that have not been verified. `None` if all have been verified.
    pub fn unverified_kinds(&self) -> Option<IdentityKinds> {
        let reads = self.rules.routes.identity_kinds(self.route()?.0)?;
        let verified = self.facts.identity.as_ref().map(|identity| identity.verified).unwrap_or_default();
        Some(reads.without(verified)).filter(|kinds| !kinds.is_empty())
    }

    /// Adds the result of [`Step::Verify`].
    pub fn add_identity(&mut self, identity: Identity) {
        self.facts.identity.get_or_insert_default().add(identity);
    }

    /// Adds the result of [`Step::ReadBody`].
    pub fn add_body(&mut self, body: ReadBody) {
        self.facts.body = Some(Box::new(body));
    }

    /// Decides whether the route accepts the credentials, and returns the kinds that it reads. Without a verification, a
    /// request has no credentials. Logs have none either, but their requests are replayed as if they were accepted.
    pub fn decide_identity(&mut self) -> Option<IdentityKinds> {
        let (position, route) = self.route()?;
        let reads = self.rules.routes.identity_kinds(position)?;
        if matches!(self.subject, Subject::Logged(_)) {
            return None;
        }
        self.facts.identity.get_or_insert_default().decide(reads, &route.require);
        Some(reads)
    }

    fn set_route(&mut self, found: Option<(usize, &'r Route)>) {
        self.route = found.map(|(_, route)| route);
        self.position = found.map_or(0, |(position, _)| u32::try_from(position).unwrap_or(u32::MAX));
    }

    /// Returns the step that reports the route. Without one, continues with `other`.
    fn found_or(&mut self, other: Stage) -> Option<Step<'r>> {
        if self.route.is_none() {
            self.stage = other;
        }
        self.route.map(|_| Step::Found)
    }
}

/// Returns the first route that matches.
///
/// # Errors
/// Servers may differ in whether the request meets the conditions of the route.
fn find<'r>(rules: &'r Rules, facts: &Facts<'_>) -> Result<Option<(usize, &'r Route)>, BadRequest> {
    match rules.routes.find_met(facts) {
        Some((_, _, Met::Maybe)) => Err(BadRequest::AmbiguousValue),
        Some((position, route, _)) => Ok(Some((position, route))),
        None => Ok(None),
    }
}

/// Returns the route at this position.
///
/// # Errors
/// See [`find`].
fn at<'r>(rules: &'r Rules, position: usize, facts: &Facts<'_>) -> Result<Option<(usize, &'r Route)>, BadRequest> {
    match rules.routes.get(position) {
        Some(route) if route.matcher.is_ambiguous(facts) => Err(BadRequest::AmbiguousValue),
        route => Ok(route.map(|route| (position, route))),
    }
}
