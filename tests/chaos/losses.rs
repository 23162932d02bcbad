//! What Redis may grant where it loses its data: at most what the law allows before, the same after, and in between what as many servers
//! may as granted there, each of which keeps it.

use super::checker::{Fullness, Grant, Law, Rule, check};

/// What became of a limit by the law.
#[derive(Debug, Default)]
pub struct ByLaw {
    /// When it was fullest where nothing was forgotten.
    pub fullest: Fullness,
    /// When was granted beyond the law, or beyond what can have been forgotten.
    pub violations: Vec<u64>,
    /// Of the worst loss: how many permits beyond the limit a window held, and how many it can have forgotten, as they had been
    /// granted before and counted still.
    pub forgotten: Fullness,
    /// How many permits beyond the limit windows held, over all losses.
    pub forgotten_in_all: u64,
}

/// Data that was lost.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Since when, and until when, several servers may have granted side by side; the same moment if none did.
    pub since: u64,
    pub until: u64,
    /// How often: in each case another server begins with what it had heard of.
    pub times: u64,
}

impl ByLaw {
    /// Judges the grants of one bucket, in the order in which they were made.
    pub fn judge(&mut self, rule: &Rule, grants: &[Grant], losses: &[Lost]) {
        for epoch in 0..=losses.len() {
            let begin = epoch.checked_sub(1).map_or(0, |last| losses[last].until);
            let end = losses.get(epoch).map_or(u64::MAX, |loss| loss.since);
            let finding = check(&[*rule], between(grants, begin, end));
            self.fullest = self.fullest.or_fuller(finding.fullest);
            self.violations.extend(moments(&finding.violations));
            if let Some(loss) = losses.get(epoch) {
                let next = losses.get(epoch + 1).map_or(u64::MAX, |loss| loss.since);
                self.judge_loss(rule, between(grants, begin, next), *loss);
            }
        }
    }

    fn judge_loss(&mut self, rule: &Rule, around: &[Grant], Lost { since, until, times }: Lost) {
        let of_all = check(&[manifold(rule, times + 1)], around);
        self.violations.extend(moments(&of_all.violations));
        let fullest = check(&[*rule], around).fullest;
        let used = fullest.used.saturating_sub(fullest.allowed);
        let allowed = between(around, since.saturating_sub(remembered(rule)), until).len() as u64;
        if used > allowed {
            self.violations.push(until);
        }
        self.forgotten_in_all += used;
        if used > self.forgotten.used || self.forgotten.allowed == 0 {
            self.forgotten = Fullness { used, allowed };
        }
    }
}

/// For how long a grant may count: an interval at least.
pub fn remembered(rule: &Rule) -> u64 {
    match rule.returns(0) {
        Some(returns) => returns.max(rule.interval),
        None => rule.interval.max((rule.capacity() * rule.interval).div_ceil(rule.rate)),
    }
}

pub fn moments(grants: &[Grant]) -> impl Iterator<Item = u64> {
    grants.iter().map(|grant| grant.at)
}

/// What so many servers keep together that each keep a rule.
fn manifold(rule: &Rule, servers: u64) -> Rule {
    let law = match rule.law {
        Law::Gcra { burst } => Law::Gcra { burst: servers * burst },
        Law::LeakyBucket { queue } => Law::LeakyBucket { queue: servers * (queue + 1) - 1 },
        law => law,
    };
    Rule { law, rate: servers * rule.rate, ..*rule }
}

/// Those after one moment, up to another one.
fn between(grants: &[Grant], begin: u64, end: u64) -> &[Grant] {
    let up_to = |moment: u64| grants.partition_point(|grant| grant.at <= moment);
    &grants[up_to(begin).min(up_to(end))..up_to(end)]
}
