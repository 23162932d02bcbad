//! Asks a service whether it allows a request that the limits have granted.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tokio::time::Instant;

use super::LayerState;
use super::active::Snapshot;
use super::answered::Answered;
use super::limits::Passed;
use super::record::RequestRecord;
use crate::admission::Permit;
use crate::authorization::{PassedFields, Question, ServiceAnswer};
use crate::local_response::LocalResponse;
use crate::ruleset::FoundRoute;
use tidegate_metrics::ServiceResult;
use tidegate_rules::evaluation::{Answer, Evaluation, Event, Step};
use tidegate_rules::request::identity::{Requirement, ServiceCheck, ServiceVerdict};
use tidegate_rules::rules::Charges;

/// The reason in the access log if a service denies a request.
const DENIED: &str = "service_denied";

/// A request that the limits have granted, and that needs another step.
pub(super) enum Unfinished<'r> {
    /// The service must allow it.
    Ask(Permit, &'r ServiceCheck),
    /// The gateway answers it, and its charges depend on the status.
    Charge(LocalResponse),
}

impl LayerState {
    /// Carries out what few requests need after the limits have granted them. Returns the request if it is forwarded.
    ///
    /// # Errors
    /// The gateway answers the request itself.
    pub(super) async fn finish<'r>(
        &self,
        snapshot: Snapshot<'r>,
        evaluation: &mut Evaluation<'r, '_>,
        unfinished: Unfinished<'r>,
        charges: Charges<'r>,
        record: &mut RequestRecord<'r>,
    ) -> Result<Passed<'r>, LocalResponse> {
        let answered = match unfinished {
            Unfinished::Charge(response) => Answered { response, refunds: false },
            Unfinished::Ask(permit, check) => match self.ask(snapshot, check, evaluation, record).await {
                Ok(()) => return Ok(Passed { permit, charges }),
                Err(answered) => answered,
            },
        };
        let charges_by_response = record.found.is_some_and(|found| found.compiled.charges_by_response);
        if !charges_by_response && !answered.refunds {
            return Err(answered.response);
        }
        Err(record.charge_local_response(charges, snapshot.store, answered).await)
    }

    /// Asks the service. Records the fields for the upstream.
    ///
    /// # Errors
    /// The service denies the request or does not decide, or the route answers it.
    async fn ask<'r>(
        &self,
        snapshot: Snapshot<'r>,
        check: &'r ServiceCheck,
        evaluation: &mut Evaluation<'r, '_>,
        record: &mut RequestRecord<'r>,
    ) -> Result<(), Answered> {
        let charged = |response| Answered { response, refunds: false };
        let rules = &*snapshot.active.rules;
        let facts = &evaluation.facts;
        let (Some(found), Some(service)) = (record.found, rules.service(self.worker)) else {
            return Err(charged(LocalResponse::Internal));
        };
        if check.headers.contains(&AUTHORIZATION) && has_two_credentials(facts.headers) {
            return Err(charged(LocalResponse::Malformed));
        }
        let end = Instant::now() + check.timeout;
        let end_of_request = record.deadline(found, facts).filter(|deadline| *deadline < end);
        let question = Question {
            check,
            facts,
            target: evaluation.target,
            address: rules.client_address(facts),
            client: rules.client_network(facts),
            deadline: end_of_request.unwrap_or(end),
            ends_with_request: end_of_request.is_some(),
        };
        let answer = service.ask(question).await;
        let (verdict, denial) = record.record_answer(found, answer);
        match evaluation.next(Event::Asked(verdict)) {
            Step::Forward => Ok(()),
            Step::Respond(Answer::ServiceDenied | Answer::ServiceFailed) => {
                let (reason, answered) = denial.unwrap_or((DENIED, charged(LocalResponse::Internal)));
                record.reason = Some(reason);
                Err(answered)
            }
            Step::Respond(answer) => Err(charged(self.respond(snapshot, answer, evaluation, None, record))),
            _ => Err(charged(LocalResponse::Internal)), // the service is asked once, before these steps
        }
    }
}

impl<'r> RequestRecord<'r> {
    /// Records the fields that a service passes to the upstream.
    fn record_passed(&mut self, fields: PassedFields) {
        self.rare.get_or_insert_default().passed = Some(fields);
    }

    /// Takes the fields that a service passes to the upstream.
    fn take_passed(&mut self) -> Option<PassedFields> {
        self.rare.as_mut()?.passed.take()
    }

    /// Counts the answer of a service, and records its fields. Returns the reason and the response for a request that the
    /// answer does not admit.
    fn record_answer(
        &mut self,
        found: FoundRoute<'r>,
        answer: ServiceAnswer,
    ) -> (ServiceVerdict, Option<(&'static str, Answered)>) {
        let (result, verdict, denial) = match answer {
            ServiceAnswer::Allowed { fields, is_cached } => {
                self.record_passed(fields);
                let result = if is_cached { ServiceResult::Cached } else { ServiceResult::Allowed };
                (result, ServiceVerdict::Allowed, None)
            }
            ServiceAnswer::Denied(response) => {
                let answered = Answered { response: LocalResponse::ServiceDenied(response), refunds: false };
                (ServiceResult::Denied, ServiceVerdict::Denied, Some((DENIED, answered)))
            }
            ServiceAnswer::Failed(failure) => {
                let reason = failure.reason();
                let response = LocalResponse::ServiceFailed { reason };
                let answered = Answered { response, refunds: failure.refunds() };
                (ServiceResult::Failed, failure.verdict(), Some((reason, answered)))
            }
        };
        if let Some(metrics) = found.compiled.service_checks() {
            metrics.checked(result);
        }
        (verdict, denial)
    }
}

/// Replaces the fields of a request that only services set.
pub(super) fn replace_passed(requirement: &Requirement, fields: &mut HeaderMap, record: &mut RequestRecord<'_>) {
    for name in requirement.passed_fields() {
        fields.remove(name);
    }
    if let Some(passed) = record.take_passed() {
        for (name, value) in passed.iter() {
            fields.append(name, value.clone());
        }
    }
}

/// Returns `true` if a request has two values of `Authorization`: the service and the upstream could read different ones
/// (RFC 9110 section 11.6.2).
fn has_two_credentials(fields: &HeaderMap) -> bool {
    fields.get_all(AUTHORIZATION).iter().nth(1).is_some()
}
