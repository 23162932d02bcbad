//! The fields and the status that the record of a request adds to its response.

use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::{RareData, RequestRecord};
use crate::headers::api::ApiFields;
use crate::headers::{self, PolicyFields};
use crate::layer::request_id::X_REQUEST_ID;
use crate::ruleset::FoundRoute;
use tidegate_rules::limits::policy::Policy;
use tidegate_rules::route::Authorize;
use tidegate_rules::rules::Charges;
use tidegate_rules::template::Values;

/// The field with the original status of a rejection that is sent to nginx.
const X_TIDEGATE_STATUS: HeaderName = HeaderName::from_static("x-tidegate-status");

impl RequestRecord<'_> {
    /// Adds the rate limit fields and the id to the response.
    pub(super) fn add_fields<B>(&mut self, response: &mut Response<B>) {
        let response_is_authorization = self.is_authorization() && response.status().is_success();
        if let Some(route) = self.route()
            && let Some(changes) = &route.response_headers
        {
            let request_id = self.request_id().and_then(|id| id.to_str().ok());
            let values = Values { route: &route.name, request_id, ..Values::default() };
            changes.apply(response.headers_mut(), changes.render(&values));
        }
        let fields = self.policy().zip(self.rate_limit.take());
        let of_limits = fields.map(|(policy, rate_limit)| PolicyFields { policy, rate_limit });
        let RareData { request_id, cors, in_flight, passed, api_fields, .. } =
            self.rare.take().map(|rare| *rare).unwrap_or_default();
        let quota = in_flight.and_then(|in_flight| in_flight.quota);
        let quota = quota.filter(|_| self.route().is_some_and(|route| route.rate_limit_headers.ietf));
        let of_slots = quota.and_then(|(per_client, remaining)| headers::in_flight(per_client, remaining));
        headers::insert(response.headers_mut(), [of_limits, of_slots]);
        if let Some(id) = request_id {
            response.headers_mut().insert(X_REQUEST_ID, id);
        }
        // Left only for a proxy that asks, which copies them to its request.
        for (name, value) in passed.iter().flat_map(|passed| passed.iter()).filter(|_| response_is_authorization) {
            response.headers_mut().append(name, value.clone());
        }
        if let (Some(route), Some(request)) = (self.route(), cors)
            && let Some(cors) = &route.cors
        {
            cors.add_fields(response.headers_mut(), &request);
        }
        if let Some(legacy) = self.legacy.take() {
            legacy.insert(response.headers_mut());
        }
        if let Some(fields) = api_fields {
            fields.insert(response.headers_mut());
        }
    }

    /// Returns the value of `RateLimit-Policy`. Returns `None` if the response has no such field.
    pub(in crate::layer) fn policy(&self) -> Option<HeaderValue> {
        self.rate_limit.as_ref()?;
        match &self.changed_policy {
            Some(policy) => Some((**policy).clone()),
            None => Some(self.found?.compiled.policy.as_ref()?.at(self.at.unwrap_or_default())),
        }
    }

    /// Records the rate limit fields of the response.
    pub(super) fn record_fields(&mut self, charges: &Charges<'_>) {
        let Some(FoundRoute { route, compiled }) = self.found else { return };
        self.rate_limit = compiled.members.rate_limit(charges.decisions());
        let changed = charges.changed_limits();
        let limits = changed.as_deref().unwrap_or(&route.limits);
        self.legacy = route
            .rate_limit_headers
            .legacy
            .then(|| headers::legacy(limits, charges.decisions()))
            .flatten()
            .map(Box::new);
        if let Some(fields) = ApiFields::new(route.rate_limit_headers, charges) {
            self.rare.get_or_insert_default().api_fields = Some(fields);
        }
        let policy = changed.filter(|_| compiled.policy.is_some()).and_then(|limits| Policy::new(&limits));
        self.changed_policy = policy.map(|policy| Box::new(policy.at(charges.decided_at().unwrap_or_default())));
    }

    /// Changes the status of a response to nginx, which turns statuses other than 2xx, 401 and 403 into 500.
    pub(super) fn change_status<B>(&self, response: &mut Response<B>) {
        let Some(Authorize { nginx: true, .. }) = self.rare.as_ref().and_then(|rare| rare.authorize) else { return };
        let status = response.status();
        if status.is_success() {
            return;
        }
        response.headers_mut().insert(X_TIDEGATE_STATUS, status.as_u16().into());
        if status != StatusCode::UNAUTHORIZED {
            *response.status_mut() = StatusCode::FORBIDDEN;
        }
    }
}
