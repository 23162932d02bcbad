//! What clients are told of a route's limits, whatever they have used of them: `RateLimit-Policy`
//! (draft-ietf-httpapi-ratelimit-headers), a List of structured fields (RFC 9651). It is written by hand since names of
//! limits need no escaping.

use std::fmt::Write;

use http::HeaderValue;

use crate::rule::Limit;

/// In which fields clients are told: a route's `headers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// `RateLimit-Policy` and `RateLimit`.
    pub ietf: bool,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub legacy: bool,
}

impl Default for Told {
    fn default() -> Self {
        Self { ietf: true, legacy: false }
    }
}

/// `RateLimit-Policy` of a route: `q` permits, which an unused bucket holds, in the `w` seconds in which so many come; so
/// that what is left is never more than what there is. The same for all answers, so it is made at load.
/// Nothing if the route has no limit that clients are told of.
pub(crate) fn policy(limits: &[Limit]) -> Option<HeaderValue> {
    let mut list = String::new();
    for limit in limits.iter().filter(|limit| limit.is_told()) {
        let quota = &limit.limiter.quota;
        let separator = if list.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        _ = write!(list, "{separator}\"{}\";q={}", limit.name, quota.full());
        // The window is in whole seconds; of one below a second, none is told.
        if quota.refill() >= 1_000 {
            _ = write!(list, ";w={}", quota.refill().div_ceil(1_000));
        }
    }
    (!list.is_empty()).then(|| HeaderValue::try_from(list).ok()).flatten()
}
