//! The cost of a request, which must not exceed the capacity of a bucket.

use super::rate_key;
use crate::check::names::header_name;
use crate::check::{Checked, convert};
use crate::file::located::ValueOrMap;
use crate::file::{HeaderPermits, Limit};
use crate::problem::{Location, Problems};
use tidegate_limit::AlgorithmName;
use tidegate_rules::limits::cost::{Cost, HeaderCost};

/// Converts `permits`.
pub(crate) fn cost(raw: &Limit, problems: &mut Problems) -> Checked<Cost> {
    let (permits, at) = (raw.permits.optional(problems)?, raw.permits.location);
    let capacity = capacity(raw);
    match permits {
        None => Ok(Cost::Fixed(1)),
        Some(ValueOrMap::Value(permits)) => {
            let checked = check_capacity(*permits, capacity, "permits", "no request would ever pass", at, problems);
            checked.and_then(|()| convert(*permits, at, problems)).map(Cost::Fixed)
        }
        Some(ValueOrMap::Map(from)) => header_cost(from, capacity, problems).map(Cost::Header),
    }
}

fn header_cost(from: &HeaderPermits, capacity: Capacity, problems: &mut Problems) -> Checked<HeaderCost> {
    let name = from.header.required(problems);
    let name = name.and_then(|name| header_name(name, from.header.location, problems));
    let default = from.default.optional(problems).map(|default| default.copied().unwrap_or(1));
    let max = from.max.optional(problems).map(Option::<&u64>::copied);
    if let (Ok(default), Ok(Some(max))) = (default, max)
        && default > max
    {
        let message = format!("`default` is {default}, above the `max` of {max}");
        from.default.report(message, "raise `max`, or lower `default`", problems);
    }
    let (default, max) = (default?, max?);
    let (at_default, at_max) = (from.default.location, from.max.location);
    let without_field = "a request without the field would never pass";
    let checked = check_capacity(default, capacity, "default", without_field, at_default, problems);
    let never_granted = "some costs would never be granted";
    let checked_max = max.map(|max| check_capacity(max, capacity, "max", never_granted, at_max, problems));
    checked.and(checked_max.unwrap_or(Ok(())))?;
    let max = max.map(|max| convert(max, at_max, problems)).transpose()?;
    Ok(HeaderCost { name: name?, default: convert(default, at_default, problems)?, max })
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

fn capacity(raw: &Limit) -> Capacity {
    let (key, permits) = match raw.algorithm.get() {
        // If `algorithm` has an error, the key of the capacity is unknown.
        None if raw.algorithm.is_present() => ("rate", None),
        Some(AlgorithmName::Gcra) if raw.burst.is_present() => ("burst", raw.burst.get().copied()),
        None | Some(_) => ("rate", rate_key::default_of(&raw.rate)),
    };
    Capacity { key, permits, shards: raw.shards.get().copied().filter(|shards| *shards > 1) }
}

/// Reports a cost above the capacity of a full bucket.
fn check_capacity(
    permits: u64,
    capacity: Capacity,
    key: &str,
    consequence: &str,
    at: Location,
    problems: &mut Problems,
) -> Checked<()> {
    let bucket_capacity = capacity.permits.map(|permits| permits / capacity.shards.unwrap_or(1));
    match bucket_capacity {
        Some(max) if permits > max => {
            let (limiting_key, each) = (capacity.key, capacity.shards.map_or("", |_| " in each shard"));
            let message = format!("`{key}` is {permits}, above the `{limiting_key}` of {max}{each}: {consequence}");
            Err(problems.add(at, message, format!("raise `{limiting_key}`, or lower the cost")))
        }
        _ => Ok(()),
    }
}
