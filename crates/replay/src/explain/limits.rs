//! Explains the limits of a route: what each charges the request, and when it would grant it.

use std::fmt;
use std::sync::Arc;

use super::Explanation;
use tidegate_config::{Millis, quote};
use tidegate_limit::clock::Timestamp;
use tidegate_limit::{Mode, Wait};
use tidegate_rules::charge::{Charge, ClientId};
use tidegate_rules::limits::cost::Cost;
use tidegate_rules::limits::policy::Policy;
use tidegate_rules::limits::rates::RateOrigin;
use tidegate_rules::limits::rule::{ChargeOn, Limit};
use tidegate_rules::request::facts::Facts;
use tidegate_rules::route::Route;
use tidegate_rules::rules::{LimitCheck, MissingInput};

/// Writes all limits, and the rate limit headers of the response.
pub(super) fn limits(explanation: &Explanation<'_>, route: &Route, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Explanation { checks, facts, now, .. } = explanation;
    if checks.is_empty() {
        return Ok(());
    }
    writeln!(f, "limits: all live limits are charged, or none")?;
    for (number, (limit, check)) in (1..).zip(checks) {
        write!(f, "  {number}. {}", quote(&limit.name))?;
        if limit.is_shared {
            write!(f, " (shared)")?;
        }
        if limit.shadow {
            write!(f, " (shadow)")?;
        }
        writeln!(f, ": {}", describe_check(explanation, limit, check))?;
        quota(limit, check, *now, f)?;
        rate_origin(limit, check, facts, f)?;
    }
    response_headers(route, checks, *now, f)
}

/// Returns the limits as the response reports them.
fn reported_limits(checks: &[(&Limit, LimitCheck)]) -> Vec<Limit> {
    let reported = |(limit, check): &(&Limit, LimitCheck)| match check {
        LimitCheck::Charge(charge) => Limit { limiter: Arc::clone(&charge.limiter), ..(*limit).clone() },
        LimitCheck::Unmet => Limit { shadow: true, ..(*limit).clone() },
        LimitCheck::Skip(_) | LimitCheck::Deny(_) => (*limit).clone(),
    };
    checks.iter().map(reported).collect()
}

/// Describes where the rate of a limit comes from.
fn rate_origin(limit: &Limit, check: &LimitCheck, facts: &Facts<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (Some(rates), LimitCheck::Charge(_)) = (&limit.rates, check) else { return Ok(()) };
    let (by, origin) = (&rates.by, rates.choose(facts).1);
    let (key, value) = match rates.tier(facts) {
        Some(tier) => ("tier", quote(tier)),
        None => ("rate", limit.limiter_for(facts).quota.rate().to_string()),
    };
    write!(f, "     {key:<14}{value}, ")?;
    match origin {
        RateOrigin::Value => writeln!(f, "from {by}"),
        RateOrigin::Bounded => writeln!(f, "the `max`, because {by} is larger"),
        RateOrigin::Raised => writeln!(f, "the smallest that can admit a request, because {by} is smaller"),
        RateOrigin::Missing => writeln!(f, "the default, because {by} is missing"),
        // The value may be a secret.
        RateOrigin::Invalid if key == "tier" => writeln!(f, "the default, because {by} is not a tier"),
        RateOrigin::Invalid => writeln!(f, "the default, because {by} is not a number from 1"),
    }
}

fn response_headers(
    route: &Route,
    checks: &[(&Limit, LimitCheck)],
    now: Timestamp,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let policy = Policy::new(&reported_limits(checks)).map(|policy| policy.at(now));
    match &policy {
        Some(policy) if route.rate_limit_headers.ietf => {
            writeln!(f, "  response header RateLimit-Policy: {}", policy.to_str().unwrap_or_default())?;
        }
        Some(_) if route.rate_limit_headers.legacy => {}
        _ => writeln!(f, "  no rate limit headers in the response")?,
    }
    if policy.is_some() && route.rate_limit_headers.legacy {
        writeln!(
            f,
            "  response headers X-RateLimit-Limit, -Remaining and -Reset of the limit with the fewest permits left"
        )?;
    }
    writeln!(f)
}

/// Describes why a limit cannot determine the client or the cost of the request.
pub(super) fn describe_missing(limit: &Limit, cause: &MissingInput) -> String {
    match (cause, &limit.permits) {
        (MissingInput::Client(cause), _) => format!("client {} {cause}", quote(&limit.client.to_string())),
        (MissingInput::Credentials, _) => "the credentials are missing or not accepted".to_owned(),
        (MissingInput::Body, _) => "the body is unknown".to_owned(),
        (MissingInput::Cost(cause), Cost::Json(cost)) => {
            format!("cost {} {cause}", quote(&format!("json:{}", cost.pointer)))
        }
        (MissingInput::Cost(cause), Cost::Header(cost)) => format!("cost {} {cause}", quote(cost.name.as_str())),
        (MissingInput::Cost(cause), Cost::Fixed(_) | Cost::Usage(_)) => format!("cost {cause}"),
    }
}

/// Describes why a limit rejects the request without a decision of the store.
pub(super) fn describe_denial(limit: &Limit, cause: &MissingInput) -> String {
    format!("{} cannot be evaluated: {}", quote(&limit.name), describe_missing(limit, cause))
}

fn describe_check(explanation: &Explanation<'_>, limit: &Limit, check: &LimitCheck) -> String {
    let reason = explanation.reason_of_check(limit, check).unwrap_or_default();
    match check {
        LimitCheck::Charge(charge) => {
            let (cost, bucket) = (cost(limit, charge, explanation.facts), bucket(limit, charge));
            let condition = limit.charge_on.as_deref().map(describe_outcome).unwrap_or_default();
            format!("{cost} from {bucket}{condition}")
        }
        LimitCheck::Skip(_) | LimitCheck::Unmet => format!("does not count the request, because {reason}"),
        LimitCheck::Deny(_) => format!("rejects the request, because {reason}"),
    }
}

fn describe_outcome(on: &ChargeOn) -> String {
    let statuses: Vec<_> = on.statuses.iter().map(ToString::to_string).collect();
    let refund = if on.reserve { ", refunded" } else { "" };
    format!("{refund} {} the response has status {}", if on.reserve { "unless" } else { "if" }, statuses.join(" or "))
}

fn cost(limit: &Limit, charge: &Charge, facts: &Facts<'_>) -> String {
    let permits = match charge.permits {
        1 => "1 permit".to_owned(),
        permits => format!("{permits} permits"),
    };
    match &limit.permits {
        Cost::Fixed(_) => permits,
        Cost::Usage(_) => format!("{permits} (reserved until the response)"),
        Cost::Json(cost) if facts.body.as_ref().is_some_and(|body| body.value(&cost.pointer).is_some()) => {
            format!("{permits} (from json:{})", cost.pointer)
        }
        Cost::Json(cost) => format!("{permits} (default, without json:{})", cost.pointer),
        Cost::Header(cost) if facts.headers.contains_key(&cost.name) => format!("{permits} (from {})", cost.name),
        Cost::Header(cost) => format!("{permits} (default, without {})", cost.name),
    }
}

fn bucket(limit: &Limit, charge: &Charge) -> String {
    match &charge.client {
        None => "the bucket that all clients share".to_owned(),
        Some(ClientId::Address(network)) => {
            let address = match network.prefix_len() == network.max_prefix_len() {
                true => network.addr().to_string(),
                false => network.to_string(),
            };
            match limit.client {
                tidegate_rules::client::ClientSource::Ip => format!("the bucket of {address}"),
                _ => format!("the bucket of {address}, because {} is missing", quote(&limit.client.to_string())),
            }
        }
        // The value may be a secret.
        Some(ClientId::Value(_) | ClientId::Hash(_) | ClientId::Instance(_)) => {
            format!("the bucket of this {}", quote(&limit.client.to_string()))
        }
    }
}

fn quota(limit: &Limit, check: &LimitCheck, now: Timestamp, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let limiter = match check {
        LimitCheck::Charge(charge) => &charge.limiter,
        LimitCheck::Skip(_) | LimitCheck::Unmet | LimitCheck::Deny(_) => &limit.limiter,
    };
    let (quota, interval) = (&limiter.quota, Millis::show(limiter.quota.interval()));
    let algorithm = quota.algorithm();
    writeln!(f, "     algorithm     {}, {} in {interval}: {}", algorithm.name(), quota.rate(), algorithm.guarantee())?;
    let scope = match limit.mode() {
        Mode::Overall => "for all clients together",
        Mode::PerClient => "for each client",
    };
    writeln!(f, "     at most       {} in any {interval}, {scope}", quota.worst_case())?;
    let LimitCheck::Charge(charge) = check else { return Ok(()) };
    match quota.wait_when_drained(charge.permits, now) {
        Wait::Now => writeln!(f, "     when drained  grants this request immediately"),
        Wait::Millis(wait) if algorithm.calendar().is_some() => {
            writeln!(f, "     when drained  grants this request when the window ends, in {}", format_rounded(wait))
        }
        Wait::Millis(wait) => writeln!(f, "     when drained  grants this request after {}", Millis::show(wait)),
        Wait::Never => writeln!(f, "     never grants this request: it costs more permits than the limit can hold"),
    }
}

/// Formats a duration in its largest unit and the next smaller one, rounded up: `6d 12h`.
fn format_rounded(millis: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let seconds = millis.div_ceil(1_000);
    let largest = UNITS.iter().position(|(_, length)| seconds >= *length).unwrap_or(UNITS.len() - 1);
    let (unit, length) = UNITS[largest];
    let Some((smaller, step)) = UNITS.get(largest + 1) else { return format!("{seconds}{unit}") };
    let seconds = seconds.next_multiple_of(*step);
    match seconds % length / step {
        0 => format!("{}{unit}", seconds / length),
        rest => format!("{}{unit} {rest}{smaller}", seconds / length),
    }
}
