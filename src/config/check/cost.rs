//! What a request costs, and that it can be paid.

use super::matcher::header_name;
use super::{Checked, needed, number, part};
use crate::config::file::{Algorithm, HeaderPermits, Limit, Permits};
use crate::config::node::Node;
use crate::config::problem::Problems;
use crate::cost::{Cost, HeaderCost};

/// The cost of a limit's requests. A limit that has a candidate asks the same of it.
pub(super) fn cost(written: &Limit, node: &Node, problems: &mut Problems) -> Checked<Cost> {
    let (permits, at) = (part(&written.permits, node, "permits", problems)?, node.at("permits"));
    let capacity = capacity(written, node);
    match permits {
        None => Ok(Cost::Fixed(1)),
        Some(Permits::Fixed(permits)) => {
            let payable = within(*permits, capacity, "permits", "no request would ever pass", at, problems);
            payable.and_then(|()| number(Some(*permits), 1, at, problems)).map(Cost::Fixed)
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
    let some = "a request without the field would never pass";
    let payable = within(default, capacity, "default", some, node.at("default"), problems);
    let many =
        max.map(|max| within(max, capacity, "max", "some costs would never be granted", node.at("max"), problems));
    payable.and(many.unwrap_or(Ok(())))?;
    let max = max.map(|max| number(Some(max), 1, node, problems)).transpose()?;
    Ok(HeaderCost { name: name?, default: number(Some(default), 1, node, problems)?, max })
}

/// What a full bucket holds, and the key that says so.
#[derive(Clone, Copy)]
struct Capacity {
    key: &'static str,
    /// Nothing if that is not known.
    permits: Option<u64>,
    /// The buckets that it is shared out among; a request takes from one of them.
    shards: Option<u64>,
}

fn capacity(written: &Limit, node: &Node) -> Capacity {
    let (key, permits) = match written.algorithm {
        // The algorithm was not understood, so it is not known which key is its capacity.
        None if node.has("algorithm") => ("rate", None),
        Some(Algorithm::Gcra) if node.has("burst") => ("burst", written.burst),
        None | Some(_) => ("rate", written.rate),
    };
    Capacity { key, permits, shards: written.shards.filter(|shards| *shards > 1) }
}

/// Can a bucket that is full pay this?
fn within(
    permits: u64,
    capacity: Capacity,
    key: &str,
    otherwise: &str,
    node: &Node,
    problems: &mut Problems,
) -> Checked<()> {
    let of_bucket = capacity.permits.map(|most| most / capacity.shards.unwrap_or(1));
    match of_bucket {
        Some(most) if permits > most => {
            let (holds, each) = (capacity.key, capacity.shards.map_or("", |_| " in each shard"));
            let message = format!("`{key}` is {permits}, above the `{holds}` of {most}{each}: {otherwise}");
            Err(problems.add(node.location, message, format!("raise `{holds}`, or let a request cost less")))
        }
        _ => Ok(()),
    }
}
