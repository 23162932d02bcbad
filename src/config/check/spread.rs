//! Distribution of a limit over the nodes of a Redis Cluster: `partitions` and `shards`.

use std::sync::Arc;

use super::{Checked, number, part};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::{Problems, Reported, quote};
use crate::limit::{Algorithm, Limiter, Mode, Quota};
use crate::rule::Limit;

/// Each key with its mode, and the key of the other mode.
const KEYS: [(&str, Mode, &str); 2] =
    [("partitions", Mode::PerClient, "shards"), ("shards", Mode::Overall, "partitions")];

/// The default number of partitions with a Redis Cluster.
const DEFAULT_PARTITIONS: u32 = 64;

/// Partitions the limits of a route by default, if all of them are PER_CLIENT with the same client. They share their
/// partitions, so a single script call still decides all of them.
pub(super) fn apply_default(limits: Vec<Limit>, written: &file::Route) -> Vec<Limit> {
    let is_written = written.limits.iter().flatten().flatten().any(|limit| limit.partitions.is_some());
    let first = limits.first().map(|first| first.client.clone());
    let can_be_partitioned = |limit: &Limit| {
        let is_own = !matches!(limit.limiter.quota.algorithm(), Algorithm::Redisson(_));
        limit.mode() == Mode::PerClient && is_own && Some(&limit.client) == first.as_ref()
    };
    if is_written || !limits.iter().all(can_be_partitioned) {
        return limits;
    }
    let partition = |limit: Limit| {
        let Limiter { name, mode, quota, .. } = &*limit.limiter;
        let limiter = Limiter::new(name.clone(), *mode, *quota).partitioned(DEFAULT_PARTITIONS);
        Limit { limiter: Arc::new(limiter), ..limit }
    };
    limits.into_iter().map(partition).collect()
}

/// The number of partitions of a PER_CLIENT limit, or of shards of an OVERALL limit.
pub(super) struct Spread {
    mode: Mode,
    count: u32,
}

pub(super) fn spread(
    written: &file::Limit,
    mode: Mode,
    quota: &Quota,
    node: &Node,
    problems: &mut Problems,
) -> Checked<Spread> {
    let partitions = part(&written.partitions, node, "partitions", problems);
    let shards = part(&written.shards, node, "shards", problems);
    for (key, key_mode, instead) in KEYS.into_iter().filter(|(key, ..)| node.has(key)) {
        if key_mode != mode {
            let message = format!("{} has no effect on a limit with `mode: {mode}`", quote(key));
            return Err(problems.add(
                node.at(key).location,
                message,
                format!("leave it out, or use {}", quote(instead)),
            ));
        }
        if let Algorithm::Redisson(_) = quota.algorithm() {
            let message = format!("{} cannot be used with `key`: Redisson defines the buckets", quote(key));
            return Err(problems.add(node.at(key).location, message, "keep one of them"));
        }
    }
    let (key, count) = match mode {
        Mode::PerClient => ("partitions", partitions?.copied()),
        Mode::Overall => ("shards", shards?.copied()),
    };
    let spread = Spread { mode, count: number(count, 1, node.at(key), problems)? };
    match mode {
        Mode::Overall if spread.count > 1 => spread.check_shards(quota, node.at(key), problems).map(|()| spread),
        Mode::Overall | Mode::PerClient => Ok(spread),
    }
}

impl Spread {
    /// Returns the limiter with its partitions or shards.
    pub(super) fn apply(&self, limiter: Limiter) -> Limiter {
        match self.mode {
            Mode::PerClient => limiter.partitioned(self.count),
            Mode::Overall => limiter.sharded(self.count),
        }
    }

    fn check_shards(&self, quota: &Quota, node: &Node, problems: &mut Problems) -> Result<(), Reported> {
        let (shards, min_permits) = (self.count, quota.rate().min(quota.capacity()));
        if let Algorithm::LeakyBucket(_) = quota.algorithm() {
            let message = "`shards` cannot be used with `leaky_bucket`, which has a single queue";
            return Err(problems.add(node.location, message, "leave it out, or use `algorithm: gcra`"));
        }
        if shards > min_permits {
            let message = format!("{shards} shards cannot share {min_permits} permits: each shard needs at least one");
            return Err(problems.add(node.location, message, "use fewer shards"));
        }
        Ok(())
    }
}
