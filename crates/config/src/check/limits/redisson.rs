//! Limits that are shared with Redisson clients: `key` and `adopt`.

use std::collections::HashMap;

use super::{rate_key, windows};
use crate::check::Checked;
use crate::file;
use crate::file::located::Located;
use crate::problem::{Location, Problems, quote};
use tidegate_limit::redisson::Sharing;
use tidegate_limit::{Algorithm, AlgorithmName, MAX_INTERVAL, MAX_RATE, Mode, Quota};

/// Returns how a limit is shared. Returns `None` if it is not shared.
pub(super) fn sharing(raw: &file::Limit, problems: &mut Problems) -> Checked<Option<Sharing>> {
    let (key, adopt) = (raw.key.optional(problems), raw.adopt.optional(problems));
    // If `adopt` has an error, the required keys are unknown.
    let adopts = adopt? == Some(&true);
    if !adopts {
        require_quota_keys(raw, problems);
    }
    let key = key?;
    if key.is_some() && !matches!(raw.algorithm.get(), None | Some(AlgorithmName::TokenBucket)) {
        let message = "a limit with `key` must use the algorithm `token_bucket`, as Redisson does";
        return Err(raw.algorithm.report(message, "leave out `algorithm` or `key`", problems));
    }
    match (key, adopts) {
        (None, false) => Ok(None),
        (None, true) => {
            let help = "add `key: NAME` with the name of the limiter in Redisson";
            Err(raw.adopt.report("`adopt` needs `key`", help, problems))
        }
        (Some(_), false) => Ok(Some(Sharing::Configure)),
        (Some(_), true) => Ok(Some(Sharing::Adopt(expected_mode(raw)))),
    }
}

/// Returns the mode. A limit with `adopt` and a client can have either mode, so its `mode` is optional.
pub(crate) fn mode(raw: &file::Limit, sharing: Option<Sharing>, problems: &mut Problems) -> Checked<Mode> {
    match (raw.mode.get(), sharing) {
        (None, Some(Sharing::Adopt(None))) => Ok(Mode::PerClient),
        (None, Some(Sharing::Adopt(Some(mode)))) => Ok(mode),
        _ => raw.mode.required(problems).copied(),
    }
}

/// Returns the quota of a shared limit. With `adopt`, its values are only expectations: the limiter in Redis decides.
pub(crate) fn quota(
    raw: &file::Limit,
    sharing: Sharing,
    location: Location,
    problems: &mut Problems,
) -> Checked<Quota> {
    let rate = rate_key::fixed(&raw.rate, problems);
    let interval = match raw.interval.optional(problems)? {
        Some(_) => windows::length(&raw.interval, None, AlgorithmName::TokenBucket, problems)?,
        None => MAX_INTERVAL,
    };
    let rate = rate?.unwrap_or(u64::from(MAX_RATE));
    let quota = Quota::new(rate, interval, Algorithm::Redisson(sharing));
    crate::check::parsed(quota, "choose numbers in these ranges", location, problems)
}

/// Reports `adopt` of a limit whose store is this process.
pub(super) fn check_store(limit: &file::Limit, in_memory: bool, problems: &mut Problems) {
    if in_memory && limit.adopt.get() == Some(&true) {
        let help = "use the Redis of the Java services: `store: redis://...`";
        limit.adopt.report("`adopt` needs a Redis store, not `memory`", help, problems);
    }
}

/// Reports keys that two limits of a route use. All limits of a request are checked before any is charged, so two
/// charges of one bucket could exceed it.
pub(crate) fn reject_duplicate_keys<'f>(limits: impl Iterator<Item = &'f file::Limit>, problems: &mut Problems) {
    let mut seen = HashMap::new();
    for limit in limits {
        let Some(key) = limit.key.get() else { continue };
        if let Some(first) = seen.insert(key, limit.key.location) {
            let place = problems.place(first, limit.key.location);
            let message = format!("the key {} is already used by a limit of this route, {place}", quote(key));
            limit.key.report(message, "use each limiter once in a route; raise `permits` to take more", problems);
        }
    }
}

fn expected_mode(raw: &file::Limit) -> Option<Mode> {
    match (raw.mode.get(), raw.client.get()) {
        (Some(mode), _) => Some(*mode),
        // Without a client, only OVERALL is possible.
        (None, None) => Some(Mode::Overall),
        (None, Some(_)) => None,
    }
}

/// Reports missing keys of a limit without `adopt`.
fn require_quota_keys(raw: &file::Limit, problems: &mut Problems) {
    require(&raw.mode, "mode", "mode: PER_CLIENT", problems);
    if !raw.tier.is_present() {
        require(&raw.rate, "rate", "rate: 100", problems);
        require(&raw.interval, "interval", "interval: 1m", problems);
    }
}

fn require<T>(raw: &Located<T>, key: &'static str, example: &str, problems: &mut Problems) {
    if !raw.is_present() {
        let (message, help) = (format!("a limit needs {}", quote(key)), format!("for example {}", quote(example)));
        problems.add_missing(raw.location, key, message, help);
    }
}
