//! Metrics of budgets: limits of costs that are known only after the response.

use std::slice::from_ref;

use super::routes::{LIMIT, ROUTE};
use crate::catalog::{Description, Label};
use crate::instruments::count::Count;

/// A share of a budget whose passing is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetShare {
    /// 80 %.
    Most,
    /// 100 %.
    All,
}

/// The names of [`BudgetShare`], in the order of its variants.
const SHARES: [&str; 2] = ["80", "100"];

/// The counters of one budget.
#[derive(Debug, Default)]
pub(super) struct BudgetSeries {
    settled: Count,
    debt: Count,
    usage_missing: Count,
    passed: [Count; SHARES.len()],
    ended: Count,
}

pub(super) const SETTLED: Description = Description {
    name: "budget_settled",
    labels: &[ROUTE, LIMIT],
    unit: "permits",
    meaning: "Costs that were charged to a budget after the responses of its requests",
    action: "compare its rate with the bill of the upstream",
};

pub(super) const DEBT: Description = Description {
    name: "budget_debt",
    labels: &[ROUTE, LIMIT],
    unit: "permits",
    meaning: "Costs above the reservations of their requests, which can exceed the budget",
    action: "grows: the upstream reports more than requests allow; set `max_input`, or name models \
             that reason in `whole`",
};

pub(super) const USAGE_MISSING: Description = Description {
    name: "budget_usage_missing",
    labels: &[ROUTE, LIMIT],
    unit: "requests",
    meaning: "Requests without a usage, which were charged with all that they had reserved",
    action: "grows: the upstream reports no usage, or uses another API than `usage` names; with \
             `on_disconnect: cancel`, clients leave",
};

pub(super) const PASSED: Description = Description {
    name: "budget_passed",
    labels: &[ROUTE, LIMIT, Label::Fixed("percent", &SHARES)],
    unit: "times",
    meaning: "How often the settled costs of a bucket have passed this share of its budget",
    action: "the log has the hash of the client; raise the rate, or inform the client",
};

pub(super) const ENDED: Description = Description {
    name: "budget_streams_ended",
    labels: &[ROUTE, LIMIT],
    unit: "streams",
    meaning: "Streams that the gateway has ended, since the budget had no permits for more output",
    action: "clients get short outputs: raise the rate, or let fewer clients share it",
};

impl BudgetShare {
    /// All shares, in ascending order.
    pub const ALL: [Self; 2] = [Self::Most, Self::All];

    /// Returns the share in percent.
    pub fn percent(self) -> u32 {
        match self {
            Self::Most => 80,
            Self::All => 100,
        }
    }
}

impl BudgetSeries {
    pub(super) fn settled(&self) -> &[Count] {
        from_ref(&self.settled)
    }

    pub(super) fn debt(&self) -> &[Count] {
        from_ref(&self.debt)
    }

    pub(super) fn usage_missing(&self) -> &[Count] {
        from_ref(&self.usage_missing)
    }

    pub(super) fn passed(&self) -> &[Count] {
        &self.passed
    }

    pub(super) fn ended(&self) -> &[Count] {
        from_ref(&self.ended)
    }

    /// Counts a cost, and the part of it that was not reserved.
    pub(super) fn add_cost(&self, permits: u32, unreserved: u32) {
        self.settled.inc_by(permits.into());
        self.debt.inc_by(unreserved.into());
    }

    pub(super) fn add_missing_usage(&self) {
        self.usage_missing.inc();
    }

    pub(super) fn add_end(&self) {
        self.ended.inc();
    }

    pub(super) fn add_passing(&self, share: BudgetShare) {
        self.passed[share as usize].inc();
    }
}
