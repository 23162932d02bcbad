//! Evaluates a request as if all limits granted it.

use std::mem::take;

use super::answer::describe;
use super::limits::describe_denial;
use tidegate_config::{Config, quote};
use tidegate_limit::clock::Timestamp;
use tidegate_rules::evaluation::{Answer, Evaluation, Event, Step, Verdict};
use tidegate_rules::request::identity::{IdentityKinds, ServiceCheck, ServiceVerdict};
use tidegate_rules::route::{Authorize, Route};
use tidegate_rules::rules::{Identified, LimitRejection};

/// How the evaluation of a request ends.
#[derive(Debug)]
pub(super) enum Ending<'r> {
    /// The gateway answers and asks no limit.
    Answered {
        status: u16,
        reason: String,
        /// Whether the answer depends on the route, which limits then do not count.
        of_route: bool,
    },
    /// No route matches.
    Unmatched,
    /// A proxy asks about another request.
    Authorize(&'r Route, Authorize),
    /// The limits are asked.
    Asked(Outcome<'r>),
}

/// The answers of the gateway after the limits have decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome<'r> {
    /// If the limits and the service grant the request; `None` if it is forwarded.
    pub(super) granted: Option<Answer<'r>>,
    /// The service that must allow a request that the limits grant.
    pub(super) service: Option<&'r ServiceCheck>,
    /// `None` if the request is forwarded over its limits.
    pub(super) refused: Option<Answer<'r>>,
}

/// Evaluates a request to its end. Services are not asked: they are assumed to allow the request.
pub(super) fn walk<'r>(
    evaluation: &mut Evaluation<'r, '_>,
    (config, now): (&Config, Timestamp),
    body: Option<&[u8]>,
) -> Ending<'r> {
    let (mut event, mut is_decided, mut refused, mut service) = (Event::Done, false, None, None);
    let granted = loop {
        match evaluation.next(take(&mut event)) {
            Step::Found | Step::AdmitQuota | Step::Check(_) | Step::Identified(_) => {}
            Step::ReadBody(reads) => {
                let path = evaluation.facts.path.normalized();
                match body.map_or(Ok(reads.unknown()), |body| reads.read(body, path)) {
                    Ok(body) => evaluation.add_body(body),
                    Err(error) => return answered((400, error.to_string()), true),
                }
            }
            Step::Verify(kinds) => identify(evaluation, kinds, (config, now)),
            Step::Decide(_) => {
                is_decided = true;
                refused = evaluation.on_limit().is_none().then(|| evaluation.refused());
                event = Event::Decided(Verdict::Granted);
            }
            Step::Ask(check) => {
                service = Some(check);
                event = Event::Asked(ServiceVerdict::Allowed);
            }
            Step::Quota(route) => return answer_quota(route, evaluation, config),
            Step::Authorize(route, authorize) => return Ending::Authorize(route, authorize),
            Step::Unmatched => return Ending::Unmatched,
            Step::Respond(answer) => break Some(answer),
            Step::Forward => break None,
        }
    };
    match granted {
        granted if is_decided => Ending::Asked(Outcome { granted, service, refused }),
        Some(answer) => {
            let of_route = matches!(answer, Answer::BadRequest(_) | Answer::BodyTooLong(_) | Answer::Tunnel);
            answered(describe(answer, &evaluation.facts), of_route)
        }
        None => Ending::Unmatched, // only admitted requests are forwarded
    }
}

/// Verifies the credentials of a request.
pub(super) fn identify(evaluation: &mut Evaluation<'_, '_>, kinds: IdentityKinds, (config, now): (&Config, Timestamp)) {
    let Config { verifier, rules, .. } = config;
    let facts = &evaluation.facts;
    let request = Identified { sources: &rules.credentials, facts, client: None, now: now.as_millis() / 1000 };
    let identity = verifier.complete_blocking(verifier.identify(kinds, request), request);
    evaluation.add_identity(identity);
}

fn answer_quota<'r>(route: &'r Route, evaluation: &Evaluation<'r, '_>, config: &Config) -> Ending<'r> {
    if let Some(fault) = evaluation.facts.identity_fault() {
        return answered(describe(Answer::NotIdentified { fault, route }, &evaluation.facts), false);
    }
    let answer = match config.rules.visible_charges(route, &evaluation.facts, |_| true) {
        Ok(_) => (200, format!("the gateway returns the quota of route {}", quote(&route.name))),
        Err(LimitRejection { limit, cause, .. }) => {
            let limit = route.limits.iter().find(|other| other.name == limit);
            (400, limit.map_or_else(String::new, |limit| describe_denial(limit, &cause)))
        }
    };
    answered(answer, false)
}

fn answered<'r>((status, reason): (u16, String), of_route: bool) -> Ending<'r> {
    Ending::Answered { status, reason, of_route }
}
