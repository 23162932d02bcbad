//! The filter `RequestRateLimiter` with Redis: a token bucket for each route and key.

use std::time::Duration;

use super::parts::Part;
use super::properties::Properties;
use super::{PREFIXES, properties};
use crate::draft::value::Map;
use crate::draft::{Algorithm, Interval, Limit, Mode};
use crate::report::{Report, Verdict};

/// The largest rate of the rule file.
const MAX: u64 = 2_147_483_648;

/// The most routes with a configuration apart from their filters.
const MAX_CONFIGS: usize = 2_000;

/// The numbers of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Law {
    /// Tokens in a second.
    rate: u64,
    burst: u64,
    /// Tokens of a request.
    requested: u64,
}

/// A limit of a route, with its response.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) limit: Option<Limit>,
    pub(super) reject: Map,
}

/// Reads a filter, and reports its arguments.
pub(super) fn read(part: &Part<'_>, route: &str, documents: &[Properties<'_>], report: &mut Report) -> Found {
    let mut found = Found { limit: None, reject: Map::default() };
    if part.is_short() && !part.values.is_empty() {
        report.lost(&part.place, part.shown(), "the short form has no names of arguments: Spring does not accept it");
        return found;
    }
    if let Some(bean) = part.arg("rate-limiter").filter(|bean| !bean.to_ascii_lowercase().contains("redis")) {
        report.lost(
            &part.place_of("rate-limiter"),
            format!("rate-limiter: {bean}"),
            "the Java code of the bean is not known",
        );
        return found;
    }
    let Some(law) = law(part, route, documents) else {
        report.lost(&part.place, "RequestRateLimiter", "`replenishRate` is not a number above 0, or in Java code only");
        return found;
    };
    let (verdict, reason) = law.difference();
    let shown = format!("RequestRateLimiter: {}, {}, {}", law.rate, law.burst, law.requested);
    report.add(&part.place, verdict, shown, reason);
    if verdict == Verdict::Lost {
        return found;
    }
    let mut limit = law.limit();
    limit.place = Some(part.place.clone());
    read_key(part, &mut limit, report);
    read_empty_key(part, &mut limit, report);
    found.reject = read_status(part, report);
    found.limit = Some(limit);
    found
}

/// Reads the status of the rejection.
fn read_status(part: &Part<'_>, report: &mut Report) -> Map {
    let Some(status) = part.arg("statusCode").or_else(|| part.arg("status-code")) else { return Map::default() };
    let place = part.place_of("statusCode");
    let code = if status.eq_ignore_ascii_case("TOO_MANY_REQUESTS") { Some(429_u16) } else { status.parse().ok() };
    let Some(code) = code.filter(|code| (400..600).contains(code)) else {
        report.lost(&place, format!("statusCode: {status}"), "not the number of a status");
        return Map::default();
    };
    report.same(&place, format!("statusCode: {status}"), "`reject.status`");
    let body = [("body", "Too Many Requests".into()), ("content_type", "text/plain".into())];
    let mut reject = Map::of([("status", u64::from(code).into())]);
    reject.extend(Map::of(body));
    reject
}

/// Returns the numbers of a filter, or of the configuration of its route.
fn law(part: &Part<'_>, route: &str, documents: &[Properties<'_>]) -> Option<Law> {
    let of_route = |key: &str| {
        documents.iter().rev().find_map(|properties| {
            PREFIXES.into_iter().find_map(|prefix| {
                let config = &properties.find(&format!("{prefix}.redis-rate-limiter.config"))?.value;
                let is_small = config.entries().len() <= MAX_CONFIGS;
                let entry = properties::find(config, &format!("{route}.{key}")).filter(|_| is_small)?;
                Some(properties::resolved(entry.value.text()?).0)
            })
        })
    };
    let text = |key: &str| part.arg(&format!("redis-rate-limiter.{key}")).or_else(|| of_route(key));
    let number = |key: &str, default: u64| text(key).map_or(Some(default), |text| text.parse::<u64>().ok());
    let law = Law {
        rate: number("replenishRate", 0)?,
        burst: number("burstCapacity", 1)?,
        requested: number("requestedTokens", 1)?,
    };
    (law.rate > 0 && law.requested > 0 && law.rate <= MAX && law.burst <= MAX).then_some(law)
}

/// Reads the bean that finds the key of a request. Its Java code is not in the file.
fn read_key(part: &Part<'_>, limit: &mut Limit, report: &mut Report) {
    let place = part.place_of("key-resolver");
    let Some(bean) = part.arg("key-resolver") else {
        let reason = "by address instead of the name of the user: set `client`, for example to `jwt:sub`";
        return report.lost(&place, "key-resolver (default)", reason);
    };
    let word = bean.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|part| word.contains(part));
    let (client, reason) = match () {
        () if has(&["path", "uri", "url"]) => {
            ("path", "`client: path`, as the name of the bean suggests: compare it with the Java code")
        }
        () if has(&["ip", "addr", "remote"]) => {
            ("ip", "`client: ip`, as the name of the bean suggests: compare it with the Java code")
        }
        () => {
            ("ip", "by address: set `client` to the part of the request that the bean returns, such as `header:x-user`")
        }
    };
    limit.client = vec![client.to_owned()];
    report.lost(&place, format!("key-resolver: {bean}"), reason);
}

fn read_empty_key(part: &Part<'_>, limit: &mut Limit, report: &mut Report) {
    if let Some(denies) = part.arg("deny-empty-key") {
        if denies == "false" {
            limit.on_missing_client = Some("skip");
        }
        report.same(&part.place_of("deny-empty-key"), format!("deny-empty-key: {denies}"), "`on_missing_client`");
    }
    if let Some(status) = part.arg("empty-key-status") {
        let reason = "requests without a key get 400";
        report.lost(&part.place_of("empty-key-status"), format!("empty-key-status: {status}"), reason);
    }
}

// === impl Law ===

impl Law {
    /// Returns how the limit differs.
    fn difference(self) -> (Verdict, &'static str) {
        match () {
            () if self.burst < self.requested => (Verdict::Lost, "no request has enough tokens: Spring rejects all"),
            // The state expires after twice the time to fill it, in whole seconds: then it is not stored at all.
            () if self.burst.saturating_mul(2) < self.rate => (
                Verdict::Stricter,
                "Spring stores no tokens if the burst is below half of the rate, and limits nothing",
            ),
            () => (Verdict::Same, "`rate`, `interval` and `burst`"),
        }
    }

    /// Returns the limit. If all numbers are multiples of the tokens of a request, a permit is a request.
    fn limit(self) -> Limit {
        let base = Limit {
            name: "rate".to_owned(),
            mode: Mode::PerClient,
            client: vec!["ip".to_owned()],
            algorithm: Some(Algorithm::Gcra),
            on_store_failure: Some("allow"),
            ..Limit::default()
        };
        let seconds = |seconds| Some(Interval::Time(Duration::from_secs(seconds)));
        if !self.burst.is_multiple_of(self.requested) || self.requested > 366 * 86_400 {
            let permits = Some(self.requested.into());
            return Limit { rate: Some(self.rate), interval: seconds(1), burst: Some(self.burst), permits, ..base };
        }
        let divisor = gcd(self.rate, self.requested);
        let burst = Some(self.burst / self.requested);
        Limit { rate: Some(self.rate / divisor), interval: seconds(self.requested / divisor), burst, ..base }
    }
}

fn gcd(left: u64, right: u64) -> u64 {
    if right == 0 { left } else { gcd(right, left % right) }
}
