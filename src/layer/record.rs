//! What is recorded of a request: for metrics, the answer's fields, and the report.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use http::{HeaderValue, Response, StatusCode};

use crate::admission::{Admitted, Denial, denying};
use crate::clock::{Stopwatch, Timestamp};
use crate::facts::Facts;
use crate::headers;
use crate::metrics::Metrics;
use crate::route::Route;
use crate::rules::Charges;
use crate::ruleset::{CompiledRoute, RuleSet};
use crate::store::Store;

/// What was decided about a request, for the access log.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The route that it took.
    pub route: Option<Arc<str>>,
    /// What its limits said.
    pub outcome: RequestOutcome,
    /// When, by the store's clock; only if the store decided.
    pub at: Option<Timestamp>,
    /// The client's address, past trusted proxies; nothing if the request cannot be judged, or its peer is not
    /// known.
    pub client: Option<IpAddr>,
    /// What stands for the client in the store's keys, of the first limit that knows clients otherwise than by address: a
    /// keyed hash.
    pub client_key: Option<u128>,
    /// The limit that rejected the request: of several, the one with the longest wait.
    pub limit: Option<Arc<str>>,
    /// Why the request was rejected, if no limit did: `store_failed`.
    pub reason: Option<&'static str>,
}

/// Where the layer leaves the [`Report`] of a request: put a clone into the request's extensions, and look here when the
/// answer has come, or will not come any more.
#[derive(Clone, Debug, Default)]
pub struct ReportSlot(Arc<OnceLock<Report>>);

/// What the limits of a route said to a request, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// No limit was asked.
    #[default]
    Unlimited,
    /// All limits granted it.
    Allowed,
    /// All live limits granted it; one that only watches would have refused.
    ShadowLimited,
    /// A limit refused it.
    Limited,
    /// The store did not answer, and `on_store_failure` decided.
    StoreFailed,
    /// The client left before they had spoken: while the store was asked, or a permit was waited for.
    Undecided,
}

/// What is recorded of a request, whatever its outcome.
#[derive(Default)]
pub(super) struct Notes<'r> {
    pub(super) route: Option<(&'r Route, &'r CompiledRoute)>,
    outcome: RequestOutcome,
    at: Option<Timestamp>,
    rate_limit: Option<HeaderValue>,
    legacy: Option<headers::Legacy>,
    /// Whether a report is wanted, which names the client.
    names_client: bool,
    client: Option<IpAddr>,
    client_key: Option<u128>,
    limit: Option<Arc<str>>,
    reason: Option<&'static str>,
}

/// A request under way. On drop, it is counted and reported as abandoned, so clients that always hang up show too.
pub(super) struct Life<'r> {
    metrics: &'r Metrics,
    rules: &'r RuleSet,
    stopwatch: Stopwatch,
    pub(super) notes: Notes<'r>,
    /// Where the report goes, if anybody wants it.
    report: Option<ReportSlot>,
    is_over: bool,
}

// === impl ReportSlot ===

impl ReportSlot {
    /// The report; nothing before the request is over.
    pub fn get(&self) -> Option<&Report> {
        self.0.get()
    }
}

// === impl Life ===

impl<'r> Life<'r> {
    pub(super) fn begin(metrics: &'r Metrics, rules: &'r RuleSet, report: Option<ReportSlot>) -> Self {
        let notes = Notes { names_client: report.is_some(), ..Notes::default() };
        Self { metrics, rules, stopwatch: Stopwatch::start(), notes, report, is_over: false }
    }

    /// Ends with an answer, and adds the rate limit fields.
    pub(super) fn answered<B>(mut self, response: &mut Response<B>) {
        self.end(Some(response.status()));
        self.notes.stamp(response);
    }

    /// Ends without an answer: the service below failed.
    pub(super) fn failed(mut self) {
        self.end(Some(StatusCode::INTERNAL_SERVER_ERROR));
    }

    fn end(&mut self, status: Option<StatusCode>) {
        self.is_over = true;
        let (counters, took) = (self.rules.metrics(self.notes.route), self.stopwatch.elapsed());
        match status {
            Some(status) => counters.answered(status.as_u16(), took),
            None => {
                counters.abandoned(took);
                self.metrics.rejected("client_gone");
            }
        }
        if let Some(ReportSlot(slot)) = &self.report {
            let Notes { route, outcome, at, client, client_key, reason, .. } = self.notes;
            let route = route.map(|(route, _)| Arc::clone(&route.name));
            let report = Report { route, outcome, at, client, client_key, limit: self.notes.limit.take(), reason };
            _ = slot.set(report); // the first one, should a slot be used again
        }
    }
}

impl Drop for Life<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let panics = std::thread::panicking().then_some(StatusCode::INTERNAL_SERVER_ERROR);
            self.end(panics);
        }
    }
}

// === impl Notes ===

impl Notes<'_> {
    /// The request can be judged.
    pub(super) fn judged(&mut self, rules: &RuleSet, facts: &Facts<'_>) {
        self.client = if self.names_client { rules.client_address(facts) } else { None };
    }

    /// Limits are about to be asked.
    pub(super) fn begin_to_decide(&mut self, charges: &Charges<'_>, store: &Store) {
        if !charges.is_empty() {
            self.outcome = RequestOutcome::Undecided;
            self.name_client(charges, store);
        }
    }

    /// Notes what stands for the client. The store may know that only once it has been asked.
    pub(super) fn name_client(&mut self, charges: &Charges<'_>, store: &Store) {
        if self.names_client && self.client_key.is_none() {
            self.client_key = charges.as_slice().iter().find_map(|charge| store.key_of(charge.client.as_ref()?));
        }
    }

    pub(super) fn note(&mut self, charges: &Charges<'_>, admitted: &Result<Admitted, Denial>) {
        let (outcome, status) = match admitted {
            Ok(Admitted { unchecked: Some(_), status, .. }) => {
                // The limits that did speak are told of.
                (RequestOutcome::StoreFailed, Some(status).filter(|status| !status.is_empty()))
            }
            Ok(_) if charges.is_empty() => (RequestOutcome::Unlimited, None),
            Ok(Admitted { status, .. }) if status.shadow_limited => (RequestOutcome::ShadowLimited, Some(status)),
            Ok(Admitted { status, .. }) => (RequestOutcome::Allowed, Some(status)),
            Err(Denial::Limited { status, .. }) => (RequestOutcome::Limited, Some(status)),
            Err(Denial::StoreFailed(_)) => (RequestOutcome::StoreFailed, None),
        };
        self.outcome = outcome;
        if let Err(denial) = admitted
            && self.names_client
        {
            self.name_limit(charges, denial);
        }
        let status = status.filter(|status| status.fallback_cause.is_none());
        self.at = status.map(|status| status.now);
        let (Some((route, compiled)), Some(status)) = (self.route, status) else { return };
        self.rate_limit = compiled.members.rate_limit(status);
        self.legacy = route.rate_limit_headers.legacy.then(|| headers::legacy(&route.limits, status)).flatten();
    }

    /// Notes which limit rejected the request.
    fn name_limit(&mut self, charges: &Charges<'_>, denial: &Denial) {
        let limit = match denial {
            Denial::Limited { status, .. } => {
                let refused = charges.iter().filter(|one| !one.limit.shadow && status.refused(one));
                refused.max_by_key(|one| status.decision(one.index).map(|decision| decision.wait))
            }
            Denial::StoreFailed(error) => {
                self.reason = Some("store_failed");
                denying(charges, error)
            }
        };
        self.limit = limit.map(|one| one.limit.name.as_str().into());
    }

    /// Adds the rate limit fields.
    fn stamp<B>(&mut self, response: &mut Response<B>) {
        if let Some(rate_limit) = self.rate_limit.take() {
            let policy = self.route.and_then(|(_, compiled)| compiled.policy.as_ref());
            let policy = policy.map(|policy| policy.at(self.at.unwrap_or_default()));
            headers::stamp(response.headers_mut(), policy, Some(rate_limit));
        }
        if let Some(legacy) = self.legacy.take() {
            legacy.stamp(response.headers_mut());
        }
    }
}

// === impl RequestOutcome ===

impl RequestOutcome {
    /// The word for it in the access log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unlimited => "unlimited",
            Self::Allowed => "allowed",
            Self::ShadowLimited => "shadow_limited",
            Self::Limited => "limited",
            Self::StoreFailed => "store_failed",
            Self::Undecided => "undecided",
        }
    }
}
