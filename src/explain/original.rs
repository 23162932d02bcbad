//! Explains the response to a proxy that asks about an original request (`authorize`).

use super::{EarlyAnswer, ExplainedRequest, Explanation, action};
use crate::clock::Timestamp;
use crate::config::{Config, quote};
use crate::credentials::IdentityNeeds;
use crate::facts::{BadRequest, Facts, HostRequirement};
use crate::route::{Action, Authorize, OriginalRequest, OriginalRequestError, Route};

/// The request of a proxy that asks about an original request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProxyRequest<'r> {
    pub(super) request: &'r ExplainedRequest,
    /// The route with `authorize`.
    pub(super) route: &'r Route,
    pub(super) authorize: Authorize,
}

impl ProxyRequest<'_> {
    /// Returns the status that the proxy receives instead of this status of a rejection.
    pub(super) fn status(&self, status: u16) -> u16 {
        if self.authorize.nginx && status != 401 { 403 } else { status }
    }

    /// Describes the response for admitted requests to this route.
    pub(super) fn describe_action(&self, route: &Route) -> String {
        let status = match &route.action {
            Action::Respond(response) if !response.status.is_success() => self.status(response.status.as_u16()),
            Action::Redirect(redirect) => self.status(redirect.status.as_u16()),
            Action::Respond(_) | Action::Forward(_) => 200,
        };
        format!("the proxy is answered with {status}")
    }

    /// Passes the explanation of the original request to `read`, or the reason why the gateway answers without limits.
    /// `facts` are the facts of the proxy's request.
    pub(super) fn explain<T>(
        self,
        facts: &Facts<'_>,
        (config, now): (&Config, Timestamp),
        read: impl FnOnce(Result<&Explanation<'_>, &EarlyAnswer<'_>>) -> T,
    ) -> T {
        let answer = |status, reason: &str, is_authorized| EarlyAnswer {
            request: self.request,
            status,
            reason: reason.to_owned(),
            is_authorized,
        };
        let rejection = |status, reason: &str| answer(self.status(status), reason, false);
        if !facts.peer_is_trusted {
            let peer = self.request.peer;
            let reason = format!("only trusted proxies can ask for authorizations, and the peer {peer} is not one");
            return read(Err(&rejection(403, &reason)));
        }
        let rules = &config.rules;
        let original = match OriginalRequest::read(self.authorize, facts) {
            Ok(original) => original,
            Err(error) => return read(Err(&rejection(400, error.detail()))),
        };
        let OriginalRequest { method, uri } = &original;
        let mut facts = match rules.read(method, uri, HostRequirement::Optional, facts.headers, facts.peer) {
            Ok(read) => Facts { peer_is_trusted: true, ..read },
            Err(error) => return read(Err(&rejection(super::request::status(&error), &error.to_string()))),
        };
        if let Some((_, route)) = rules.routes.find_preflight(&facts) {
            let (status, reason) = action::describe_preflight(route, &facts);
            return read(Err(&if status == 204 { answer(200, &reason, true) } else { rejection(status, &reason) }));
        }
        let Some((_, route)) = rules.routes.find(&facts) else {
            let reason = format!("no route matches the original request {}", quote(&format!("{method} {uri}")));
            return read(Err(&answer(200, &reason, true)));
        };
        if route.matcher.is_ambiguous(&facts) {
            return read(Err(&rejection(400, &BadRequest::AmbiguousValue.to_string())));
        }
        if route.authorize.is_some() {
            return read(Err(&rejection(400, OriginalRequestError::Recursive.detail())));
        }
        if let Some(needs) = IdentityNeeds::of_route(route) {
            let identity = config.verifiers.identify(needs, &rules.credentials, &facts, now.as_millis() / 1000);
            facts.identity = Some(Box::new(identity));
        }
        read(Ok(&Explanation { proxy: Some(self), ..Explanation::new(rules, &facts, uri, now) }))
    }
}
