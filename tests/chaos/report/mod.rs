//! The report of a run, as tables.

mod row;
mod show;

use std::collections::BTreeMap;
use std::time::Duration;

use self::row::Row;
use super::faults::Fault;
use super::journal::{DecidedBy, Record};
use super::run::{Round, Run, RunOutcome};
use super::table::{LIMITS, Limit, Policy, ROUTES, UNLIMITED};
use super::verdict::Verdict;

pub struct Report {
    title: &'static str,
    seed: u64,
    deadline: Duration,
    limits: Vec<(Limit, Verdict)>,
    faults: BTreeMap<Fault, Row>,
    rounds: Vec<Round>,
    requests: usize,
    /// Responses of routes with a limit.
    decisions: usize,
    /// Decisions outside the spans in which Redis may have lost data.
    decisions_without_loss: usize,
    /// Decisions of gateways without Redis.
    local_decisions: usize,
    /// Responses without an access log line.
    unlogged: usize,
    /// Grants whose time at Redis is outside the request.
    misdated: usize,
    /// Requests without a response, and server errors under a policy other than `deny`.
    failed: usize,
    store_failures: f64,
    /// Memory and descriptors of each gateway after the first fault, half of the faults and the last one.
    resources: Vec<[(u64, usize); 3]>,
}

/// The largest difference between two clocks that are read one after the other, in milliseconds.
const MARGIN: u64 = 5;

impl Report {
    pub fn new(run: &Run, outcome: &RunOutcome) -> Self {
        let (Run { kind, seed, deadline, .. }, RunOutcome { records, rounds, failures }) = (*run, outcome);
        let mut faults = BTreeMap::<Fault, Row>::new();
        for round in rounds {
            faults.entry(round.fault).or_default().add(round, records, deadline);
        }
        let count = |is: &dyn Fn(&Record) -> bool| records.iter().filter(|record| is(record)).count();
        let sampled = [rounds.first(), rounds.get(rounds.len() / 2), rounds.last()];
        let resources = |gateway| sampled.map(|round| round.map_or((0, 0), |round| round.resources[gateway]));
        let is_without_loss = |record: &Record| !rounds.iter().any(|round| round.has_lost(record.begin));
        let is_decision = |record: &Record| record.status != 0 && usize::from(record.route) != UNLIMITED;
        Self {
            title: kind.title(),
            seed,
            deadline,
            limits: LIMITS.iter().map(|limit| (*limit, Verdict::new(limit, records, rounds))).collect(),
            faults,
            rounds: rounds.clone(),
            requests: records.len(),
            decisions: count(&is_decision),
            decisions_without_loss: count(&|record| is_decision(record) && is_without_loss(record)),
            local_decisions: count(&|record| is_decision(record) && record.decided_by == DecidedBy::Gateway),
            unlogged: count(&|record| record.decided_by == DecidedBy::Unknown && record.status != 0),
            misdated: count(&is_misdated),
            failed: count(&is_failed),
            store_failures: failures.iter().sum(),
            resources: (0..failures.len()).map(resources).collect(),
        }
    }

    /// Returns everything that makes the run fail.
    pub fn failures(&self) -> Vec<String> {
        let unused = self.limits.iter().filter(|(_, verdict)| verdict.granted_by_store == 0);
        let unused = unused.map(|(limit, _)| format!("{}: Redis granted nothing", limit.title()));
        let unrecovered = self.faults.iter().filter(|(_, row)| row.unrecovered > 0);
        let unrecovered = unrecovered.map(|(fault, _)| format!("no recovery after: {}", fault.title()));
        let counts = [
            (self.failed, "failed requests"),
            (self.unlogged, "responses missing from the access logs"),
            (self.misdated, "grants dated outside their requests"),
            (usize::from(self.has_grown()), "growth of memory or descriptors"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        self.violations().into_iter().chain(unused).chain(unrecovered).chain(counts).collect()
    }

    /// Returns `true` if a gateway has more descriptors at the end than at the start, or a tenth more memory than
    /// half-way.
    fn has_grown(&self) -> bool {
        let has_grown =
            |[first, half, last]: &[(u64, usize); 3]| last.1 > first.1 + 8 || last.0 > half.0 * 11 / 10 + 1_024;
        self.resources.iter().any(has_grown)
    }
}

fn is_failed(record: &Record) -> bool {
    let policy = ROUTES[usize::from(record.route)].policy;
    record.status == 0 || record.status >= 500 && policy != Policy::Deny
}

/// Returns `true` if Redis dates the decision before the start of the request, or after its end.
fn is_misdated(record: &Record) -> bool {
    match record.decided_by {
        DecidedBy::Store(at) if record.is_granted() => at + MARGIN < record.begin || at > record.end + MARGIN,
        _ => false,
    }
}
