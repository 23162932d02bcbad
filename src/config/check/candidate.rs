//! A second quota beside a live limit, judged in shadow: what would be refused if it were in its place.

use std::sync::Arc;

use super::quota::quota;
use super::{Checked, part, spread};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::{Problems, quote};
use crate::cost::Cost;
use crate::limit::{Algorithm, Limiter};
use crate::rule::Limit;

/// The limit that watches beside `live`: the same but for its quota, its name and its bucket.
pub(super) fn candidate<'f>(
    written: Option<&file::Limit>,
    live: &Checked<Limit>,
    node: &Node,
    mut others: impl Iterator<Item = &'f str>,
    problems: &mut Problems,
) -> Checked<Option<Limit>> {
    let Some(written) = written else { return Ok(None) };
    let (candidate, at) = (part(&written.candidate, node, "candidate", problems)?, node.at("candidate"));
    let Some(candidate) = candidate else { return Ok(None) };
    let quota = quota(candidate, None, at, problems);
    // A limit that is broken has been reported; what stands beside it cannot be told.
    let (Ok(live), quota) = (live, quota?) else { return Ok(None) };
    let name = format!("{}.candidate", live.name);
    if live.shadow {
        let help = "leave out `shadow`, or write two limits with `shadow: true`";
        return Err(problems.add(
            at.location,
            "a candidate stands beside a live limit, and this one is a shadow",
            help,
        ));
    }
    if others.any(|other| other == name) {
        let message = format!("{} is the name of a limit, and of this candidate in metrics and keys", quote(&name));
        return Err(problems.add(at.location, message, "give that limit another name"));
    }
    let parts = spread::parts(written, live.mode(), &quota, node, problems)?;
    let limiter = Limiter::new(format!("{}.candidate", live.limiter.name), live.mode(), quota);
    let limiter = parts.spread(limiter);
    payable(&live.permits, &limiter, at, problems)?;
    Ok(Some(Limit { name, limiter: Arc::new(limiter), shadow: true, ..live.clone() }))
}

/// Can a bucket that is full pay for the dearest request?
fn payable(cost: &Cost, limiter: &Limiter, node: &Node, problems: &mut Problems) -> Checked<()> {
    let dearest = match cost {
        Cost::Fixed(permits) => *permits,
        Cost::Header(cost) => cost.max.unwrap_or(0).max(cost.default),
    };
    // The last shard has the fewest permits.
    let shard = limiter.shards().last();
    let (quota, each) = shard.map_or((&limiter.quota, ""), |shard| (&shard.quota, " in each shard"));
    if dearest <= quota.capacity() {
        return Ok(());
    }
    let key = if matches!(quota.algorithm(), Algorithm::Gcra { .. }) { "burst" } else { "rate" };
    let capacity = quota.capacity();
    let message = format!("the candidate's `{key}` is {capacity}{each}, below the {dearest} that a request may cost");
    Err(problems.add(node.location, message, format!("raise the candidate's `{key}`, or let a request cost less")))
}
