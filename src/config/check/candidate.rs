//! The candidate of a limit: a second quota that is evaluated as a shadow.

use std::sync::Arc;

use super::quota::quota;
use super::{Checked, part, spread};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::{Problems, quote};
use crate::cost::Cost;
use crate::limit::{Algorithm, Limiter};
use crate::rule::Limit;

/// Returns a shadow limit that differs from `live` only in its quota, name and bucket.
pub(super) fn candidate<'f>(
    written: Option<&file::Limit>,
    live: &Checked<Limit>,
    node: &Node,
    mut other_names: impl Iterator<Item = &'f str>,
    problems: &mut Problems,
) -> Checked<Option<Limit>> {
    let Some(written) = written else { return Ok(None) };
    let (candidate, at) = (part(&written.candidate, node, "candidate", problems)?, node.at("candidate"));
    let Some(candidate) = candidate else { return Ok(None) };
    let quota = quota(candidate, None, at, problems);
    // Without a valid limit, the candidate's name and mode are unknown.
    let (Ok(live), quota) = (live, quota?) else { return Ok(None) };
    let name = format!("{}.candidate", live.name);
    if live.shadow {
        let help = "leave out `shadow`, or use two limits with `shadow: true`";
        return Err(problems.add(at.location, "a candidate needs a live limit, and this limit is a shadow", help));
    }
    if other_names.any(|other| other == name) {
        let message =
            format!("the name of this candidate in metrics and keys, {}, is already used by a limit", quote(&name));
        return Err(problems.add(at.location, message, "rename that limit"));
    }
    let spread = spread::spread(written, live.mode(), &quota, node, problems)?;
    let limiter = Limiter::new(format!("{}.candidate", live.limiter.name), live.mode(), quota);
    let limiter = spread.apply(limiter);
    check_capacity(&live.permits, &limiter, at, problems)?;
    Ok(Some(Limit { name, limiter: Arc::new(limiter), shadow: true, ..live.clone() }))
}

/// Reports a candidate whose full bucket has fewer permits than a request may cost.
fn check_capacity(cost: &Cost, limiter: &Limiter, node: &Node, problems: &mut Problems) -> Checked<()> {
    let max_cost = match cost {
        Cost::Fixed(permits) => *permits,
        Cost::Header(cost) => cost.max.unwrap_or(0).max(cost.default),
    };
    // The last shard has the fewest permits.
    let shard = limiter.shards().last();
    let (quota, each) = shard.map_or((&limiter.quota, ""), |shard| (&shard.quota, " in each shard"));
    if max_cost <= quota.capacity() {
        return Ok(());
    }
    let key = if matches!(quota.algorithm(), Algorithm::Gcra { .. }) { "burst" } else { "rate" };
    let capacity = quota.capacity();
    let message = format!("the candidate's `{key}` is {capacity}{each}, below the {max_cost} that a request may cost");
    Err(problems.add(node.location, message, format!("raise the candidate's `{key}`, or lower the cost")))
}
