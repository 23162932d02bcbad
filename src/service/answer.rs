//! The answer to a call, as `envoy.service.ratelimit.v3.RateLimitResponse` has it.

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue};

use tidegate_layer::headers::{PolicyFields, of_call, retry_after};
use tidegate_layer::layer::DecidedCall;
use tidegate_layer::local_response::LocalResponse;
use tidegate_limit::Wait;
use tidegate_service::Status;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

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
}

impl<'d> Answer<'d> {
    /// Creates the answer to a call with this number of descriptors, none of which has a limit.
    pub(super) fn without_limits(descriptors: usize) -> Self {
        Self { statuses: vec![Status::default(); descriptors], ..Self::default() }
    }

    /// Creates the answer to a decided call.
    pub(super) fn new(decided: &DecidedCall<'d>) -> Self {
        let statuses: Vec<_> = decided.charges.statuses().collect();
        let is_over = statuses.iter().any(|status| status.is_over);
        let mut answer = Self { is_over, statuses, ..Self::default() };
        if let Some(PolicyFields { policy, rate_limit }) = of_call(&decided.charges.charges) {
            answer.fields.extend([(POLICY, policy), (RATE_LIMIT, rate_limit)]);
        }
        if is_over {
            answer.add_rejection(&rejection(decided, &answer.statuses));
        }
        answer
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
    let of_charges = decided.charges.charges.refusing().map(|entry| entry.limit.name.as_str());
    let of_rules = statuses.iter().filter(|status| status.is_over).filter_map(|status| status.limit?.name);
    let mut names: Vec<_> = of_charges.collect();
    if names.is_empty() {
        // Limits that reject all requests have no charges.
        names.extend(of_rules);
    }
    LocalResponse::Limited { violated: names.into_iter().collect(), retry_after: retry_after(wait(statuses)) }
}

/// Returns the time until the same call passes: the longest of all statuses that reject it.
fn wait(statuses: &[Status<'_>]) -> Wait {
    let over = statuses.iter().filter(|status| status.is_over);
    let millis = over.map(|status| status.until_reset.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)));
    millis.max_by_key(|millis| millis.unwrap_or(u64::MAX)).flatten().map_or(Wait::Never, Wait::Millis)
}

/// Rounds a duration up to whole seconds, since proxies ignore fractions: a client that waits that long passes.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
