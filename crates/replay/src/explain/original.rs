//! Explains the response to a proxy that asks about an original request (`authorize`).

use super::answer::describe;
use super::walk::{Ending, walk};
use super::{EarlyAnswer, ExplainedRequest, Explanation};
use tidegate_config::{Config, quote};
use tidegate_limit::clock::Timestamp;
use tidegate_rules::evaluation::{Answer, Evaluation};
use tidegate_rules::route::{Action, Authorize, OriginalRequest, OriginalRequestError, Route};

/// The request of a proxy that asks about an original request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProxyRequest<'r> {
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
    /// `evaluation` is the evaluation of the proxy's request.
    pub(super) fn explain<T>(
        self,
        evaluation: &Evaluation<'_, '_>,
        (config, now): (&Config, Timestamp),
        read: impl FnOnce(Result<&Explanation<'_>, &EarlyAnswer<'_>>) -> T,
    ) -> T {
        let answer = |(status, reason), is_authorized| {
            let status = if is_authorized { status } else { self.status(status) };
            EarlyAnswer { request: self.request, status, reason, is_authorized }
        };
        let original = match evaluation.original(self.authorize) {
            Ok(original) => original,
            Err(error) => return read(Err(&answer(describe(error, &evaluation.facts), false))),
        };
        let mut evaluation = match evaluation.of_original(&original) {
            Ok(evaluation) => evaluation,
            Err(error) => return read(Err(&answer(describe(Answer::BadRequest(error), &evaluation.facts), false))),
        };
        let OriginalRequest { method, uri } = &original;
        match walk(&mut evaluation, (config, now), None) {
            Ending::Asked(outcome) => {
                let explanation = Explanation::new(&mut evaluation, (config, now), uri);
                read(Ok(&Explanation { proxy: Some(self), outcome: Some(outcome), ..explanation }))
            }
            Ending::Unmatched => {
                let original = quote(&format!("{method} {uri}"));
                read(Err(&answer((200, format!("no route matches the original request {original}")), true)))
            }
            Ending::Answered { status, reason, .. } => read(Err(&answer((status, reason), status == 200))),
            Ending::Authorize(..) => {
                let error = Answer::BadOriginal(OriginalRequestError::Recursive);
                read(Err(&answer(describe(error, &evaluation.facts), false)))
            }
        }
    }
}
