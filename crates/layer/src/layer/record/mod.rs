//! Records the result of a request for the metrics, the rate limit fields of the response, and the report.

pub(super) mod guard;

mod fields;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};

use super::body::ClientInFlight;
use super::held_body::HeldBody;
use super::report::RequestOutcome;
use crate::admission::{Admitted, Denial, charge_by_response, denying, give_back};
use crate::authorization::PassedFields;
use crate::headers;
use crate::headers::api::ApiFields;
use crate::recording::PendingLine;
use crate::ruleset::{FoundRoute, RuleSet};
use tidegate_limit::clock::{Stopwatch, Timestamp};
use tidegate_metrics::Metrics;
use tidegate_rules::evaluation::Evaluation;
use tidegate_rules::limits::concurrency::Concurrency;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::request::identity::Identity;
use tidegate_rules::route::{Action, Authorize, CorsRequest, Route};
use tidegate_rules::rules::Charges;
use tidegate_store::Store;

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
    /// The body, if a limit depends on it.
    body: Option<HeldBody>,
    /// The rate limit fields of other APIs.
    api_fields: Option<ApiFields>,
}

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

    /// Returns the body of the request, for limits that depend on it.
    pub(super) fn body(&mut self) -> &mut HeldBody {
        self.rare.get_or_insert_default().body.get_or_insert_default()
    }

    /// Takes the body of the request, if a limit can depend on it.
    pub(super) fn take_body(&mut self) -> Option<HeldBody> {
        self.rare.as_mut()?.body.take()
    }

    /// Records that a proxy asks for an authorization.
    pub(super) fn record_authorize(&mut self, authorize: Authorize) {
        self.rare.get_or_insert_default().authorize = Some(authorize);
    }

    /// Returns `true` if a proxy asks for an authorization.
    pub(super) fn is_authorization(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.authorize.is_some())
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
}
