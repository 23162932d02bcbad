//! Replays the access logs of a run with its rules, and compares the decision about each line with the gateway's.
//!
//! Each line has the time of its decision by the clock of the store, in milliseconds. The replay must admit and reject
//! the same lines, without exception: lines of the same millisecond have an order in which all decisions agree.
//!
//! The limit in the line of a rejected request must reject it in the replay too. It is also the limit with the longest
//! wait, except in two cases. A gateway that remembers a rejection by Redis does not ask about the other limits. And in
//! the same millisecond, later grants can have filled another limit.

use std::collections::HashSet;

use tidegate::internals::{ReplayedLine, replay_logs};

use super::RunError;
use super::fleet::StartedGateway;
use super::log::{Decisions, LoggedDecision};

/// The maximum number of different lines that are kept.
const MAX_SHOWN: usize = 5;

/// The result of a replay.
#[derive(Debug)]
pub struct Comparison {
    /// The number of compared lines.
    pub lines: usize,
    /// The number of lines with another decision.
    pub differences: usize,
    /// The first of them.
    pub first: Vec<String>,
}

/// Replays the logs of these gateways, which have the same rules and share a store. `is_cached` if gateways remember
/// rejections by the store.
pub fn compare(started: &[StartedGateway], decisions: &Decisions, is_cached: bool) -> Result<Comparison, RunError> {
    let rules = std::fs::read_to_string(&started.first().ok_or("no gateway was started")?.rules)?;
    let logs: Vec<_> = started.iter().map(|started| started.access_log.clone()).collect();
    let replayed = replay_logs(&rules, &logs)?;
    let logged = decisions.lines.iter().map(Vec::len).sum::<usize>();
    if replayed.len() != logged {
        return Err(format!("the replay has {} of {logged} lines", replayed.len()).into());
    }
    let granted: HashSet<_> = decisions.lines.iter().flatten().filter(|line| !line.limited).map(moment).collect();
    let mut comparison = Comparison { lines: 0, differences: 0, first: Vec::new() };
    for replayed in &replayed {
        let line = usize::try_from(replayed.line)?;
        let logged = decisions.lines[replayed.log].get(line).ok_or("a line of the replay is not in the log")?;
        if logged.at.is_none() {
            continue;
        }
        comparison.lines += 1;
        let may_be_shorter = is_cached || granted.contains(&moment(logged));
        if !is_equal(logged, replayed, may_be_shorter) {
            comparison.differences += 1;
            if comparison.first.len() < MAX_SHOWN {
                let log = logs[replayed.log].display();
                comparison.first.push(format!("{log}:{}: {logged:?}, but the replay: {replayed:?}", line + 1));
            }
        }
    }
    Ok(comparison)
}

/// Returns the route and the time of a decision.
fn moment(line: &LoggedDecision) -> (&'static str, Option<u64>) {
    (line.route, line.at)
}

/// Returns `true` if the replay made this decision. `may_be_shorter` if another limit can have a longer wait than the
/// logged one.
fn is_equal(logged: &LoggedDecision, replayed: &ReplayedLine, may_be_shorter: bool) -> bool {
    let rejects = |name: &String| match may_be_shorter {
        true => replayed.rejected_by.contains(name),
        false => replayed.limit.as_ref() == Some(name),
    };
    replayed.admitted != logged.limited && logged.limit.as_ref().is_some_and(rejects) == logged.limited
}
