//! Distribution of a limit over the nodes of a Redis Cluster: `partitions` and `shards`.

use crate::check::Checked;
use crate::file;
use crate::file::located::Located;
use crate::problem::{Problems, quote};
use tidegate_limit::{Algorithm, Mode, Quota};
use tidegate_rules::charge::Limiter;

/// The number of partitions of a PER_CLIENT limit, or of shards of an OVERALL limit.
pub(crate) struct Spread {
    mode: Mode,
    count: u32,
}

pub(crate) fn spread(raw: &file::Limit, mode: Mode, quota: &Quota, problems: &mut Problems) -> Checked<Spread> {
    // Each key with its mode, and the key of the other mode.
    let keys = [
        ("partitions", &raw.partitions, Mode::PerClient, "shards"),
        ("shards", &raw.shards, Mode::Overall, "partitions"),
    ];
    for (key, value, key_mode, instead) in keys.into_iter().filter(|(_, value, ..)| value.is_present()) {
        if key_mode != mode {
            let message = format!("{} has no effect on a limit with `mode: {mode}`", quote(key));
            return Err(value.report(message, format!("leave it out, or use {}", quote(instead)), problems));
        }
        if let Algorithm::Redisson(_) = quota.algorithm() {
            let message = format!("{} cannot be used with `key`: Redisson defines the buckets", quote(key));
            return Err(value.report(message, "keep one of them", problems));
        }
    }
    let value = match mode {
        Mode::PerClient => &raw.partitions,
        Mode::Overall => &raw.shards,
    };
    value.optional(problems)?;
    let spread = Spread { mode, count: value.number(1, problems)? };
    match mode {
        Mode::Overall if spread.count > 1 => spread.check_shards(quota, value, problems).map(|()| spread),
        Mode::Overall | Mode::PerClient => Ok(spread),
    }
}

impl Spread {
    /// Returns the limiter with its partitions or shards.
    pub(crate) fn apply(&self, limiter: Limiter) -> Limiter {
        match self.mode {
            Mode::PerClient => limiter.partitioned(self.count),
            Mode::Overall => limiter.sharded(self.count),
        }
    }

    fn check_shards(&self, quota: &Quota, raw: &Located<u64>, problems: &mut Problems) -> Checked<()> {
        let (shards, min_permits) = (self.count, quota.rate().min(quota.capacity()));
        if quota.algorithm().has_time_slots() {
            let name = quote(quota.algorithm().name());
            let message = format!("`shards` cannot be used with {name}, which has a single queue");
            return Err(raw.report(message, "leave it out, or use `algorithm: gcra`", problems));
        }
        if shards > min_permits {
            let message = format!("{shards} shards cannot share {min_permits} permits: each shard needs at least one");
            return Err(raw.report(message, "use fewer shards", problems));
        }
        Ok(())
    }
}
