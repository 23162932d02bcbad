//! Records the result of a request for the metrics, the rate limit fields of the response, and the report.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::active::Active;
use super::body::ClientInFlight;
use super::report::{ReportHandle, RequestOutcome, RequestReport};
use super::request_id::X_REQUEST_ID;
use super::{LayerState, NotSent};
use crate::admission::{Admitted, Denial, RequestInFlight, charge_by_response, denying, give_back};
use crate::authorization::PassedFields;
use crate::headers::{self, PolicyFields};
use crate::recording::PendingLine;
use crate::ruleset::{FoundRoute, RuleSet};
use tidegate_limit::clock::{Stopwatch, Timestamp};
use tidegate_metrics::Metrics;
use tidegate_rules::evaluation::Evaluation;
use tidegate_rules::limits::concurrency::Concurrency;
use tidegate_rules::limits::policy::Policy;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::request::identity::Identity;
use tidegate_rules::route::{Action, Authorize, CorsRequest, Route};
use tidegate_rules::rules::Charges;
use tidegate_rules::template::Values;
use tidegate_store::Store;

/// The field with the original status of a rejection that is sent to nginx.
const X_TIDEGATE_STATUS: HeaderName = HeaderName::from_static("x-tidegate-status");

/// The longest part of a customer's id in the report, in bytes. The issuer of a token chooses its length.
const MAX_CUSTOMER: usize = 128;

/// The data of a request for metrics, response fields and the report.
#[derive(Default)]
pub(super) struct RequestRecord<'r> {
    pub(super) found: Option<FoundRoute<'r>>,
    pub(super) outcome: RequestOutcome,
    pub(super) at: Option<Timestamp>,
    rate_limit: Option<HeaderValue>,
    /// Boxed, since few rule files enable these fields.
    legacy: Option<Box<headers::LegacyFields>>,
    /// The policy of the client, if it differs from the policy of the route. Boxed, since that is rare.
    changed_policy: Option<Box<HeaderValue>>,
    /// Whether to record the client and the limit, which only the report needs.
    is_reported: bool,
    /// Whether the limits of the route, or the store's failure, have decided about the request.
    pub(super) is_decided: bool,
    pub(super) client: Option<IpAddr>,
    /// The permits that the limits of the admitted request have taken together.
    permits: u32,
    /// The hash of the client; 0 without one. As bytes, since a `u128` aligns the future of every request to 16 bytes.
    client_key: [u8; 16],
    pub(super) reason: Option<&'static str>,
    pub(super) stopwatch: Stopwatch,
    pub(super) wait: Option<Duration>,
    #[cfg(feature = "otlp")]
    matched: Option<Duration>,
    /// Boxed, since most requests have none of it.
    pub(super) rare: Option<Box<RareData>>,
}

/// The data that only some requests have.
#[derive(Default)]
pub(super) struct RareData {
    request_id: Option<HeaderValue>,
    /// The limit that has refused the request, for the report.
    limit: Option<Arc<str>>,
    /// The id of the customer, for the report.
    customer: Option<Box<str>>,
    /// The CORS fields of a request to a route with `cors`.
    cors: Option<CorsRequest>,
    /// How to answer a proxy that asks for an authorization.
    authorize: Option<Authorize>,
    /// The slot of a request to a route with `concurrency`.
    in_flight: Option<ClientInFlight>,
    /// The fields that a service passes to the upstream.
    pub(super) passed: Option<PassedFields>,
    /// The lines of recordings.
    pub(super) lines: Vec<PendingLine>,
}

/// A request in flight. If dropped before its end, it is counted and reported without a response, so that disconnects
/// are visible.
pub(super) struct RequestGuard<'r> {
    state: &'r LayerState,
    active: &'r Active,
    pub(super) record: RequestRecord<'r>,
    /// The handle for the report, if the request has one.
    report: Option<ReportHandle>,
    is_finished: bool,
}

// === impl RequestGuard ===

impl<'r> RequestGuard<'r> {
    pub(super) fn new(state: &'r LayerState, active: &'r Active, report: Option<ReportHandle>) -> Self {
        let record = RequestRecord { is_reported: report.is_some(), ..RequestRecord::default() };
        Self { state, active, record, report, is_finished: false }
    }

    /// Returns `true` if the charges of an admitted request depend on its response.
    pub(super) fn is_charged_by_response<B, E>(&self, response: &Result<Response<B>, E>) -> bool {
        self.record.found.is_some_and(|found| found.compiled.charges_by_response) || !was_sent(response)
    }

    /// Charges an admitted request by its response. An error of the inner service counts as a response with 500.
    pub(super) async fn charge_by_response<B, E>(
        &mut self,
        charges: Charges<'r>,
        response: Result<Response<B>, E>,
    ) -> Result<Response<B>, E> {
        let status = response.as_ref().map_or(StatusCode::INTERNAL_SERVER_ERROR, Response::status);
        let store = self.state.store(self.active);
        self.record.charge_by_response(charges, store, status, was_sent(&response)).await;
        response
    }

    /// Takes the slot of the request, for the body of its response.
    pub(super) fn take_slot(&mut self) -> Option<Box<RequestInFlight>> {
        self.record.rare.as_mut().and_then(|rare| rare.in_flight.as_mut()?.slot.take())
    }

    /// Ends the request with a response, to which the rate limit fields are added.
    pub(super) fn finish<B>(mut self, response: &mut Response<B>) {
        self.record.send_lines(Some(response.status()));
        self.record.change_status(response);
        self.record_end(Some(response.status()));
        self.record.add_fields(response);
    }

    /// Ends the request without a response: the inner service failed.
    pub(super) fn finish_with_error(mut self) {
        self.record_end(Some(StatusCode::INTERNAL_SERVER_ERROR));
    }

    fn record_end(&mut self, status: Option<StatusCode>) {
        self.is_finished = true;
        self.record.send_lines(status);
        let (counters, took) = (self.active.rules.metrics(self.record.found), self.record.stopwatch.elapsed());
        match status {
            Some(status) => counters.responded(status.as_u16(), took),
            None => {
                counters.abandoned(took);
                self.state.metrics.rejected("client_gone");
            }
        }
        if let Some(ReportHandle(slot)) = &self.report {
            let RequestRecord { outcome, at, client, reason, .. } = self.record;
            let client_key = Some(u128::from_ne_bytes(self.record.client_key)).filter(|key| *key != 0);
            let wait = self.record.wait.or_else(|| (outcome == RequestOutcome::Undecided).then_some(took));
            let reason = reason.or_else(|| self.record.reason_of_failure(status));
            let upstream = self.record.route().filter(|_| reason == Some(Concurrency::POLICY));
            let upstream = upstream.and_then(|route| route.action.upstream().cloned());
            let route = self.record.route().map(|route| Arc::clone(&route.name));
            let rare = self.record.rare.as_mut();
            let (limit, customer) = rare.map(|rare| (rare.limit.take(), rare.customer.take())).unwrap_or_default();
            let request_id = self.record.request_id().cloned();
            let report = RequestReport {
                route,
                outcome,
                at,
                client,
                client_key,
                limit,
                reason,
                customer,
                network: client.map(|client| self.active.rules.rules.addresses.network(client)),
                permits: self.record.permits.into(),
                upstream,
                wait,
                #[cfg(feature = "otlp")]
                matched: self.record.matched,
                request_id,
            };
            _ = slot.set(report); // if the handle is reused, the first report stays
        }
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            let panics = std::thread::panicking().then_some(StatusCode::INTERNAL_SERVER_ERROR);
            self.record_end(panics);
        }
    }
}

/// Returns `false` if a [`NotSent`] marks the response: no upstream has received the request.
fn was_sent<B, E>(response: &Result<Response<B>, E>) -> bool {
    response.as_ref().map_or(true, |response| response.extensions().get::<NotSent>().is_none())
}

// === impl RequestRecord ===

impl<'r> RequestRecord<'r> {
    /// Returns the route of the request, if one matches.
    pub(super) fn route(&self) -> Option<&'r Route> {
        self.found.map(|found| found.route)
    }

    /// Records the client address of a valid request, if the request has a report or `can_be_banned`.
    pub(super) fn record_facts(&mut self, rules: &RuleSet, facts: &Facts<'_>, can_be_banned: bool) {
        self.client = if self.is_reported || can_be_banned { rules.client_address(facts) } else { None };
    }

    /// Records the route of the request, and its origin if the route has `cors`.
    pub(super) fn record_found(&mut self, rules: &'r RuleSet, evaluation: &Evaluation<'r, '_>) {
        self.found = evaluation.route().and_then(|(position, route)| {
            let compiled = rules.compiled(position)?;
            Some(FoundRoute { route, compiled })
        });
        #[cfg(feature = "otlp")]
        if self.is_reported {
            self.matched = Some(self.stopwatch.elapsed());
        }
        let facts = &evaluation.facts;
        if self.route().is_some_and(|route| route.cors.is_some()) {
            self.rare.get_or_insert_default().cors = Some(CorsRequest::new(facts.method, facts.headers));
        }
    }

    pub(super) fn record_id(&mut self, id: HeaderValue) {
        self.rare.get_or_insert_default().request_id = Some(id);
    }

    /// Returns the id of the request, if it has one.
    pub(super) fn request_id(&self) -> Option<&HeaderValue> {
        self.rare.as_ref()?.request_id.as_ref()
    }

    /// Records that a proxy asks for an authorization.
    pub(super) fn record_authorize(&mut self, authorize: Authorize) {
        self.rare.get_or_insert_default().authorize = Some(authorize);
    }

    /// Returns `true` if a proxy asks for an authorization.
    pub(super) fn is_authorization(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.authorize.is_some())
    }

    /// Changes the status of a response to nginx, which turns statuses other than 2xx, 401 and 403 into 500.
    fn change_status<B>(&self, response: &mut Response<B>) {
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

    /// Returns the time since the request was received.
    pub(super) fn elapsed(&self) -> Duration {
        self.stopwatch.elapsed()
    }

    /// Records that the request is rejected for lack of a slot.
    pub(super) fn record_busy(&mut self) {
        self.outcome = RequestOutcome::Limited;
        self.reason = Some(Concurrency::POLICY);
        if self.is_reported {
            self.rare.get_or_insert_default().limit = Some(Concurrency::POLICY.into());
        }
    }

    /// Records the slot of the request, and what its client may have in flight.
    pub(super) fn record_slot(&mut self, in_flight: ClientInFlight) {
        self.rare.get_or_insert_default().in_flight = Some(in_flight);
    }

    /// Records that the limits are going to be evaluated.
    pub(super) fn start_decision(&mut self, charges: &Charges<'_>, store: &Store) {
        if !charges.is_empty() {
            self.outcome = RequestOutcome::Undecided;
            self.record_client_key(charges, store);
        }
    }

    /// Records the hash of the client. The store may know the hash only after the decision.
    pub(super) fn record_client_key(&mut self, charges: &Charges<'_>, store: &Store) {
        if self.is_reported && self.client_key == [0; 16] {
            let key = charges.as_slice().iter().find_map(|charge| store.key_of(charge.client.as_ref()?));
            self.client_key = key.unwrap_or_default().to_ne_bytes();
        }
    }

    pub(super) fn record_decision(&mut self, charges: &Charges<'_>, admitted: &Result<Admitted, Denial>) {
        let (outcome, is_by_limits) = match admitted {
            // The response has the fields of the limits that were evaluated.
            Ok(Admitted { unchecked: Some(_), .. }) => {
                (RequestOutcome::StoreFailed, charges.decisions().next().is_some())
            }
            Ok(_) if charges.is_empty() => (RequestOutcome::Unlimited, false),
            Ok(_) if charges.is_refused_by_shadow() => (RequestOutcome::ShadowLimited, true),
            Ok(_) => (RequestOutcome::Allowed, true),
            Err(Denial::Limited { .. }) => (RequestOutcome::Limited, true),
            Err(Denial::StoreFailed(_)) => (RequestOutcome::StoreFailed, false),
            Err(Denial::Busy { .. }) => (RequestOutcome::Limited, false),
        };
        self.outcome = outcome;
        self.is_decided = true;
        if (self.is_reported || self.rare.is_some()) && !charges.is_empty() {
            self.wait = Some(self.stopwatch.elapsed());
        }
        match admitted {
            Err(denial) if self.is_reported => self.record_limit(charges, denial),
            Ok(_) if self.is_reported => {
                let permits = charges.as_slice().iter().map(|charge| charge.permits);
                self.permits = permits.fold(0, u32::saturating_add);
            }
            _ => {}
        }
        let is_by_store = is_by_limits && !charges.is_local();
        self.at = charges.decided_at().filter(|_| is_by_store);
        if is_by_store {
            self.record_fields(charges);
        }
    }

    /// Charges an admitted request by the status of its response.
    pub(super) async fn charge_by_response(
        &mut self,
        mut charges: Charges<'r>,
        store: &Store,
        status: StatusCode,
        was_sent: bool,
    ) {
        if self.found.is_none() {
            return give_back(&charges, store).await;
        }
        charge_by_response(&mut charges, store, status, was_sent).await;
        if self.at.is_some() {
            self.record_fields(&charges);
        }
    }

    /// Records the rate limit fields of the response.
    fn record_fields(&mut self, charges: &Charges<'_>) {
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
        let policy = changed.filter(|_| compiled.policy.is_some()).and_then(|limits| Policy::new(&limits));
        self.changed_policy = policy.map(|policy| Box::new(policy.at(charges.decided_at().unwrap_or_default())));
    }

    /// Records and counts that a ban rejects the request.
    pub(super) fn record_ban(&mut self, metrics: &Metrics) {
        self.reason = Some("banned");
        metrics.rejected("banned");
    }

    /// Records the start of the id of the customer, for the report.
    pub(super) fn record_customer(&mut self, identity: &Identity) {
        if let Some(customer) = identity.customer().filter(|_| self.is_reported) {
            let longest = customer.len().min(MAX_CUSTOMER);
            let end = (0..=longest).rev().find(|end| customer.is_char_boundary(*end)).unwrap_or(0);
            self.rare.get_or_insert_default().customer = Some(customer[..end].into());
        }
    }

    fn record_limit(&mut self, charges: &Charges<'_>, denial: &Denial) {
        let limit = match denial {
            Denial::Limited { .. } => charges.longest_refusal(),
            Denial::Busy { .. } => return, // recorded with its slot
            Denial::StoreFailed(error) => {
                self.reason = Some("store_failed");
                denying(charges, error)
            }
        };
        if let Some(entry) = limit {
            self.rare.get_or_insert_default().limit = Some(entry.limit.name.as_str().into());
        }
    }

    /// Returns the reason of a server error that the rule file chooses as the response.
    fn reason_of_failure(&self, status: Option<StatusCode>) -> Option<&'static str> {
        let route = self.route().filter(|_| status.is_some_and(|status| status.is_server_error()))?;
        match (self.outcome, &route.action) {
            (RequestOutcome::Limited, _) => Some("limited"),
            (_, Action::Respond(_)) => Some("respond"),
            _ => None,
        }
    }

    /// Returns the value of `RateLimit-Policy`. Returns `None` if the response has no such field.
    pub(super) fn policy(&self) -> Option<HeaderValue> {
        self.rate_limit.as_ref()?;
        match &self.changed_policy {
            Some(policy) => Some((**policy).clone()),
            None => Some(self.found?.compiled.policy.as_ref()?.at(self.at.unwrap_or_default())),
        }
    }

    /// Adds the rate limit fields and the id to the response.
    fn add_fields<B>(&mut self, response: &mut Response<B>) {
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
        let RareData { request_id, cors, in_flight, passed, .. } =
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
    }
}
