//! The candidate of a limit: a second quota that is evaluated as a shadow.

use std::sync::Arc;

use super::charge_on::time_slot_conflict;
use super::quota::{RateKeys, quota};
use super::{rate_key, spread};
use crate::check::Checked;
use crate::file;
use crate::file::located::Located;
use crate::problem::{Problems, quote};
use tidegate_rules::charge::Limiter;
use tidegate_rules::limits::cost::Cost;
use tidegate_rules::limits::rule::Limit;

/// Returns a shadow limit that differs from `live` only in its quota, name and bucket.
pub(crate) fn candidate<'f>(
    raw: &file::Limit,
    live: &Checked<Limit>,
    mut other_names: impl Iterator<Item = &'f str>,
    problems: &mut Problems,
) -> Checked<Option<Limit>> {
    let Some(quota_keys) = raw.candidate.optional(problems)? else { return Ok(None) };
    let rate = rate_key::fixed(&quota_keys.rate, problems)?;
    let keys = RateKeys { rate, interval: &quota_keys.interval, burst: &quota_keys.burst };
    let quota = quota(quota_keys, keys, None, raw.candidate.location, problems);
    // Without a valid limit, the candidate's name and mode are unknown.
    let (Ok(live), quota) = (live, quota?) else { return Ok(None) };
    let name = format!("{}.candidate", live.name);
    if live.shadow {
        let help = "leave out `shadow`, or use two limits with `shadow: true`";
        let message = "a candidate needs a live limit, and this limit is a shadow";
        return Err(raw.candidate.report(message, help, problems));
    }
    if live.charge_on.is_some() && quota.algorithm().has_time_slots() {
        let message = time_slot_conflict(quota.algorithm().name());
        return Err(raw.candidate.report(message, "use another algorithm for the candidate", problems));
    }
    if other_names.any(|other| other == name) {
        let message =
            format!("the name of this candidate in metrics and keys, {}, is already used by a limit", quote(&name));
        return Err(raw.candidate.report(message, "rename that limit", problems));
    }
    let spread = spread::spread(raw, live.mode(), &quota, problems)?;
    let limiter = Limiter::new(format!("{}.candidate", live.limiter.name), live.mode(), quota);
    let limiter = spread.apply(limiter);
    check_capacity(&live.permits, &limiter, &raw.candidate, problems)?;
    let location = problems.limit_location(raw.candidate.location);
    Ok(Some(Limit { name, limiter: Arc::new(limiter), rates: None, shadow: true, location, ..live.clone() }))
}

/// Reports a candidate whose full bucket has fewer permits than a request may cost.
fn check_capacity<T>(cost: &Cost, limiter: &Limiter, raw: &Located<T>, problems: &mut Problems) -> Checked<()> {
    let max_cost = cost.max();
    // The last shard has the fewest permits.
    let shard = limiter.shards().last();
    let (quota, each) = shard.map_or((&limiter.quota, ""), |shard| (&shard.quota, " in each shard"));
    if max_cost <= quota.capacity() {
        return Ok(());
    }
    let key = if quota.algorithm().burst().is_some() { "burst" } else { "rate" };
    let capacity = quota.capacity();
    let message = format!("the candidate's `{key}` is {capacity}{each}, below the {max_cost} that a request may cost");
    Err(raw.report(message, format!("raise the candidate's `{key}`, or lower the cost"), problems))
}
