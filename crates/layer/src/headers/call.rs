//! The rate limit fields of a call of the rate limit service, whose limits depend on its descriptors.

use std::fmt::Write;

use http::HeaderValue;

use super::PolicyFields;
use tidegate_rules::charge::Decision;
use tidegate_rules::limits::policy;
use tidegate_rules::rules::{Charges, LimitCharge};

/// Returns the fields of a decided call. Returns `None` if no limit is visible to clients, or if the store did not decide.
/// Of the charges of one limit, the charge with the fewest remaining permits counts.
pub fn of_call(charges: &Charges<'_>) -> Option<PolicyFields> {
    let now = charges.decided_at().filter(|_| !charges.is_local())?;
    let visible = charges.iter().filter(|entry| entry.limit.is_visible_to_clients());
    let mut visible: Vec<_> = visible.filter_map(|entry| Some((entry, entry.decision?))).collect();
    visible.sort_by_key(|(entry, decision)| (entry.index, decision.remaining));
    visible.dedup_by_key(|(entry, _)| entry.index);
    let quotas = visible.iter().map(|(entry, _)| (entry.limit.name.as_str(), &entry.charge.limiter.quota));
    Some(PolicyFields { policy: policy::value(quotas, now)?, rate_limit: rate_limit(&visible)? })
}

/// Returns the value of `RateLimit`, as [`Members`](super::Members) does for the limits of a route.
fn rate_limit(visible: &[(LimitCharge<'_>, &Decision)]) -> Option<HeaderValue> {
    let mut list = String::new();
    for (LimitCharge { limit, .. }, decision) in visible {
        let separator = if list.is_empty() { "" } else { ", " };
        let (remaining, seconds) = (decision.remaining, decision.reset.div_ceil(1_000));
        // Writing to a string cannot fail.
        _ = write!(list, "{separator}\"{}\";r={remaining};t={seconds}", limit.name);
    }
    HeaderValue::try_from(list).ok()
}
