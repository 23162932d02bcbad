//! Problems of the targets of upstreams.

use tokio::time::Instant;

use super::MAX_PROBLEMS;
use super::entry::{GatewayProblem, ProblemKind};
use crate::admin::Active;
use tidegate_proxy::upstream::{LastCheck, TargetCondition, TargetName, TargetUse};

/// The number of failures since the last response from which a usable target is a problem. It is not ejected if it is the
/// only one.
const MIN_FAILURES: u64 = 5;

/// Adds the targets that requests do not use, except drained ones, and those that do not respond.
pub(super) fn find(active: &Active, now: Instant, found: &mut Vec<GatewayProblem>) {
    let Some(worker) = active.upstreams.first() else { return };
    for name in active.config.upstreams.keys() {
        let Some(upstream) = worker.get(name) else { continue };
        if upstream.is_panic(now) {
            let message = "most targets fail their health checks: requests use all targets (panic)";
            found.push(GatewayProblem::new(ProblemKind::Upstream, &**name, message));
        }
        let targets = upstream.target_use();
        found.extend(targets.iter().filter_map(|target| problem(name, target, now)));
        if found.len() > MAX_PROBLEMS {
            return;
        }
    }
}

fn problem(upstream: &str, target: &TargetUse, now: Instant) -> Option<GatewayProblem> {
    let message = match target.condition(now) {
        TargetCondition::Draining { .. } => return None,
        TargetCondition::NoAddress => "its host name has no known address".to_owned(),
        TargetCondition::Ejected { why, .. } => format!("is ejected: {why}"),
        TargetCondition::Failed => match target.state.checks().report().last {
            Some(LastCheck { has_passed: false, text, .. }) => format!("fails its health checks: {text}"),
            _ => "fails its health checks".to_owned(),
        },
        TargetCondition::Usable => {
            let failure = target.state.failure().filter(|failure| failure.failures >= MIN_FAILURES)?;
            format!("does not respond: {}", failure.last_error)
        }
    };
    let TargetName { target, address, .. } = target.state.name();
    let subject = match address {
        Some(address) => format!("{upstream}/{target} {address}"),
        None => format!("{upstream}/{target}"),
    };
    Some(GatewayProblem::new(ProblemKind::Target, subject, message))
}
