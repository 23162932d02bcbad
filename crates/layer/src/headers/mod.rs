//! Rate limit fields of responses: `RateLimit-Policy`, `RateLimit` (draft-ietf-httpapi-ratelimit-headers),
//! `X-RateLimit-*` and `Retry-After` (RFC 9110 section 10.2.3).
//!
//! [`policy`](tidegate_rules::limits::policy) makes the value of `RateLimit-Policy`. Only PER_CLIENT limits are visible
//! to clients: the state of an OVERALL limit is for operators. Shadow limits are invisible, because they reject no
//! requests.

pub mod api;
mod call;
mod rename;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

pub use self::call::of_call;
use self::rename::PolicyNames;
use tidegate_limit::Wait;
use tidegate_rules::charge::Decision;
use tidegate_rules::limits::concurrency::Concurrency;
use tidegate_rules::limits::rule::Limit;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The constant start of the `RateLimit` member of each limit of a route, such as `"name";r=`. `None` for limits that
/// are not visible to clients.
#[derive(Debug, Default)]
pub struct Members(Vec<Option<Box<str>>>);

impl Members {
    /// Creates the members for the limits of a route.
    pub fn new(limits: &[Limit]) -> Self {
        let member = |limit: &Limit| limit.is_visible_to_clients().then(|| format!("\"{}\";r=", limit.name).into());
        Self(limits.iter().map(member).collect())
    }

    /// Returns the value of `RateLimit`: `r` permits remain, and in `t` seconds the oldest used permit becomes
    /// available.
    ///
    /// `decisions` has the position of the limit of each.
    pub fn rate_limit<'d>(&self, decisions: impl Iterator<Item = (usize, &'d Decision)>) -> Option<HeaderValue> {
        let mut list = String::new();
        let mut decisions = decisions.peekable();
        while let Some((index, mut decision)) = decisions.next() {
            // A batch can have several decisions of a limit, one after the other.
            while let Some((_, other)) = decisions.next_if(|(next, _)| *next == index) {
                decision = if other.remaining < decision.remaining { other } else { decision };
            }
            let Some(member) = self.0.get(index).and_then(Option::as_deref) else { continue };
            let (mut remaining, mut seconds) = (itoa::Buffer::new(), itoa::Buffer::new());
            let (remaining, seconds) =
                (remaining.format(decision.remaining), seconds.format(decision.reset.div_ceil(1_000)));
            // Without spare capacity, so that `Bytes` can take over the allocation.
            list = match list.is_empty() {
                true => [member, remaining, ";t=", seconds].concat(),
                false => [&list, ", ", member, remaining, ";t=", seconds].concat(),
            };
        }
        (!list.is_empty()).then(|| HeaderValue::from_maybe_shared(Bytes::from(list)).ok()).flatten()
    }
}

/// The values of `X-RateLimit-*`, which describe one limit: the limit with the fewest remaining permits, and among
/// equals the limit that resets last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegacyFields {
    rate: u32,
    remaining: u32,
    /// The seconds until the reset.
    reset: u64,
}

/// Returns the values of `X-RateLimit-*`, or `None` if no visible limit was evaluated.
///
/// `decisions` has the position of the limit of each.
pub fn legacy<'d>(limits: &[Limit], decisions: impl Iterator<Item = (usize, &'d Decision)>) -> Option<LegacyFields> {
    let decisions = decisions.filter_map(|(index, decision)| Some((limits.get(index)?, decision)));
    let visible = decisions.filter(|(limit, _)| limit.is_visible_to_clients());
    let (limit, decision) =
        visible.min_by_key(|(_, decision)| (decision.remaining, std::cmp::Reverse(decision.reset)))?;
    let (rate, reset) = (limit.limiter.quota.full(), decision.reset.div_ceil(1_000));
    Some(LegacyFields { rate, remaining: decision.remaining, reset })
}

impl LegacyFields {
    /// Sets the fields of a response. Replaces the fields of an upstream, because these fields must not be repeated.
    pub fn insert(self, headers: &mut HeaderMap) {
        headers.insert(X_LIMIT, self.rate.into());
        headers.insert(X_REMAINING, self.remaining.into());
        headers.insert(X_RESET, self.reset.into());
    }
}

/// The values of `RateLimit-Policy` and `RateLimit`.
#[derive(Clone, Debug)]
pub struct PolicyFields {
    pub policy: HeaderValue,
    pub rate_limit: HeaderValue,
}

/// Adds `RateLimit-Policy` and `RateLimit` to a response, before the fields of an upstream: a client must observe both.
/// Renames policies of the upstream that have a name of these policies.
pub fn insert(headers: &mut HeaderMap, own: [Option<PolicyFields>; 2]) {
    let names = [POLICY, RATE_LIMIT];
    if own.iter().all(Option::is_none) {
        return;
    }
    let mut renamed = None;
    if names.iter().any(|name| headers.contains_key(name)) {
        let mut policies = PolicyNames::default();
        own.iter().flatten().for_each(|fields| policies.add_own(&fields.policy));
        renamed = Some(names.clone().map(|name| {
            let values: Vec<_> = headers.get_all(&name).iter().cloned().collect();
            headers.remove(&name);
            values.into_iter().map(|value| policies.rename(value)).collect::<Vec<_>>()
        }));
    }
    for PolicyFields { policy, rate_limit } in own.into_iter().flatten() {
        headers.append(POLICY, policy);
        headers.append(RATE_LIMIT, rate_limit);
    }
    for (name, values) in names.iter().zip(renamed.into_iter().flatten()) {
        values.into_iter().for_each(|value| _ = headers.append(name, value));
    }
}

/// Returns the fields of the requests in flight of a client, of which `remaining` more can be taken.
pub fn in_flight(per_client: u32, remaining: u32) -> Option<PolicyFields> {
    let policy = format!("\"{}\";q={per_client};qu=\"concurrent-requests\"", Concurrency::POLICY);
    let rate_limit = format!("\"{}\";r={remaining}", Concurrency::POLICY);
    Some(PolicyFields {
        policy: HeaderValue::try_from(policy).ok()?,
        rate_limit: HeaderValue::try_from(rate_limit).ok()?,
    })
}

/// Returns the value of `Retry-After`: whole seconds, rounded up, at least 1. Returns `None` if no wait helps.
pub fn retry_after(wait: Wait) -> Option<u64> {
    match wait {
        Wait::Now => Some(1),
        Wait::Millis(wait) => Some(wait.div_ceil(1_000).max(1)),
        Wait::Never => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfv::{ListEntry, Parser};

    use super::*;
    use tidegate_limit::calendar::{Calendar, Unit};
    use tidegate_limit::clock::Timestamp;
    use tidegate_limit::{Algorithm, BucketState, Mode, Quota};
    use tidegate_rules::charge::Limiter;
    use tidegate_rules::limits::policy::Policy;

    fn limit(name: &str, mode: Mode, rate: u64, interval: u64) -> Limit {
        let quota = Quota::new(rate, interval, Algorithm::TokenBucket).expect("a quota");
        Limit::new(name.into(), Arc::new(Limiter::new(name.into(), mode, quota)))
    }

    fn parsed(value: Option<HeaderValue>) -> Vec<String> {
        let value = value.expect("a value");
        let list: sfv::List = Parser::new(value.as_bytes()).parse().expect("a structured field list");
        let item = |entry: &ListEntry| match entry {
            ListEntry::Item(item) => {
                assert!(item.bare_item.as_string().is_some(), "the name is no string: {item:?}");
                format!("{:?} {:?}", item.bare_item, item.params)
            }
            ListEntry::InnerList(list) => panic!("an inner list: {list:?}"),
        };
        list.iter().map(item).collect()
    }

    #[test]
    fn fields_contain_only_per_client_limits() {
        let limits = [
            limit("total", Mode::Overall, 1_000, 1_000),
            limit("per-ip", Mode::PerClient, 5, 60_000),
            limit("burst", Mode::PerClient, 2, 500),
        ];
        let policy = Policy::new(&limits).map(|policy| policy.at(Timestamp::default()));
        assert_eq!(policy.as_ref().map(HeaderValue::as_bytes), Some(&b"\"per-ip\";q=5;w=60, \"burst\";q=2"[..]));
        assert_eq!(parsed(policy).len(), 2);

        let decision = Decision::new(4, Wait::Now, 59_001);
        let rate_limit = Members::new(&limits).rate_limit([decision; 3].iter().enumerate());
        assert_eq!(
            rate_limit.as_ref().map(HeaderValue::as_bytes),
            Some(&b"\"per-ip\";r=4;t=60, \"burst\";r=4;t=60"[..])
        );
        assert_eq!(parsed(rate_limit).len(), 2);
    }

    /// Regression test: a month had 31 days in November, and a sliding window one interval.
    #[test]
    fn t_never_exceeds_w_in_any_window() {
        const HOUR: u64 = 3_600_000;
        let fixed = |unit, zone| Algorithm::FixedWindow(Calendar::new(unit, zone).expect("a calendar"));
        let algorithms = [
            (fixed(Unit::Month, "UTC"), 0),
            (fixed(Unit::Day, "Europe/Rome"), 0),
            (fixed(Unit::Hour, "UTC"), 0),
            (Algorithm::SlidingWindow { segments: 7 }, 60_000),
            (Algorithm::TokenBucket, 60_000),
            (Algorithm::Gcra { burst: 20 }, 60_000),
        ];
        for (algorithm, interval) in algorithms {
            let quota = Quota::new(6, interval, algorithm).expect("a quota");
            let limiter = Arc::new(Limiter::new("own".into(), Mode::PerClient, quota));
            let limits = [Limit { limiter, ..limit("own", Mode::PerClient, 6, 60_000) }];
            let policy = Policy::new(&limits).expect("a policy");
            // A year of hours, with all lengths of months, and days of 23 and 25 hours.
            for now in (0..24 * 366).map(|hour| Timestamp::from_millis(1_774_738_800_000 + hour * HOUR)) {
                let mut state = BucketState::EMPTY;
                let taken = state.charge(&quota, 6, now);
                let value = policy.at(now);
                let window: u64 =
                    value.to_str().ok().and_then(|text| text.rsplit_once("w=")?.1.parse().ok()).expect("w");
                assert!(taken.reset.div_ceil(1_000) <= window, "{algorithm:?} at {now:?}: {} of {window}", taken.reset);
            }
        }
    }

    #[test]
    fn policy_has_the_length_of_the_current_month() {
        let calendar = Calendar::new(Unit::Month, "UTC").expect("a calendar");
        let quota = Quota::new(6, 0, Algorithm::FixedWindow(calendar)).expect("a quota");
        let limiter = Arc::new(Limiter::new("own".into(), Mode::PerClient, quota));
        let policy = Policy::new(&[Limit { limiter, ..limit("own", Mode::PerClient, 6, 60_000) }]).expect("a policy");
        // In November, in December, in November again after the clock went back, in a February of 28 days.
        for (seconds, days) in [(1_795_521_600, 30), (1_796_083_200, 31), (1_795_521_600, 30), (1_770_000_000, 28)] {
            let value = policy.at(Timestamp::from_millis(seconds * 1_000));
            assert_eq!(value, format!("\"own\";q=6;w={}", days * 86_400).as_str());
        }
    }

    #[test]
    fn legacy_fields_describe_the_tightest_limit() {
        let limits = [
            limit("total", Mode::Overall, 1_000, 1_000),
            limit("wide", Mode::PerClient, 50, 60_000),
            limit("tight", Mode::PerClient, 5, 1_000),
            limit("slow", Mode::PerClient, 9, 60_000),
        ];
        let decision = |remaining, reset| Decision::new(remaining, Wait::Now, reset);
        let decisions = [decision(0, 1), decision(40, 1), decision(3, 900), decision(3, 59_001)];
        let fields = LegacyFields { rate: 9, remaining: 3, reset: 60 };
        assert_eq!(legacy(&limits, decisions.iter().enumerate()), Some(fields));
        assert_eq!(legacy(&limits, decisions.iter().enumerate().take(1)), None);
    }

    #[test]
    fn retry_after_is_rounded_up_to_whole_seconds() {
        let seconds = [0, 1, 999, 1_000, 1_001, 59_999].map(|wait| retry_after(Wait::Millis(wait)));
        assert_eq!(seconds, [Some(1), Some(1), Some(1), Some(1), Some(2), Some(60)]);
        assert_eq!(retry_after(Wait::Never), None);
    }
}
