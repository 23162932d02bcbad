//! The cost of a request, which must not exceed the capacity of a bucket.

use super::matcher::header_name;
use super::{Checked, needed, number, part};
use crate::config::file::{HeaderPermits, Limit, Permits};
use crate::config::node::Node;
use crate::config::problem::Problems;
use crate::cost::{Cost, HeaderCost};
use crate::limit::AlgorithmName;

/// Converts `permits`.
pub(super) fn cost(written: &Limit, node: &Node, problems: &mut Problems) -> Checked<Cost> {
    let (permits, at) = (part(&written.permits, node, "permits", problems)?, node.at("permits"));
    let capacity = capacity(written, node);
    match permits {
        None => Ok(Cost::Fixed(1)),
        Some(Permits::Fixed(permits)) => {
            let checked = check_capacity(*permits, capacity, "permits", "no request would ever pass", at, problems);
            checked.and_then(|()| number(Some(*permits), 1, at, problems)).map(Cost::Fixed)
        }
        Some(Permits::Header(from)) => header_cost(from, capacity, at, problems).map(Cost::Header),
    }
}

fn header_cost(from: &HeaderPermits, capacity: Capacity, node: &Node, problems: &mut Problems) -> Checked<HeaderCost> {
    let name = needed(&from.header, node, problems).and_then(|name| {
        let location = node.at("header").location;
        header_name(name, location, problems)
    });
    let default = part(&from.default, node, "default", problems).map(|default| default.copied().unwrap_or(1));
    let max = part(&from.max, node, "max", problems).map(Option::<&u64>::copied);
    if let (Ok(default), Ok(Some(max))) = (default, max)
        && default > max
    {
        let message = format!("`default` is {default}, above the `max` of {max}");
        problems.add(node.at("default").location, message, "raise `max`, or lower `default`");
    }
    let (default, max) = (default?, max?);
    let without_field = "a request without the field would never pass";
    let checked = check_capacity(default, capacity, "default", without_field, node.at("default"), problems);
    let checked_max = max
        .map(|max| check_capacity(max, capacity, "max", "some costs would never be granted", node.at("max"), problems));
    checked.and(checked_max.unwrap_or(Ok(())))?;
    let max = max.map(|max| number(Some(max), 1, node, problems)).transpose()?;
    Ok(HeaderCost { name: name?, default: number(Some(default), 1, node, problems)?, max })
}

/// The capacity of a full bucket, and the key that defines it.
#[derive(Clone, Copy)]
struct Capacity {
    key: &'static str,
    /// `None` if the key has an error.
    permits: Option<u64>,
    /// The number of buckets that share the capacity. A request takes all its permits from one of them.
    shards: Option<u64>,
}

fn capacity(written: &Limit, node: &Node) -> Capacity {
    let (key, permits) = match written.algorithm {
        // If `algorithm` has an error, the key of the capacity is unknown.
        None if node.has("algorithm") => ("rate", None),
        Some(AlgorithmName::Gcra) if node.has("burst") => ("burst", written.burst),
        None | Some(_) => ("rate", written.rate),
    };
    Capacity { key, permits, shards: written.shards.filter(|shards| *shards > 1) }
}

/// Reports a cost above the capacity of a full bucket.
fn check_capacity(
    permits: u64,
    capacity: Capacity,
    key: &str,
    consequence: &str,
    node: &Node,
    problems: &mut Problems,
) -> Checked<()> {
    let bucket_capacity = capacity.permits.map(|permits| permits / capacity.shards.unwrap_or(1));
    match bucket_capacity {
        Some(max) if permits > max => {
            let (limiting_key, each) = (capacity.key, capacity.shards.map_or("", |_| " in each shard"));
            let message = format!("`{key}` is {permits}, above the `{limiting_key}` of {max}{each}: {consequence}");
            Err(problems.add(node.location, message, format!("raise `{limiting_key}`, or lower the cost")))
        }
        _ => Ok(()),
    }
}
