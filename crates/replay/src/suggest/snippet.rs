//! The proposed limit in the form of the rule file.

use super::candidate::Candidate;
use tidegate_config::LimitEntry;
use tidegate_limit::{Algorithm, Mode, Quota};
use tidegate_rules::limits::rule::Limit;

/// Returns the limit with the quota of a candidate, and all other keys of its `entry` in the rule file. Without an entry, it
/// has the most important keys.
pub(super) fn snippet(limit: &Limit, tier: Option<&str>, entry: Option<LimitEntry>, candidate: &Candidate) -> String {
    let Candidate { rate, interval, .. } = candidate;
    if let Some(tier) = tier {
        let mut entry = LimitEntry::new(Some(tier), &[]);
        set_quota(&mut entry, limit, candidate);
        entry.remove("algorithm"); // all tiers of a limit have its algorithm
        return format!("tiers:\n  {entry}");
    }
    if limit.limiter.quota.is_adopted() {
        return format!("# in the Java service: a rate of {rate} in an interval of {interval}");
    }
    let mut entry = entry.unwrap_or_else(|| described(limit));
    if !candidate.present {
        set_quota(&mut entry, limit, candidate);
    }
    entry.to_string()
}

fn set_quota(entry: &mut LimitEntry, limit: &Limit, candidate: &Candidate) {
    entry.set("rate", candidate.rate.to_string());
    entry.set("interval", candidate.interval.clone());
    let before = limit.limiter.quota.algorithm();
    if before.burst().is_none() && candidate.burst.is_some() {
        entry.set("algorithm", "gcra".to_owned());
    }
    match candidate.burst.filter(|burst| *burst != candidate.rate) {
        Some(burst) => entry.set("burst", burst.to_string()),
        None => entry.remove("burst"),
    }
}

/// Describes a limit that is not in a rule file.
fn described(limit: &Limit) -> LimitEntry {
    let name = limit.is_shared.then_some(limit.name.as_str());
    let mut entry = LimitEntry::new(name, &[]);
    if !limit.is_shared {
        entry.set("name", limit.name.clone());
    }
    entry.set("mode", limit.mode().to_string());
    if limit.mode() == Mode::PerClient {
        let client = limit.client.to_string();
        entry.set("client", if client.starts_with('[') { client } else { format!("\"{client}\"") });
    }
    set_present(&mut entry, &limit.limiter.quota);
    entry
}

fn set_present(entry: &mut LimitEntry, quota: &Quota) {
    entry.set("rate", quota.rate().to_string());
    entry.set("interval", tidegate_config::Millis::show(quota.interval()));
    if quota.algorithm() != Algorithm::TokenBucket {
        entry.set("algorithm", quota.algorithm().name().to_owned());
    }
}
