//! The fields by which the APIs of OpenAI and Anthropic report limits of requests and of tokens.

use std::cmp::Reverse;

use http::{HeaderMap, HeaderName, HeaderValue};

use tidegate_limit::clock::Timestamp;
use tidegate_rules::limits::budget::UsageCost;
use tidegate_rules::limits::policy::RateLimitHeaders;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::rules::Charges;

/// The names of the fields of one API, for requests and for tokens: limit, remaining, reset.
type Names = [[HeaderName; 3]; 2];

static OPENAI: Names = [
    [
        HeaderName::from_static("x-ratelimit-limit-requests"),
        HeaderName::from_static("x-ratelimit-remaining-requests"),
        HeaderName::from_static("x-ratelimit-reset-requests"),
    ],
    [
        HeaderName::from_static("x-ratelimit-limit-tokens"),
        HeaderName::from_static("x-ratelimit-remaining-tokens"),
        HeaderName::from_static("x-ratelimit-reset-tokens"),
    ],
];

static ANTHROPIC: Names = [
    [
        HeaderName::from_static("anthropic-ratelimit-requests-limit"),
        HeaderName::from_static("anthropic-ratelimit-requests-remaining"),
        HeaderName::from_static("anthropic-ratelimit-requests-reset"),
    ],
    [
        HeaderName::from_static("anthropic-ratelimit-tokens-limit"),
        HeaderName::from_static("anthropic-ratelimit-tokens-remaining"),
        HeaderName::from_static("anthropic-ratelimit-tokens-reset"),
    ],
];

/// The state of the tightest limit of requests, and of tokens.
#[derive(Clone, Debug)]
pub struct ApiFields {
    states: [Option<State>; 2],
    headers: RateLimitHeaders,
    /// The time of the decisions.
    now: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct State {
    limit: u32,
    remaining: u32,
    /// Milliseconds until the next permit in use returns.
    reset: u64,
}

impl ApiFields {
    /// Returns the fields for a decided request. Limits of tokens and of requests have fields, and costs in other units have none. Returns `None` if
    /// the route sends none, or if the store did not decide.
    pub fn new(headers: RateLimitHeaders, charges: &Charges<'_>) -> Option<Self> {
        let now = charges.decided_at().filter(|_| headers.openai || headers.anthropic)?;
        let tightest = |counts: fn(&Limit) -> bool| {
            let visible = charges.iter().filter(|entry| entry.limit.is_visible_to_clients());
            let counting = visible.filter(|entry| counts(entry.limit));
            let decided = counting.filter_map(|entry| Some((entry.charge.limiter.quota.full(), entry.decision?)));
            let tightest = decided.min_by_key(|(_, decision)| (decision.remaining, Reverse(decision.reset)));
            tightest.map(|(limit, decision)| State { limit, remaining: decision.remaining, reset: decision.reset })
        };
        Some(Self { states: [tightest(counts_requests), tightest(counts_tokens)], headers, now })
    }

    /// Sets the fields of a response. Replaces the fields of an upstream, whose limits the clients do not share.
    pub fn insert(&self, fields: &mut HeaderMap) {
        if self.headers.openai {
            self.insert_named(&OPENAI, span, fields);
        }
        if self.headers.anthropic {
            let at = |reset| self.now.as_millis().saturating_add(reset);
            self.insert_named(&ANTHROPIC, |reset| Timestamp::from_millis(at(reset)).to_rfc3339(), fields);
        }
    }

    fn insert_named(&self, names: &Names, show: impl Fn(u64) -> String, fields: &mut HeaderMap) {
        for ([limit, remaining, reset], state) in names.iter().zip(self.states) {
            let Some(state) = state else { continue };
            fields.insert(limit, state.limit.into());
            fields.insert(remaining, state.remaining.into());
            if let Ok(value) = HeaderValue::try_from(show(state.reset)) {
                fields.insert(reset, value);
            }
        }
    }
}

/// Returns `true` if the permits of a limit are tokens.
pub fn counts_tokens(limit: &Limit) -> bool {
    limit.permits.usage().is_some_and(UsageCost::counts_tokens)
}

/// Returns `true` if the permits of a limit are requests, and not a cost that responses report.
fn counts_requests(limit: &Limit) -> bool {
    limit.permits.usage().is_none()
}

/// Returns a time span as OpenAI writes it: `120ms`, `7s`, `6m0s`, `1h0m0s`.
fn span(millis: u64) -> String {
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    let seconds = millis.div_ceil(1_000);
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn spans_have_the_units_of_openai() {
        let spans = [0, 120, 999, 1_000, 1_001, 59_999, 60_000, 360_000, 3_600_000, 90_061_000].map(span);
        let expected = ["0ms", "120ms", "999ms", "1s", "2s", "1m0s", "1m0s", "6m0s", "1h0m0s", "25h1m1s"];
        assert_eq!(spans, expected);
    }
}
