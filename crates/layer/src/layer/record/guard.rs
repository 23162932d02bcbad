//! Ends a request: counts it, adds the fields to its response, and writes its report.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};

use super::RequestRecord;
use crate::admission::RequestInFlight;
use crate::layer::active::Active;
use crate::layer::report::{ReportHandle, RequestOutcome, RequestReport};
use crate::layer::{LayerState, NotSent};
use tidegate_rules::limits::concurrency::Concurrency;
use tidegate_rules::rules::Charges;

/// A request in flight. If dropped before its end, it is counted and reported without a response, so that disconnects
/// are visible.
pub(in crate::layer) struct RequestGuard<'r> {
    state: &'r LayerState,
    active: &'r Active,
    pub(in crate::layer) record: RequestRecord<'r>,
    /// The handle for the report, if the request has one.
    report: Option<ReportHandle>,
    is_finished: bool,
}

impl<'r> RequestGuard<'r> {
    pub(in crate::layer) fn new(state: &'r LayerState, active: &'r Active, report: Option<ReportHandle>) -> Self {
        let record = RequestRecord { is_reported: report.is_some(), ..RequestRecord::default() };
        Self { state, active, record, report, is_finished: false }
    }

    /// Returns `true` if the charges of an admitted request depend on its response.
    pub(in crate::layer) fn is_charged_by_response<B, E>(&self, response: &Result<Response<B>, E>) -> bool {
        self.record.found.is_some_and(|found| found.compiled.charges_by_response) || !was_sent(response)
    }

    /// Charges an admitted request by its response. An error of the inner service counts as a response with 500.
    pub(in crate::layer) async fn charge_by_response<B, E>(
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
    pub(in crate::layer) fn take_slot(&mut self) -> Option<Box<RequestInFlight>> {
        self.record.rare.as_mut().and_then(|rare| rare.in_flight.as_mut()?.slot.take())
    }

    /// Ends the request with a response, to which the rate limit fields are added.
    pub(in crate::layer) fn finish<B>(mut self, response: &mut Response<B>) {
        self.record.send_lines(Some(response.status()));
        self.record.change_status(response);
        self.record_end(Some(response.status()));
        self.record.add_fields(response);
    }

    /// Ends the request without a response: the inner service failed.
    pub(in crate::layer) fn finish_with_error(mut self) {
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
        if let Some(ReportHandle(slot)) = self.report.take() {
            _ = slot.set(self.report(status, took)); // if the handle is reused, the first report stays
        }
    }

    /// Returns the report, and takes the data that only the report needs.
    fn report(&mut self, status: Option<StatusCode>, took: Duration) -> RequestReport {
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
        RequestReport {
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
