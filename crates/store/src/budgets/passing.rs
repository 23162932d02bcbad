//! Reports buckets whose settled costs pass a share of their budget.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use tidegate_metrics::{BudgetShare, LimitMetrics};
use tidegate_rules::charge::{Charge, Outcome};

/// The least time between two lines of the log, in milliseconds. The metric counts each passing.
const LOG_EVERY: u64 = 1_000;

/// Reports the shares that a settlement has passed. Exactly one settlement of a bucket passes each of them, at whichever gateway.
/// `key` is the hash of the client in keys, if the client is not an address.
pub(super) fn report(metrics: &LimitMetrics, settled: &Charge, outcome: &Outcome, key: Option<u128>) {
    let Some(unspent) = outcome.decisions.first().map(|decision| decision.remaining) else { return };
    let full = settled.limiter.quota.full();
    let mut highest = None;
    for share in BudgetShare::ALL.into_iter().filter(|share| has_passed(*share, full, unspent, settled.permits)) {
        metrics.budget_passed(share);
        highest = Some(share);
    }
    if let Some(percent) = highest.filter(|_| may_log()).map(BudgetShare::percent) {
        let ([route, limit], client) = (metrics.names(), key.map(|key| format!("{key:032x}")));
        tracing::warn!(route, limit, percent, client, "budget is used");
    }
}

/// Returns `true` if a cost has passed the share of a bucket that had `unspent` of its `full` permits.
fn has_passed(share: BudgetShare, full: u32, unspent: u32, cost: u32) -> bool {
    let left = u64::from(full) * u64::from(100 - share.percent()) / 100;
    u64::from(unspent) > left && u64::from(unspent.saturating_sub(cost)) <= left
}

/// Returns `true` if the last line is old enough. Clients can use up many buckets.
fn may_log() -> bool {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX);
    let later = |next: u64| (now >= next).then_some(now.saturating_add(LOG_EVERY));
    NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_passed_by_one_settlement() {
        let passed = |unspent, cost| BudgetShare::ALL.map(|share| has_passed(share, 100, unspent, cost));
        assert_eq!(passed(21, 0), [false, false]);
        assert_eq!(passed(21, 1), [true, false]);
        assert_eq!(passed(20, 1), [false, false]);
        assert_eq!(passed(20, 20), [false, true]);
        assert_eq!(passed(100, 500), [true, true]);
        assert_eq!(passed(0, 500), [false, false], "debt passes nothing");
    }
}
