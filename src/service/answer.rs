//! The answer to a call, as `envoy.service.ratelimit.v3.RateLimitResponse` has it.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue};

use super::dynamic_metadata;
use super::fields::limit_fields;
use tidegate_layer::headers::retry_after;
use tidegate_layer::layer::DecidedCall;
use tidegate_layer::local_response::LocalResponse;
use tidegate_limit::Wait;
use tidegate_service::{AnswerSettings, Metadata, Status};

/// The answer to a call.
#[derive(Debug, Default)]
pub(super) struct Answer<'d> {
    /// Whether the proxy must reject the request.
    pub(super) is_over: bool,
    /// The status of each descriptor.
    pub(super) statuses: Vec<Status<'d>>,
    /// The fields that the proxy adds to the response for its client.
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    /// The body of the response for the client of the proxy, if the proxy must reject the request: problem details.
    pub(super) body: Vec<u8>,
    /// Data for access logs and filters of the proxy.
    pub(super) dynamic_metadata: Option<Metadata>,
}

impl<'d> Answer<'d> {
    /// Creates the answer to a call with this number of descriptors, none of which has a limit.
    pub(super) fn without_limits(descriptors: usize) -> Self {
        Self { statuses: vec![Status::default(); descriptors], ..Self::default() }
    }

    /// Creates the answer to a decided call.
    pub(super) fn new(decided: &DecidedCall<'d>, settings: &AnswerSettings) -> Self {
        let statuses: Vec<_> = decided.charges.statuses().collect();
        let fields = limit_fields(settings, &decided.charges.charges, &statuses);
        let mut answer = Self { is_over: decided.charges.is_rejected(), statuses, fields, ..Self::default() };
        if answer.is_over {
            answer.add_rejection(&rejection(decided, &answer.statuses));
        }
        answer
    }

    /// Adds the metadata of a call, with the metadata of its rules.
    pub(super) fn with_metadata(mut self, metadata: Option<Metadata>) -> Self {
        self.dynamic_metadata = metadata.map(|mut metadata| {
            dynamic_metadata::add_rules(&mut metadata, &self.statuses);
            metadata
        });
        self
    }

    /// Adds the response for the client of the proxy.
    fn add_rejection(&mut self, rejection: &LocalResponse) {
        self.body = rejection.problem().1;
        self.fields.push((CONTENT_TYPE, HeaderValue::from_static("application/problem+json")));
        self.fields.extend(rejection.retry_after().map(|seconds| (RETRY_AFTER, seconds.into())));
    }
}

/// Returns the response that a gateway would send.
fn rejection(decided: &DecidedCall<'_>, statuses: &[Status<'_>]) -> LocalResponse {
    if decided.has_store_failed {
        return LocalResponse::StoreFailed;
    }
    let of_charges = decided.charges.charges.refusing().chain(decided.charges.banned());
    let of_charges = of_charges.map(|entry| entry.limit.name.as_str());
    let of_rules = statuses.iter().filter(|status| status.is_over).filter_map(|status| status.limit?.name);
    let mut names: Vec<_> = of_charges.collect();
    if names.is_empty() {
        // Limits that reject all requests have no charges.
        names.extend(of_rules);
    }
    LocalResponse::Limited { violated: names.into_iter().collect(), retry_after: retry_after(wait(statuses)) }
}

/// Returns the time until the same call passes: the longest of all statuses that reject it, where the first quota counts that
/// becomes available.
fn wait(statuses: &[Status<'_>]) -> Wait {
    let over =
        |is_quota| statuses.iter().filter(move |status| status.is_over && status.is_quota == is_quota).map(millis);
    let has_passed_quota = statuses.iter().any(|status| status.is_quota && !status.is_over);
    let quotas = over(true).min().filter(|_| !has_passed_quota);
    match over(false).chain(quotas).max() {
        None | Some(u64::MAX) => Wait::Never,
        Some(millis) => Wait::Millis(millis),
    }
}

/// Returns the time until a descriptor passes; [`u64::MAX`] if it never does.
fn millis(status: &Status<'_>) -> u64 {
    status.until_reset.map_or(u64::MAX, |wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn over(millis: Option<u64>, is_quota: bool) -> Status<'static> {
        let until_reset = millis.map(Duration::from_millis);
        Status { is_over: true, until_reset, is_quota, ..Status::default() }
    }

    #[test]
    fn wait_ends_when_all_limits_and_one_quota_pass() {
        let waits = |statuses: &[Status<'_>]| wait(statuses);
        assert_eq!(waits(&[over(Some(5), false), Status::default(), over(Some(7), false)]), Wait::Millis(7));
        assert_eq!(waits(&[over(Some(5), false), over(None, false)]), Wait::Never);
        assert_eq!(waits(&[over(Some(9), true), over(None, true), over(Some(6), true)]), Wait::Millis(6));
        assert_eq!(waits(&[over(Some(9), true), over(Some(20), false)]), Wait::Millis(20));
        let passed = Status { is_quota: true, ..Status::default() };
        assert_eq!(waits(&[over(None, true), passed, over(Some(3), false)]), Wait::Millis(3));
    }
}
