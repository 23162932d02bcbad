//! The `RateLimit-Policy` header of a route (draft-ietf-httpapi-ratelimit-headers): the quotas of its visible limits,
//! not their current state. It is a structured field List (RFC 9651), written without a library since names of limits need
//! no escaping.

use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderValue;

use crate::limits::rule::Limit;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::text::words::words;
use tidegate_limit::{Algorithm, Quota};

words! {
    /// Response fields that describe limits.
    pub enum RateLimitFields {
        /// `RateLimit-Policy` and `RateLimit`.
        Ietf = "ietf",
        /// `X-RateLimit-*`.
        Legacy = "legacy",
        /// The fields of OpenAI's API: `x-ratelimit-limit-requests`, `x-ratelimit-limit-tokens` and others.
        OpenAi = "openai",
        /// The fields of Anthropic's API: `anthropic-ratelimit-requests-limit`, `anthropic-ratelimit-tokens-limit` and others.
        Anthropic = "anthropic",
    }
}

/// The rate limit headers of responses: the `headers` of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitHeaders {
    /// `RateLimit-Policy` and `RateLimit`.
    pub ietf: bool,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub legacy: bool,
    /// The fields of OpenAI's API.
    pub openai: bool,
    /// The fields of Anthropic's API.
    pub anthropic: bool,
}

impl RateLimitHeaders {
    /// Creates the headers with these fields.
    pub fn new(has: impl Fn(RateLimitFields) -> bool) -> Self {
        use RateLimitFields::{Anthropic, Ietf, Legacy, OpenAi};
        Self { ietf: has(Ietf), legacy: has(Legacy), openai: has(OpenAi), anthropic: has(Anthropic) }
    }
}

impl Default for RateLimitHeaders {
    fn default() -> Self {
        Self { ietf: true, legacy: false, openai: false, anthropic: false }
    }
}

/// `RateLimit-Policy` of a route: `q` is the permits of an unused bucket, and all permits of an exhausted bucket are
/// available again after at most `w` seconds. So in `RateLimit`, `r` is at most `q`, and `t` at most `w`.
#[derive(Debug)]
pub enum Policy {
    /// Does not change with time, so it is made once.
    Constant(HeaderValue),
    /// At least one calendar window varies in length.
    ByCalendar(Box<ByCalendar>),
}

/// The limits, and the value at present.
#[derive(Debug)]
pub struct ByCalendar {
    /// The names and quotas of the limits.
    limits: Vec<(String, Quota)>,
    current: ArcSwap<Current>,
}

#[derive(Debug)]
struct Current {
    value: HeaderValue,
    valid: Range<Timestamp>,
}

impl Policy {
    /// Returns `None` if the route has no limit that is visible to clients.
    pub fn new(limits: &[Limit]) -> Option<Self> {
        let visible = limits.iter().filter(|limit| limit.is_visible_to_clients());
        let limits: Vec<_> = visible.map(|limit| (limit.name.clone(), limit.limiter.quota)).collect();
        let current = Current::new(&limits, Timestamp::default())?;
        if !limits.iter().any(|(_, quota)| quota.refill_time_varies()) {
            return Some(Self::Constant(current.value));
        }
        Some(Self::ByCalendar(Box::new(ByCalendar { limits, current: ArcSwap::from_pointee(current) })))
    }

    /// Returns the value at a time of the store's clock.
    pub fn at(&self, now: Timestamp) -> HeaderValue {
        match self {
            Self::Constant(value) => value.clone(),
            Self::ByCalendar(policy) => policy.at(now),
        }
    }
}

impl ByCalendar {
    fn at(&self, now: Timestamp) -> HeaderValue {
        let current = self.current.load();
        if current.valid.contains(&now) {
            return current.value.clone();
        }
        let Some(next) = Current::new(&self.limits, now) else { return current.value.clone() };
        let value = next.value.clone();
        self.current.store(Arc::new(next));
        value
    }
}

impl Current {
    fn new(limits: &[(String, Quota)], now: Timestamp) -> Option<Self> {
        let value = value(limits.iter().map(|(name, quota)| (name.as_str(), quota)), now)?;
        Some(Self { value, valid: valid(limits, now) })
    }
}

/// Returns the value of the header for limits with these names and quotas, at a time of the store's clock. Returns `None`
/// without limits.
pub fn value<'q>(limits: impl Iterator<Item = (&'q str, &'q Quota)>, now: Timestamp) -> Option<HeaderValue> {
    let mut list = String::new();
    for (name, quota) in limits {
        let separator = if list.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        _ = write!(list, "{separator}\"{name}\";q={}", quota.full());
        // The window is in whole seconds, and is omitted below one second.
        let refill = quota.refill(now);
        if refill >= 1_000 {
            _ = write!(list, ";w={}", refill.div_ceil(1_000));
        }
    }
    (!list.is_empty()).then(|| HeaderValue::try_from(list).ok()).flatten()
}

/// Returns the time span around `now` in which no window of varying length begins or ends.
fn valid(limits: &[(String, Quota)], now: Timestamp) -> Range<Timestamp> {
    let mut valid = Timestamp::default()..Timestamp::from_millis(u64::MAX);
    for (_, quota) in limits {
        if let Algorithm::FixedWindow(calendar) = quota.algorithm()
            && calendar.varies()
        {
            let window = calendar.window(now);
            valid = valid.start.max(window.start)..valid.end.min(window.end);
        }
    }
    valid
}
