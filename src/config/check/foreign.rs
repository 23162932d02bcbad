//! Limits that are shared with Redisson's clients: `key` and `adopt`.

use std::collections::HashMap;

use super::{Checked, needed, part, windows};
use crate::config::file::{self, File};
use crate::config::node::{MERGE_KEY, Node};
use crate::config::problem::{Problems, quote};
use crate::limit::redisson::Sharing;
use crate::limit::{Algorithm, MAX_INTERVAL, MAX_RATE, Mode, Quota};
use crate::store::settings::StoreSettings;

/// What only those may leave out who take it from others, with an example of each.
const NEEDED: [(&str, &str); 3] = [("mode", "mode: PER_CLIENT"), ("rate", "rate: 100"), ("interval", "interval: 1m")];

/// How a limit is shared, if it is.
pub(super) fn sharing(written: &file::Limit, node: &Node, problems: &mut Problems) -> Checked<Option<Sharing>> {
    let (key, adopt) = (part(&written.key, node, "key", problems), part(&written.adopt, node, "adopt", problems));
    // If `adopt` was not understood, it is not known which keys are needed.
    let adopts = adopt? == Some(&true);
    if !adopts {
        needs(node, problems);
    }
    let key = key?;
    if key.is_some() && !matches!(written.algorithm, None | Some(file::Algorithm::TokenBucket)) {
        let message = "a limit with `key` has the algorithm `token_bucket`, which is Redisson's";
        return Err(problems.add(node.at("algorithm").location, message, "leave `algorithm` out, or `key`"));
    }
    match (key, adopts) {
        (None, false) => Ok(None),
        (None, true) => {
            let help = "add `key: NAME`, the limiter's name in Redisson";
            Err(problems.add(node.at("adopt").location, "`adopt` needs `key`", help))
        }
        (Some(_), false) => Ok(Some(Sharing::Configure)),
        (Some(_), true) => Ok(Some(Sharing::Adopt(expected_mode(written)))),
    }
}

/// One bucket or many, as far as the file says: a limit that names a client can serve both.
pub(super) fn mode(
    written: &file::Limit,
    sharing: Option<Sharing>,
    node: &Node,
    problems: &mut Problems,
) -> Checked<Mode> {
    match (written.mode, sharing) {
        (None, Some(Sharing::Adopt(None))) => Ok(Mode::PerClient),
        (None, Some(Sharing::Adopt(Some(mode)))) => Ok(mode),
        _ => match needed(&written.mode, node, problems)? {
            file::Mode::Overall => Ok(Mode::Overall),
            file::Mode::PerClient => Ok(Mode::PerClient),
        },
    }
}

/// The quota of a limit that adopts: what the file says beside is what is expected, and the hash decides.
pub(super) fn quota(written: &file::Limit, sharing: Sharing, node: &Node, problems: &mut Problems) -> Checked<Quota> {
    let rate = part(&written.rate, node, "rate", problems);
    let interval = part(&written.interval, node, "interval", problems);
    let interval = match interval? {
        Some(interval) => windows::length(interval, None, file::Algorithm::TokenBucket, node, problems)?,
        None => MAX_INTERVAL,
    };
    let rate = rate?.copied().unwrap_or(u64::from(MAX_RATE));
    let quota = Quota::new(rate, interval, Algorithm::Redisson(sharing));
    super::parsed(quota, "choose numbers in these ranges", node, problems)
}

/// What cannot be shared as it is written, over the whole file.
pub(super) fn check(file: &File, root: &Node, store: &Checked<StoreSettings>, problems: &mut Problems) {
    let routes = file.routes.as_deref().unwrap_or_default().iter().zip(root.at("routes").items());
    for (route, node) in routes.filter_map(|(route, node)| Some((route.as_ref()?, node))) {
        let limits = route.limits.as_deref().unwrap_or_default().iter().zip(node.at("limits").items());
        let limits: Vec<_> = limits.filter_map(|(limit, node)| Some((limit.as_ref()?, node))).collect();
        refuse_twice(&limits, problems);
        let in_memory = matches!(store, Ok(StoreSettings::Memory { .. }));
        for (_, node) in limits.iter().filter(|(limit, _)| in_memory && limit.adopt == Some(true)) {
            let help = "use the Redis that the Java services use: `store: redis://...`";
            problems.add(node.at("adopt").location, "`adopt` has nothing to follow in the store `memory`", help);
        }
    }
}

/// All limits of a request are checked before one is charged, so that none may take from the same bucket twice.
fn refuse_twice(limits: &[(&file::Limit, &Node)], problems: &mut Problems) {
    let mut seen = HashMap::new();
    for (key, node) in limits.iter().filter_map(|(limit, node)| Some((limit.key.as_deref()?, node))) {
        let location = node.at("key").location;
        if let Some(first) = seen.insert(key, location) {
            let message =
                format!("the key {} is used by another limit of this route, in line {}", quote(key), first.line);
            problems.add(
                location,
                message,
                "a request can take from a limiter once: raise `permits`, or use one limit",
            );
        }
    }
}

fn expected_mode(written: &file::Limit) -> Option<Mode> {
    match (written.mode, &written.client) {
        (Some(file::Mode::PerClient), _) => Some(Mode::PerClient),
        // Without a client there is no bucket of one.
        (Some(file::Mode::Overall), _) | (None, None) => Some(Mode::Overall),
        (None, Some(_)) => None,
    }
}

fn needs(node: &Node, problems: &mut Problems) {
    for (key, example) in NEEDED.iter().filter(|(key, _)| !node.has(key) && !node.has(MERGE_KEY)) {
        problems.lacks(
            node.location,
            key,
            format!("a limit needs {}", quote(key)),
            format!("for example {}", quote(example)),
        );
    }
}
