//! Over how many parts of a cluster a limit is spread.

use std::sync::Arc;

use super::{Checked, number, part};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::{Broken, Problems, quote};
use crate::limit::{Algorithm, Limiter, Mode, Quota};
use crate::rule::Limit;

/// The keys, with the modes that they are for.
const KEYS: [(&str, Mode, &str); 2] =
    [("partitions", Mode::PerClient, "shards"), ("shards", Mode::Overall, "partitions")];

/// Into how many partitions clients are spread on a cluster, unless the file says it.
const DEFAULT_PARTITIONS: u32 = 64;

/// The limits of a route that all go by one client, and are not spread by the file, are spread over the nodes of a cluster:
/// they share their partitions, and so are one decision as before.
pub(super) fn over_nodes(limits: Vec<Limit>, written: &file::Route) -> Vec<Limit> {
    let is_written = written.limits.iter().flatten().flatten().any(|limit| limit.partitions.is_some());
    let first = limits.first().map(|first| first.client.clone());
    let can_be = |limit: &Limit| {
        let is_ours = !matches!(limit.limiter.quota.algorithm(), Algorithm::Redisson(_));
        limit.mode() == Mode::PerClient && is_ours && Some(&limit.client) == first.as_ref()
    };
    if is_written || !limits.iter().all(can_be) {
        return limits;
    }
    let spread = |limit: Limit| {
        let Limiter { name, mode, quota, .. } = &*limit.limiter;
        let limiter = Limiter::new(name.clone(), *mode, *quota).partitioned(DEFAULT_PARTITIONS);
        Limit { limiter: Arc::new(limiter), ..limit }
    };
    limits.into_iter().map(spread).collect()
}

/// How many partitions, or shards.
pub(super) struct Parts {
    mode: Mode,
    parts: u32,
}

pub(super) fn parts(
    written: &file::Limit,
    mode: Mode,
    quota: &Quota,
    node: &Node,
    problems: &mut Problems,
) -> Checked<Parts> {
    let partitions = part(&written.partitions, node, "partitions", problems);
    let shards = part(&written.shards, node, "shards", problems);
    for (key, of, instead) in KEYS.into_iter().filter(|(key, ..)| node.has(key)) {
        if of != mode {
            let message = format!("{} has no effect on a limit with `mode: {mode}`", quote(key));
            return Err(problems.add(
                node.at(key).location,
                message,
                format!("leave it out, or use {}", quote(instead)),
            ));
        }
        if let Algorithm::Redisson(_) = quota.algorithm() {
            let message = format!("{} cannot be used with `key`, whose buckets Redisson names", quote(key));
            return Err(problems.add(node.at(key).location, message, "leave one of them out"));
        }
    }
    let (key, parts) = match mode {
        Mode::PerClient => ("partitions", partitions?.copied()),
        Mode::Overall => ("shards", shards?.copied()),
    };
    let parts = Parts { mode, parts: number(parts, 1, node.at(key), problems)? };
    match mode {
        Mode::Overall if parts.parts > 1 => parts.are_shards_of(quota, node.at(key), problems).map(|()| parts),
        Mode::Overall | Mode::PerClient => Ok(parts),
    }
}

impl Parts {
    /// The same limiter, spread.
    pub(super) fn spread(&self, limiter: Limiter) -> Limiter {
        match self.mode {
            Mode::PerClient => limiter.partitioned(self.parts),
            Mode::Overall => limiter.sharded(self.parts),
        }
    }

    fn are_shards_of(&self, quota: &Quota, node: &Node, problems: &mut Problems) -> Result<(), Broken> {
        let (shards, fewest) = (self.parts, quota.rate().min(quota.capacity()));
        if let Algorithm::LeakyBucket(_) = quota.algorithm() {
            let message = "`shards` cannot be used with `leaky_bucket`, whose requests wait in one row";
            return Err(problems.add(node.location, message, "leave it out, or use `algorithm: gcra`"));
        }
        if shards > fewest {
            let message = format!("{shards} shards cannot share {fewest} permits: each needs one at least");
            return Err(problems.add(node.location, message, "use fewer shards"));
        }
        Ok(())
    }
}
