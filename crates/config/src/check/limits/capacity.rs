//! The capacity of a bucket, which bounds the cost of a request.

use super::rate_key;
use crate::check::Checked;
use crate::file::Limit;
use crate::problem::{Location, Problems};
use tidegate_limit::AlgorithmName;

/// The capacity of a full bucket, and the key that defines it.
#[derive(Clone, Copy)]
pub(super) struct Capacity {
    key: &'static str,
    /// `None` if the key has an error.
    permits: Option<u64>,
    /// The number of buckets that share the capacity. A request takes all its permits from one of them.
    shards: Option<u64>,
}

impl Capacity {
    pub(super) fn new(raw: &Limit) -> Self {
        let (key, permits) = match raw.algorithm.get() {
            // If `algorithm` has an error, the key of the capacity is unknown.
            None if raw.algorithm.is_present() => ("rate", None),
            Some(AlgorithmName::Gcra) if raw.burst.is_present() => ("burst", raw.burst.get().copied()),
            None | Some(_) => ("rate", rate_key::default_of(&raw.rate)),
        };
        Self { key, permits, shards: raw.shards.get().copied().filter(|shards| *shards > 1) }
    }
}

/// Reports a cost above the capacity of a full bucket.
pub(super) fn check_capacity(
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
