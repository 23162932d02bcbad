//! The responses to requests that the gateway answers itself.

use super::LayerState;
use super::active::Snapshot;
use super::limits::Decided;
use super::record::RequestRecord;
use super::refused::refused;
use crate::local_response::{ConfiguredResponse, GrpcCall, LocalResponse};
use crate::ruleset::RuleSet;
use tidegate_rules::evaluation::{Answer, Evaluation};
use tidegate_rules::request::facts::{BadRequest, Facts};
use tidegate_rules::request::identity::{IdentityFault, UnmetRequirement};
use tidegate_rules::route::{Action, Rejection, RejectionText, Route};
use tidegate_rules::template::Values;

impl LayerState {
    /// Makes the response for an answer. `decided` is the decision of the limits, if they were asked.
    pub(super) fn respond(
        &self,
        Snapshot { active, store }: Snapshot<'_>,
        answer: Answer<'_>,
        evaluation: &Evaluation<'_, '_>,
        decided: Option<Decided<'_>>,
        record: &RequestRecord<'_>,
    ) -> LocalResponse {
        let (rules, facts) = (&*active.rules, &evaluation.facts);
        let denied = || decided.map_or(LocalResponse::Internal, Decided::response);
        match answer {
            Answer::BadRequest(error) => {
                self.count_bad_field(&error);
                error.into()
            }
            Answer::Options => LocalResponse::Options,
            Answer::Preflight(_) => LocalResponse::Preflight,
            Answer::OriginNotAllowed(_) => LocalResponse::OriginNotAllowed,
            Answer::QuotaMethod => LocalResponse::QuotaMethod,
            Answer::UntrustedProxy => LocalResponse::UntrustedProxy,
            Answer::BadOriginal(error) => LocalResponse::BadOriginal(error),
            Answer::Authorized(_) => LocalResponse::Authorized,
            Answer::Tunnel => LocalResponse::MethodNotImplemented,
            Answer::BodyTooLong(_) => {
                self.metrics.rejected("max_body");
                LocalResponse::BodyTooLong
            }
            Answer::NotIdentified { fault, route } => {
                let response = not_identified(rules, fault, (route, facts));
                self.count_not_identified(rules, facts, store, (&response, record));
                response
            }
            Answer::Refused(rejection) => {
                match rejection.zip(record.route()).filter(|_| self.options.on_reject.is_none()) {
                    Some((Rejection::Preset(preset), _)) => {
                        decided.and_then(|decided| refused(*preset, facts, decided, record)).unwrap_or_else(denied)
                    }
                    Some((Rejection::Text(rejection), route)) => {
                        let values = values(rules, route, facts, record);
                        reject(rejection, facts, denied(), values)
                    }
                    None => denied(),
                }
            }
            Answer::Busy => denied().with_upstream(record.route().and_then(|route| route.action.upstream())),
            Answer::StoreFailed => denied(),
            Answer::ServiceDenied | Answer::ServiceFailed => LocalResponse::Internal, // `ask` has the response
            Answer::Configured(route) => configured(route, || values(rules, route, facts, record)),
        }
    }
}

/// Returns the response to a request whose credentials the route does not accept.
pub(super) fn not_identified(
    rules: &RuleSet,
    fault: IdentityFault,
    (route, facts): (&Route, &Facts<'_>),
) -> LocalResponse {
    if fault != IdentityFault::NotAllowed {
        let (accepted, realm) = (route.identity_kinds(), rules.rules.credentials.realm.clone());
        return LocalResponse::NotIdentified { fault, accepted, realm };
    }
    let unmet = facts.identity.as_ref().and_then(|identity| route.require.unmet(identity));
    LocalResponse::NotAllowed {
        detail: unmet.map_or_else(|| fault.to_string(), |unmet| unmet.to_string()).into(),
        by_token: unmet.is_some_and(UnmetRequirement::is_of_token),
    }
}

pub(super) fn values<'v>(
    rules: &RuleSet,
    route: &'v Route,
    facts: &'v Facts<'v>,
    record: &'v RequestRecord<'_>,
) -> Values<'v> {
    let request_id = record.request_id().and_then(|id| id.to_str().ok());
    let client = rules.client_address(facts);
    Values { route: &route.name, request_id, client, facts: Some(facts), ..Values::default() }
}

/// Returns the response of a route that does not forward: `redirect` or `respond`.
fn configured<'v>(route: &Route, values: impl FnOnce() -> Values<'v>) -> LocalResponse {
    match &route.action {
        Action::Forward(_) => LocalResponse::Internal,
        Action::Respond(response) => LocalResponse::Configured(Box::new(ConfiguredResponse::fixed(response))),
        Action::Redirect(redirect) => {
            let values = values();
            let response = ConfiguredResponse::redirect(redirect, &values);
            match (response, values.facts.is_none_or(|facts| facts.host.is_empty())) {
                (Some(response), _) => LocalResponse::Configured(Box::new(response)),
                (None, true) => LocalResponse::BadRequest(BadRequest::NoHost),
                (None, false) => LocalResponse::UriTooLong,
            }
        }
    }
}

/// Replaces the response to a request that limits refuse by the `reject` of the route. gRPC calls keep theirs.
fn reject(rejection: &RejectionText, facts: &Facts<'_>, response: LocalResponse, values: Values<'_>) -> LocalResponse {
    if GrpcCall::detect(facts.method, facts.headers).is_some() {
        return response;
    }
    let violated = response.violated();
    let limit = violated.first().map(String::as_str);
    let configured =
        ConfiguredResponse::rejection(rejection, &Values { retry_after: response.retry_after(), limit, ..values });
    configured.map_or(response, |configured| LocalResponse::Configured(Box::new(configured)))
}
