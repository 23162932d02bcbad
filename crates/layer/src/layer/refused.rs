//! The response to a request that limits refuse, in the form of another API.

use std::cmp::Reverse;

use super::limits::Decided;
use super::record::RequestRecord;
use crate::admission::Denial;
use crate::headers::api::counts_tokens;
use crate::local_response::preset::{Refusal, response};
use crate::local_response::{GrpcCall, LocalResponse};
use tidegate_rules::request::facts::Facts;
use tidegate_rules::route::RejectionPreset;

/// Returns the response in this form. Returns `None` for gRPC calls, which have their own.
pub(super) fn refused(
    preset: RejectionPreset,
    facts: &Facts<'_>,
    decided: Decided<'_>,
    record: &RequestRecord<'_>,
) -> Option<LocalResponse> {
    let Err(Denial::Limited { wait, .. }) = decided.admitted else { return None };
    if GrpcCall::detect(facts.method, facts.headers).is_some() {
        return None;
    }
    let mut refusing: Vec<_> = decided.charges.refusing().collect();
    refusing.sort_by_key(|entry| Reverse(entry.decision.map(|decision| decision.wait)));
    let mut limits: Vec<&str> = Vec::with_capacity(refusing.len());
    for entry in &refusing {
        if !limits.contains(&entry.limit.name.as_str()) {
            limits.push(&entry.limit.name);
        }
    }
    let refusal = Refusal {
        limits: &limits,
        counts_tokens: refusing.first().is_some_and(|entry| counts_tokens(entry.limit)),
        wait: *wait,
        request_id: record.request_id().and_then(|id| id.to_str().ok()),
        body: facts.body.as_deref(),
    };
    Some(LocalResponse::Configured(Box::new(response(preset, refusal))))
}
