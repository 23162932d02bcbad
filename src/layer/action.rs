//! The responses that a route's keys `redirect`, `respond` and `reject` configure.

use http::{HeaderMap, Method};

use super::record::RequestRecord;
use crate::facts::{BadRequest, Facts};
use crate::local_response::{ConfiguredResponse, GrpcCall, LocalResponse};
use crate::route::{Action, Route};
use crate::ruleset::RuleSet;
use crate::template::Values;

/// Returns the values of templates for a request.
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

/// Returns the response of a route that does not forward.
pub(super) fn respond<'v>(route: &Route, values: impl FnOnce() -> Values<'v>) -> Option<LocalResponse> {
    match &route.action {
        Action::Forward(_) => None,
        Action::Respond(response) => Some(LocalResponse::Configured(Box::new(ConfiguredResponse::fixed(response)))),
        Action::Redirect(redirect) => {
            let values = values();
            let response = ConfiguredResponse::redirect(redirect, &values);
            Some(match (response, values.facts.is_none_or(|facts| facts.host.is_empty())) {
                (Some(response), _) => LocalResponse::Configured(Box::new(response)),
                (None, true) => LocalResponse::BadRequest(BadRequest::NoHost),
                (None, false) => LocalResponse::UriTooLong,
            })
        }
    }
}

/// Replaces the response to a request that limits rejected by the response of the route. gRPC calls keep theirs.
pub(super) fn reject<'v>(
    route: &'v Route,
    (method, headers): (&Method, &HeaderMap),
    response: LocalResponse,
    values: impl FnOnce() -> Values<'v>,
) -> LocalResponse {
    let (Some(rejection), LocalResponse::Limited { .. }) = (&route.reject, &response) else { return response };
    if GrpcCall::detect(method, headers).is_some() {
        return response;
    }
    let violated = response.violated();
    let limit = violated.first().map(String::as_str);
    let configured =
        ConfiguredResponse::rejection(rejection, &Values { retry_after: response.retry_after(), limit, ..values() });
    configured.map_or(response, |configured| LocalResponse::Configured(Box::new(configured)))
}
