//! Limits that are shared with Redisson clients: `key` and `adopt`.

use std::collections::HashMap;

use super::{Checked, needed, part, windows};
use crate::config::file::{self, File};
use crate::config::node::{MERGE_KEY, Node};
use crate::config::problem::{Problems, quote};
use crate::limit::redisson::Sharing;
use crate::limit::{Algorithm, AlgorithmName, MAX_INTERVAL, MAX_RATE, Mode, Quota};
use crate::store::settings::StoreSettings;

/// Keys that only a limit with `adopt` may omit, with examples.
const REQUIRED_WITHOUT_ADOPT: [(&str, &str); 3] =
    [("mode", "mode: PER_CLIENT"), ("rate", "rate: 100"), ("interval", "interval: 1m")];

/// Returns how a limit is shared. Returns `None` if it is not shared.
pub(super) fn sharing(written: &file::Limit, node: &Node, problems: &mut Problems) -> Checked<Option<Sharing>> {
    let (key, adopt) = (part(&written.key, node, "key", problems), part(&written.adopt, node, "adopt", problems));
    // If `adopt` has an error, the required keys are unknown.
    let adopts = adopt? == Some(&true);
    if !adopts {
        require_quota_keys(node, problems);
    }
    let key = key?;
    if key.is_some() && !matches!(written.algorithm, None | Some(AlgorithmName::TokenBucket)) {
        let message = "a limit with `key` must use the algorithm `token_bucket`, as Redisson does";
        return Err(problems.add(node.at("algorithm").location, message, "leave out `algorithm` or `key`"));
    }
    match (key, adopts) {
        (None, false) => Ok(None),
        (None, true) => {
            let help = "add `key: NAME` with the name of the limiter in Redisson";
            Err(problems.add(node.at("adopt").location, "`adopt` needs `key`", help))
        }
        (Some(_), false) => Ok(Some(Sharing::Configure)),
        (Some(_), true) => Ok(Some(Sharing::Adopt(expected_mode(written)))),
    }
}

/// Returns the mode. A limit with `adopt` and a client can have either mode, so its `mode` is optional.
pub(super) fn mode(
    written: &file::Limit,
    sharing: Option<Sharing>,
    node: &Node,
    problems: &mut Problems,
) -> Checked<Mode> {
    match (written.mode, sharing) {
        (None, Some(Sharing::Adopt(None))) => Ok(Mode::PerClient),
        (None, Some(Sharing::Adopt(Some(mode)))) => Ok(mode),
        _ => needed(&written.mode, node, problems).copied(),
    }
}

/// Returns the quota of a shared limit. With `adopt`, its values are only expectations: the limiter in Redis decides.
pub(super) fn quota(written: &file::Limit, sharing: Sharing, node: &Node, problems: &mut Problems) -> Checked<Quota> {
    let rate = part(&written.rate, node, "rate", problems);
    let interval = part(&written.interval, node, "interval", problems);
    let interval = match interval? {
        Some(interval) => windows::length(interval, None, AlgorithmName::TokenBucket, node, problems)?,
        None => MAX_INTERVAL,
    };
    let rate = rate?.copied().unwrap_or(u64::from(MAX_RATE));
    let quota = Quota::new(rate, interval, Algorithm::Redisson(sharing));
    super::parsed(quota, "choose numbers in these ranges", node, problems)
}

/// Reports limits that cannot be shared: duplicate keys in a route, and `adopt` without Redis.
pub(super) fn check(file: &File, root: &Node, store: &Checked<StoreSettings>, problems: &mut Problems) {
    let routes = file.routes.as_deref().unwrap_or_default().iter().zip(root.at("routes").items());
    for (route, node) in routes.filter_map(|(route, node)| Some((route.as_ref()?, node))) {
        let limits = route.limits.as_deref().unwrap_or_default().iter().zip(node.at("limits").items());
        let limits: Vec<_> = limits.filter_map(|(limit, node)| Some((limit.as_ref()?, node))).collect();
        reject_duplicate_keys(&limits, problems);
        let in_memory = matches!(store, Ok(StoreSettings::Memory { .. }));
        for (_, node) in limits.iter().filter(|(limit, _)| in_memory && limit.adopt == Some(true)) {
            let help = "use the Redis of the Java services: `store: redis://...`";
            problems.add(node.at("adopt").location, "`adopt` needs a Redis store, not `memory`", help);
        }
    }
}

/// Reports keys that two limits of a route use. All limits of a request are checked before any is charged, so two
/// charges of one bucket could exceed it.
fn reject_duplicate_keys(limits: &[(&file::Limit, &Node)], problems: &mut Problems) {
    let mut seen = HashMap::new();
    for (key, node) in limits.iter().filter_map(|(limit, node)| Some((limit.key.as_deref()?, node))) {
        let location = node.at("key").location;
        if let Some(first) = seen.insert(key, location) {
            let message =
                format!("the key {} is already used by a limit of this route, on line {}", quote(key), first.line);
            problems.add(location, message, "use each limiter once in a route; raise `permits` to take more");
        }
    }
}

fn expected_mode(written: &file::Limit) -> Option<Mode> {
    match (written.mode, &written.client) {
        (Some(mode), _) => Some(mode),
        // Without a client, only OVERALL is possible.
        (None, None) => Some(Mode::Overall),
        (None, Some(_)) => None,
    }
}

/// Reports missing keys of a limit without `adopt`.
fn require_quota_keys(node: &Node, problems: &mut Problems) {
    for (key, example) in REQUIRED_WITHOUT_ADOPT.iter().filter(|(key, _)| !node.has(key) && !node.has(MERGE_KEY)) {
        problems.add_missing(
            node.location,
            key,
            format!("a limit needs {}", quote(key)),
            format!("for example {}", quote(example)),
        );
    }
}
