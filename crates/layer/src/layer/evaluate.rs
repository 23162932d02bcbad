//! Carries out the steps of an [`Evaluation`] for a request: with the store, the wait queues and the verified credentials.

use std::pin::Pin;

use super::LayerState;
use super::active::Snapshot;
use super::ask::Unfinished;
use super::builder::Unmatched;
use super::limits::{Decided, Passed};
use super::record::RequestRecord;
use super::request_body;
use crate::admission::{Admitted, Denial, Permit, admit, admit_unlimited};
use crate::local_response::LocalResponse;
use crate::ruleset::{FoundRoute, RuleSet};
use tidegate_rules::evaluation::{Evaluation, Event, Step};
use tidegate_rules::request::facts::Facts;
use tidegate_rules::request::identity::ServiceCheck;
use tidegate_rules::route::Authorize;
use tidegate_rules::rules::Charges;

/// The next step after the limits have decided.
enum Concluded<'r> {
    Forward(Permit),
    Ask(Permit, &'r ServiceCheck),
    /// The gateway answers the request itself. `true` if the limits have granted it.
    Respond(LocalResponse, bool),
}

impl LayerState {
    /// Evaluates a request.
    ///
    /// # Errors
    /// The gateway answers the request itself.
    #[expect(clippy::manual_async_fn, reason = "the future of an async fn stores its arguments twice")]
    pub(super) fn evaluate<'r>(
        &self,
        snapshot: Snapshot<'r>,
        evaluation: &mut Evaluation<'r, '_>,
        record: &mut RequestRecord<'r>,
    ) -> impl Future<Output = Result<Passed<'r>, LocalResponse>> {
        async move {
            let Some(takes_slot) = self.prepare(snapshot, evaluation, record).await? else {
                return Ok(Passed { permit: admit_unlimited().permit, charges: Charges::default() });
            };
            let Some(found @ FoundRoute { route, .. }) = record.found else {
                return Err(LocalResponse::Internal);
            };
            let mut charges = self.charges(snapshot, route, &evaluation.facts, record)?; // 400, 403
            if evaluation.on_limit().is_some() {
                charges.tolerate();
            }
            record.start_decision(&charges, snapshot.store);
            let Snapshot { active, store } = snapshot;
            if active.rules.reads_bodies {
                request_body::reserve(&mut charges, store);
            }
            let concurrency = takes_slot.then(|| active.concurrency(store, route, &evaluation.facts)).flatten();
            let admitted = match concurrency {
                Some(concurrency) => {
                    let facts = &evaluation.facts;
                    Box::pin(self.admit_with_slot(snapshot, facts, concurrency, &mut charges, record)).await
                }
                None => {
                    let waits = record.waits(found, &evaluation.facts);
                    admit(snapshot.store, &self.queues, &mut charges, waits).await
                }
            };
            let admitted = match snapshot.active.rules.reads_bodies {
                true => request_body::keep(admitted, &charges, snapshot.store, record),
                false => admitted,
            };
            // By value, and without guards: the future would keep a borrowed result until its end.
            let unfinished = match self.conclude(snapshot, evaluation, &charges, admitted, record) {
                Concluded::Forward(permit) => return Ok(Passed { permit, charges }),
                Concluded::Ask(permit, check) => Unfinished::Ask(permit, check),
                Concluded::Respond(response, was_granted) => {
                    // Not kept in a variable, as this would be part of the future of each request.
                    let charges_by_response = record.found.is_some_and(|found| found.compiled.charges_by_response);
                    if !was_granted || !charges_by_response {
                        return Err(response);
                    }
                    Unfinished::Charge(response)
                }
            };
            Box::pin(self.finish(snapshot, evaluation, unfinished, charges, record)).await
        }
    }

    /// Carries out the steps before the limits are asked. Returns whether the request also needs a slot, or `None` if it
    /// passes without limits. Futures of rare steps are boxed, so that other requests do not pay for their memory.
    ///
    /// # Errors
    /// The gateway answers the request itself.
    #[expect(clippy::manual_async_fn, reason = "the future of an async fn stores its arguments twice")]
    fn prepare<'r>(
        &self,
        snapshot: Snapshot<'r>,
        evaluation: &mut Evaluation<'r, '_>,
        record: &mut RequestRecord<'r>,
    ) -> impl Future<Output = Result<Option<bool>, LocalResponse>> {
        async move {
            let rules = &*snapshot.active.rules;
            record.record_facts(rules, &evaluation.facts, self.worker.is_some());
            loop {
                match evaluation.next(Event::Done) {
                    Step::Found => record.record_found(rules, evaluation),
                    Step::AdmitQuota => self.quotas.admit(rules.client_network(&evaluation.facts))?, // 429
                    Step::Quota(route) => {
                        return Err(Box::pin(self.quota(snapshot, route, &evaluation.facts, record)).await);
                    }
                    Step::Authorize(_, authorize) => {
                        record.record_authorize(authorize);
                        return Err(self.authorize(snapshot, authorize, evaluation, record).await);
                    }
                    Step::Unmatched => return self.pass_unmatched(rules, evaluation, record), // 404
                    Step::Check(needs) => {
                        self.record_limits(rules, &evaluation.facts, record);
                        if needs.is_some_and(|needs| needs.token || needs.user) {
                            Box::pin(self.reject_before_verification(snapshot, evaluation, record)).await?; // 403, 429
                        }
                    }
                    Step::Verify(kinds) => Box::pin(self.verify(rules, kinds, evaluation)).await,
                    Step::Identified(reads) => {
                        record.record_identity(reads, evaluation.facts.identity.as_deref(), &self.metrics);
                    }
                    Step::ReadBody(reads) => Box::pin(request_body::read_body(reads, evaluation, record)).await?, // 400, 413, 415
                    Step::Decide(takes_slot) => return Ok(Some(takes_slot)),
                    Step::Respond(answer) => return Err(self.respond(snapshot, answer, evaluation, None, record)),
                    // Only admitted requests are forwarded, and services are asked about them only.
                    Step::Ask(_) | Step::Forward => return Err(LocalResponse::Internal),
                }
            }
        }
    }

    /// A proxy has its own routes: without a route here, no limit applies to its request.
    fn pass_unmatched(
        &self,
        rules: &RuleSet,
        evaluation: &Evaluation<'_, '_>,
        record: &mut RequestRecord<'_>,
    ) -> Result<Option<bool>, LocalResponse> {
        if evaluation.is_original() {
            return Err(LocalResponse::Authorized);
        }
        record.record_lines(&self.recorder, rules, &evaluation.facts);
        match self.options.unmatched {
            Unmatched::Pass => Ok(None),
            Unmatched::Reject => Err(LocalResponse::NoRoute),
        }
    }

    /// Records what the limits have decided, and returns the next step.
    fn conclude<'r>(
        &self,
        snapshot: Snapshot<'r>,
        evaluation: &mut Evaluation<'r, '_>,
        charges: &Charges<'r>,
        admitted: Result<Admitted, Denial>,
        record: &mut RequestRecord<'r>,
    ) -> Concluded<'r> {
        let decided = Decided { charges, admitted: &admitted };
        self.record_decided(decided, snapshot.store, record);
        let (step, was_granted) = (evaluation.next(Event::Decided(decided.verdict())), admitted.is_ok());
        if let Step::Respond(answer) = step {
            let response = self.respond(snapshot, answer, evaluation, Some(decided), record);
            return Concluded::Respond(response, was_granted);
        }
        match (step, admitted) {
            (Step::Forward, Ok(Admitted { permit, .. })) => Concluded::Forward(permit),
            (Step::Ask(check), Ok(Admitted { permit, .. })) => Concluded::Ask(permit, check),
            // The limits are asked once, and only granted requests are forwarded.
            _ => Concluded::Respond(LocalResponse::Internal, was_granted),
        }
    }

    /// Records what the limits of a request need.
    fn record_limits(&self, rules: &RuleSet, facts: &Facts<'_>, record: &mut RequestRecord<'_>) {
        record.record_lines(&self.recorder, rules, facts);
        if let (Some(route), None) = (record.route(), facts.peer) {
            self.missing_peer_warning.log_once(&route.limits);
        }
    }

    /// Evaluates the original request of a proxy, and returns the response for the proxy. Nothing is forwarded.
    fn authorize<'f, 'r: 'f>(
        &'f self,
        snapshot: Snapshot<'r>,
        authorize: Authorize,
        evaluation: &'f Evaluation<'r, 'f>,
        record: &'f mut RequestRecord<'r>,
    ) -> Pin<Box<dyn Future<Output = LocalResponse> + Send + 'f>> {
        Box::pin(async move {
            let original = match evaluation.original(authorize) {
                Ok(original) => original,
                Err(answer) => return self.respond(snapshot, answer, evaluation, None, record),
            };
            let mut evaluation = match evaluation.of_original(&original) {
                Ok(evaluation) => evaluation,
                Err(error) => return LocalResponse::from(error),
            };
            match self.evaluate(snapshot, &mut evaluation, record).await {
                Ok(_) => LocalResponse::Authorized,
                Err(response) => response,
            }
        })
    }
}
