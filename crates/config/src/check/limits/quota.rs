//! The quota of a limit: rate, interval and algorithm.

use super::{redisson, windows};
use crate::check::{Checked, convert, parsed};
use crate::file;
use crate::file::located::Located;
use crate::problem::{Location, Problems, quote};
use crate::values::units::Interval;
use tidegate_limit::algorithm::gcra::warm_up::WarmUp;
use tidegate_limit::algorithm::leaky_bucket::Queue;
use tidegate_limit::redisson::Sharing;
use tidegate_limit::{Algorithm, AlgorithmName, Quota};

/// The keys of a quota that a tier may have instead of the limit.
#[derive(Clone, Copy)]
pub(crate) struct RateKeys<'f> {
    /// The rate, or the default of a rate that depends on the request. `None` if it is absent.
    pub(crate) rate: Option<u64>,
    pub(crate) interval: &'f Located<Interval>,
    pub(crate) burst: &'f Located<u64>,
}

/// Converts the quota of a limit or a candidate at this location.
pub(crate) fn quota(
    raw: &file::Limit,
    keys: RateKeys<'_>,
    sharing: Option<Sharing>,
    location: Location,
    problems: &mut Problems,
) -> Checked<Quota> {
    if let Some(sharing) = sharing {
        return redisson::quota(raw, sharing, location, problems);
    }
    let name = raw.algorithm.or_default(problems)?;
    quota_of(raw, name, keys, location, problems)
}

/// Converts the quota of a limit with this algorithm.
pub(crate) fn quota_of(
    raw: &file::Limit,
    name: AlgorithmName,
    keys: RateKeys<'_>,
    location: Location,
    problems: &mut Problems,
) -> Checked<Quota> {
    reject_other_keys(raw, name, problems);
    let (burst, warm_up) = (keys.burst.optional(problems), raw.warm_up.optional(problems));
    let windows = match name {
        AlgorithmName::SlidingWindow => Some(windows::sliding(raw, problems)?),
        AlgorithmName::FixedWindow => Some(windows::fixed(raw, keys.interval, location, problems)?),
        _ => None,
    };
    let rate = keys.rate.ok_or_else(|| problems.reported(location))?;
    let interval = windows::length(keys.interval, windows.as_ref(), name, problems)?;
    let burst = convert(burst?.copied().unwrap_or(rate), keys.burst.location, problems)?;
    let warm_up = warm_up?.map(|warm_up| warm_up.0);
    let algorithm = match name {
        AlgorithmName::Gcra => match warm_up {
            Some(millis) => Algorithm::GcraWarmUp(WarmUp { burst, millis }),
            None => Algorithm::Gcra { burst },
        },
        AlgorithmName::LeakyBucket => Algorithm::LeakyBucket(queue(raw, rate, interval, problems)?),
        AlgorithmName::TokenBucket => Algorithm::TokenBucket,
        AlgorithmName::SlidingWindow | AlgorithmName::FixedWindow => windows.unwrap_or(Algorithm::TokenBucket),
    };
    parsed(Quota::new(rate, interval, algorithm), "use values in these ranges", location, problems)
}

/// Reports keys that apply only to other algorithms.
fn reject_other_keys(raw: &file::Limit, algorithm: AlgorithmName, problems: &mut Problems) {
    let own_keys = [
        ("burst", raw.burst.key, AlgorithmName::Gcra),
        ("warm_up", raw.warm_up.key, AlgorithmName::Gcra),
        ("segments", raw.segments.key, AlgorithmName::SlidingWindow),
        ("timezone", raw.timezone.key, AlgorithmName::FixedWindow),
    ];
    for (key, location, owner) in own_keys.into_iter().filter(|(.., owner)| *owner != algorithm) {
        let (Some(location), name) = (location, owner.name()) else { continue };
        let message = format!("{} has no effect without `algorithm: {name}`", quote(key));
        problems.add(location, message, format!("leave it out, or add `algorithm: {name}`"));
    }
}

/// Converts the queue of `leaky_bucket`. By default it holds the permits of one interval.
fn queue(raw: &file::Limit, rate: u64, interval: u64, problems: &mut Problems) -> Checked<Queue> {
    let max_wait = raw.max_wait.optional(problems)?.map_or(interval, |max_wait| max_wait.0);
    let length = raw.queue.optional(problems)?.copied().unwrap_or(rate);
    Ok(Queue { length: convert(length, raw.queue.location, problems)?, max_wait })
}
