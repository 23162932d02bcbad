//! What a run shows, as tables.

mod row;
mod show;

use std::collections::BTreeMap;
use std::time::Duration;

use self::row::Row;
use super::faults::Fault;
use super::journal::{By, Record};
use super::run::{Round, Run, Witnessed};
use super::table::{FREE, LIMITS, Limit, Policy, ROUTES};
use super::verdict::Verdict;

pub struct Report {
    title: &'static str,
    seed: u64,
    deadline: Duration,
    limits: Vec<(Limit, Verdict)>,
    faults: BTreeMap<Fault, Row>,
    rounds: Vec<Round>,
    requests: usize,
    /// Those that had a limit and were answered; of these while Redis kept its data, and those that gateways made alone.
    decisions: [usize; 3],
    /// Answers that no line of an access log tells of, and those that Redis decided before they were asked for, or after.
    unlogged: usize,
    out_of_time: usize,
    /// Requests without an answer, or with one that only `deny` may give.
    failed: usize,
    failures: f64,
    /// Of each gateway, after the first fault, half of them, and the last.
    occupied: Vec<[(u64, usize); 3]>,
}

/// By so much may clocks differ that are read one after the other.
const MARGIN: u64 = 5;

impl Report {
    pub fn of(run: &Run, witnessed: &Witnessed) -> Self {
        let (Run { kind, seed, deadline, .. }, Witnessed { records, rounds, failures }) = (*run, witnessed);
        let mut faults = BTreeMap::<Fault, Row>::new();
        for round in rounds {
            faults.entry(round.fault).or_default().add(round, records, deadline);
        }
        let count = |is: &dyn Fn(&Record) -> bool| records.iter().filter(|one| is(one)).count();
        let some = [rounds.first(), rounds.get(rounds.len() / 2), rounds.last()];
        let occupied = |gateway| some.map(|round| round.map_or((0, 0), |it| it.occupied[gateway]));
        let is_kept = |one: &Record| !rounds.iter().any(|round| round.is_lost(one.begin));
        let is_decision = |one: &Record| one.status != 0 && usize::from(one.route) != FREE;
        Self {
            title: kind.title(),
            seed,
            deadline,
            limits: LIMITS.iter().map(|limit| (*limit, Verdict::of(limit, records, rounds))).collect(),
            faults,
            rounds: rounds.clone(),
            requests: records.len(),
            decisions: [
                count(&is_decision),
                count(&|one| is_decision(one) && is_kept(one)),
                count(&|one| is_decision(one) && one.by == By::Alone),
            ],
            unlogged: count(&|one| one.by == By::Nobody && one.status != 0),
            out_of_time: count(&is_out_of_time),
            failed: count(&is_failed),
            failures: failures.iter().sum(),
            occupied: (0..failures.len()).map(occupied).collect(),
        }
    }

    /// What was not as it should have been.
    pub fn broken(&self) -> Vec<String> {
        let unused = self.limits.iter().filter(|(_, verdict)| verdict.granted.0 == 0);
        let unused = unused.map(|(limit, _)| format!("{}: Redis granted nothing", limit.title()));
        let unsettled = self.faults.iter().filter(|(_, row)| row.unsettled > 0);
        let unsettled = unsettled.map(|(fault, _)| format!("nothing was as before after: {}", fault.title()));
        let counts = [
            (self.failed, "requests that failed"),
            (self.unlogged, "answers that no access log tells of"),
            (self.out_of_time, "grants dated outside their requests"),
            (usize::from(!self.is_flat()), "growth of memory or descriptors"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        self.violations().into_iter().chain(unused).chain(unsettled).chain(counts).collect()
    }

    /// Has no gateway more descriptors at the end than at the begin, nor a tenth more memory than half-way?
    fn is_flat(&self) -> bool {
        let is_flat =
            |[first, half, last]: &[(u64, usize); 3]| last.1 <= first.1 + 8 && last.0 <= half.0 * 11 / 10 + 1_024;
        self.occupied.iter().all(is_flat)
    }
}

fn is_failed(one: &Record) -> bool {
    let policy = ROUTES[usize::from(one.route)].policy;
    one.status == 0 || one.status >= 500 && policy != Policy::Deny
}

/// Did Redis decide by its clock when nobody had asked yet, or all was over?
fn is_out_of_time(one: &Record) -> bool {
    match one.by {
        By::Store(at) if one.is_granted() => at + MARGIN < one.begin || at > one.end + MARGIN,
        _ => false,
    }
}
