//! Checks what Redis granted in a run in which it lost data. Before a loss and after it, the limit holds. Around a
//! loss, a window may hold as much as all servers that granted then may grant together.

use super::checker::{Algorithm, Fullness, Grant, Rule, check};

/// Findings about the grants of Redis under one limit.
#[derive(Debug, Default)]
pub struct StoreFinding {
    /// The fullest window without a loss of data.
    pub fullest: Fullness,
    /// Times of the grants that neither the limit nor a loss of data allows.
    pub violations: Vec<u64>,
    /// The worst loss. `used` is the number of permits that a window held above the limit. `allowed` is the number of
    /// permits that Redis can have forgotten: those granted before the loss that still counted.
    pub forgotten: Fullness,
    /// Permits above the limit, summed over all losses.
    pub total_forgotten: u64,
}

/// A loss of data.
#[derive(Clone, Copy, Debug)]
pub struct DataLoss {
    /// The span in which several servers may have granted at the same time. Empty if none did.
    pub since: u64,
    pub until: u64,
    /// How many servers took over, each with an incomplete copy of the data.
    pub times: u64,
}

impl StoreFinding {
    /// Checks the grants of one bucket, sorted by time.
    pub fn check_bucket(&mut self, rule: &Rule, grants: &[Grant], losses: &[DataLoss]) {
        for epoch in 0..=losses.len() {
            let begin = epoch.checked_sub(1).map_or(0, |last| losses[last].until);
            let end = losses.get(epoch).map_or(u64::MAX, |loss| loss.since);
            let finding = check(&[*rule], between(grants, begin, end));
            self.fullest = self.fullest.or_fuller(finding.fullest);
            self.violations.extend(times_of(&finding.violations));
            if let Some(loss) = losses.get(epoch) {
                let next = losses.get(epoch + 1).map_or(u64::MAX, |loss| loss.since);
                self.check_loss(rule, between(grants, begin, next), *loss);
            }
        }
    }

    fn check_loss(&mut self, rule: &Rule, around: &[Grant], DataLoss { since, until, times }: DataLoss) {
        let by_all_servers = check(&[for_servers(rule, times + 1)], around);
        self.violations.extend(times_of(&by_all_servers.violations));
        let fullest = check(&[*rule], around).fullest;
        let used = fullest.used.saturating_sub(fullest.allowed);
        let allowed = between(around, since.saturating_sub(max_age(rule)), until).len() as u64;
        if used > allowed {
            self.violations.push(until);
        }
        self.total_forgotten += used;
        if used > self.forgotten.used || self.forgotten.allowed == 0 {
            self.forgotten = Fullness { used, allowed };
        }
    }
}

/// Returns the longest time for which a grant may count; at least one interval.
pub fn max_age(rule: &Rule) -> u64 {
    match rule.returns(0) {
        Some(returns) => returns.max(rule.interval),
        None => rule.interval.max((rule.capacity() * rule.interval).div_ceil(rule.rate)),
    }
}

pub fn times_of(grants: &[Grant]) -> impl Iterator<Item = u64> {
    grants.iter().map(|grant| grant.at)
}

/// Returns the rule that several servers keep together if each of them keeps `rule`.
fn for_servers(rule: &Rule, servers: u64) -> Rule {
    let algorithm = match rule.algorithm {
        Algorithm::Gcra { burst } => Algorithm::Gcra { burst: servers * burst },
        Algorithm::LeakyBucket { queue } => Algorithm::LeakyBucket { queue: servers * (queue + 1) - 1 },
        algorithm => algorithm,
    };
    Rule { algorithm, rate: servers * rule.rate, ..*rule }
}

/// Returns the grants after `begin`, up to and including `end`.
fn between(grants: &[Grant], begin: u64, end: u64) -> &[Grant] {
    let up_to = |time: u64| grants.partition_point(|grant| grant.at <= time);
    &grants[up_to(begin).min(up_to(end))..up_to(end)]
}
