//! The quota of a limit: rate, interval and algorithm.

use super::{Checked, needed, number, parsed, part, redisson, windows};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::{Problems, quote};
use crate::limit::leaky_bucket::Queue;
use crate::limit::redisson::Sharing;
use crate::limit::{Algorithm, AlgorithmName, Quota};

/// Keys that apply to one algorithm only.
const OWN_KEYS: [(&str, AlgorithmName); 3] = [
    ("burst", AlgorithmName::Gcra),
    ("segments", AlgorithmName::SlidingWindow),
    ("timezone", AlgorithmName::FixedWindow),
];

pub(super) fn quota(
    written: &file::Limit,
    sharing: Option<Sharing>,
    node: &Node,
    problems: &mut Problems,
) -> Checked<Quota> {
    if let Some(sharing) = sharing {
        return redisson::quota(written, sharing, node, problems);
    }
    let kind = part(&written.algorithm, node, "algorithm", problems)?.copied();
    let kind = kind.unwrap_or_default();
    reject_other_keys(kind, node, problems);
    let (burst, interval) = (part(&written.burst, node, "burst", problems), needed(&written.interval, node, problems));
    let windows = match kind {
        AlgorithmName::SlidingWindow => Some(windows::sliding(written, node, problems)?),
        AlgorithmName::FixedWindow => Some(windows::fixed(written, node, problems)?),
        _ => None,
    };
    let (rate, interval) = (needed(&written.rate, node, problems)?, interval?);
    let interval = windows::length(interval, windows.as_ref(), kind, node, problems)?;
    let burst = number(burst?.copied().or(Some(*rate)), 1, node.at("burst"), problems)?;
    let algorithm = match kind {
        AlgorithmName::Gcra => Algorithm::Gcra { burst },
        AlgorithmName::LeakyBucket => Algorithm::LeakyBucket(queue(written, *rate, interval, node, problems)?),
        AlgorithmName::TokenBucket => Algorithm::TokenBucket,
        AlgorithmName::SlidingWindow | AlgorithmName::FixedWindow => windows.unwrap_or(Algorithm::TokenBucket),
    };
    parsed(Quota::new(*rate, interval, algorithm), "use values in these ranges", node, problems)
}

/// Reports keys that apply only to other algorithms.
fn reject_other_keys(algorithm: AlgorithmName, node: &Node, problems: &mut Problems) {
    for (key, owner) in OWN_KEYS.iter().filter(|(_, owner)| *owner != algorithm) {
        let name = owner.name();
        let Some(entry) = node.entries().iter().find(|entry| entry.key == *key) else { continue };
        let message = format!("{} has no effect without `algorithm: {name}`", quote(key));
        problems.add(entry.location, message, format!("leave it out, or add `algorithm: {name}`"));
    }
}

/// Converts the queue of `leaky_bucket`. By default it holds the permits of one interval.
fn queue(written: &file::Limit, rate: u64, interval: u64, node: &Node, problems: &mut Problems) -> Checked<Queue> {
    let max_wait = part(&written.max_wait, node, "max_wait", problems)?.map_or(interval, |max_wait| max_wait.0);
    let length = part(&written.queue, node, "queue", problems)?.copied().unwrap_or(rate);
    Ok(Queue { length: number(Some(length), 0, node.at("queue"), problems)?, max_wait })
}
