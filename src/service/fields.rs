//! The fields of an answer for the client of the proxy.

use http::{HeaderName, HeaderValue};

use super::unit::whole_seconds;
use tidegate_layer::headers::{PolicyFields, of_call};
use tidegate_rules::rules::Charges;
use tidegate_service::{AnswerSettings, CurrentLimit, LegacyNames, Status};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Returns the fields that describe limits. In shadow mode, no `ietf` fields: these limits reject no requests.
pub(super) fn limit_fields(
    settings: &AnswerSettings,
    charges: &Charges<'_>,
    statuses: &[Status<'_>],
) -> Vec<(HeaderName, HeaderValue)> {
    let mut fields = Vec::new();
    if settings.headers.ietf
        && let Some(PolicyFields { policy, rate_limit }) = of_call(charges)
    {
        fields.extend([(POLICY, policy), (RATE_LIMIT, rate_limit)]);
    }
    if settings.headers.legacy {
        fields.extend(tightest(statuses).into_iter().flat_map(|found| legacy(&settings.legacy_names, found)));
    }
    fields
}

/// Returns the limit that rejects the call, or else the limit with the fewest remaining requests. Of several that reject it
/// the last, otherwise the first, as envoyproxy/ratelimit.
fn tightest<'s, 'd>(statuses: &'s [Status<'d>]) -> Option<(CurrentLimit<'d>, &'s Status<'d>)> {
    let limited = || statuses.iter().filter_map(|status| Some((status.limit?, status)));
    let rejecting = limited().rfind(|(_, status)| status.is_over && !status.is_quota);
    rejecting.or_else(|| limited().min_by_key(|(_, status)| status.remaining))
}

fn legacy(
    names: &LegacyNames,
    (limit, status): (CurrentLimit<'_>, &Status<'_>),
) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let reset = status.until_reset.map(|reset| (names.reset.clone(), whole_seconds(reset).into()));
    let limit = (names.limit.clone(), limit.requests_per_unit.into());
    [limit, (names.remaining.clone(), status.remaining.into())].into_iter().chain(reset)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tidegate_rules::limits::policy::{RateLimitFields, RateLimitHeaders};

    fn status(requests_per_unit: u32, remaining: u32) -> Status<'static> {
        let limit = Some(CurrentLimit { requests_per_unit, unit: None, name: None });
        Status { limit, remaining, until_reset: Some(Duration::from_millis(1_001)), ..Status::default() }
    }

    /// Returns the values of the legacy fields.
    fn values(statuses: &[Status<'_>]) -> Vec<String> {
        let headers = RateLimitHeaders::new(|fields| fields == RateLimitFields::Legacy);
        let settings = AnswerSettings { headers, ..AnswerSettings::default() };
        let fields = limit_fields(&settings, &Charges::default(), statuses);
        fields.iter().map(|(_, value)| value.to_str().expect("a text").to_owned()).collect()
    }

    #[test]
    fn legacy_fields_describe_the_limit_that_is_nearest() {
        let over = |limit| Status { is_over: true, ..status(limit, 0) };
        let quota = |limit| Status { is_quota: true, ..over(limit) };
        assert_eq!(values(&[Status::default()]), [""; 0]);
        assert_eq!(values(&[status(9, 5), Status::default(), status(7, 2), status(8, 2)]), ["7", "2", "2"]);
        assert_eq!(values(&[status(9, 0), over(7), over(8), quota(5)]), ["8", "0", "2"]);
        assert_eq!(values(&[status(9, 1), quota(5)]), ["5", "0", "2"]);
        let never = Status { until_reset: None, ..over(7) };
        assert_eq!(values(&[never]), ["7", "0"]);
    }
}
