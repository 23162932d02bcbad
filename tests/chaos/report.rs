//! What a run shows, as tables.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

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
    decisions: usize,
    /// Answers that no line of an access log tells of, and those that Redis decided before they were asked for, or after.
    unlogged: usize,
    out_of_time: usize,
    /// Requests without an answer, or with one that only `deny` may give.
    failed: usize,
    failures: f64,
    /// Of each gateway, after the first fault and after the last.
    occupied: Vec<[(u64, usize); 2]>,
}

/// What a kind of fault did.
#[derive(Default)]
struct Row {
    times: usize,
    asked: usize,
    alone: usize,
    failed: usize,
    slowest: Duration,
    /// Answers that took at least four fifths of a decision's deadline.
    waited: usize,
    /// Of requests that began a second after the fault or later, until it was over.
    later: Vec<Duration>,
    /// The same of requests without a limit.
    free: Vec<Duration>,
    /// How long it took each time until all was as before, in milliseconds.
    settled_in: Vec<u64>,
    unsettled: usize,
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
        let ends =
            |gateway| [rounds.first(), rounds.last()].map(|round| round.map_or((0, 0), |it| it.occupied[gateway]));
        Self {
            title: kind.title(),
            seed,
            deadline,
            limits: LIMITS.iter().map(|limit| (*limit, Verdict::of(limit, records, rounds))).collect(),
            faults,
            decisions: records.len(),
            unlogged: count(&|one| one.by == By::Nobody && one.status != 0),
            out_of_time: count(&is_out_of_time),
            failed: count(&is_failed),
            failures: failures.iter().sum(),
            occupied: (0..failures.len()).map(ends).collect(),
        }
    }

    /// Did all limits keep what they promise, and was everybody answered?
    pub fn is_good(&self) -> bool {
        let settled = self.faults.values().all(|row| row.unsettled == 0);
        let exact = self.limits.iter().all(|(_, verdict)| verdict.is_good());
        exact && settled && self.failed + self.unlogged + self.out_of_time == 0 && self.is_flat()
    }

    /// Has no gateway more descriptors at the end?
    fn is_flat(&self) -> bool {
        self.occupied.iter().all(|[first, last]| last.1 <= first.1 + 8)
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

// === impl Row ===

impl Row {
    fn add(&mut self, round: &Round, records: &[Record], deadline: Duration) {
        self.times += 1;
        match round.all_settled() {
            Some(settled) => self.settled_in.push(settled.saturating_sub(round.end)),
            None => self.unsettled += 1,
        }
        let waits = |route: usize| LIMITS.iter().any(|limit| limit.route == route && limit.rule.law.waits());
        for one in records.iter().filter(|one| (round.begin..round.end).contains(&one.begin)) {
            let is_later = one.begin >= round.begin + 1_000;
            if usize::from(one.route) == FREE {
                self.free.extend(is_later.then_some(one.took));
                continue;
            }
            self.asked += 1;
            self.alone += usize::from(one.by == By::Alone);
            self.failed += usize::from(is_failed(one));
            if waits(one.route.into()) {
                continue;
            }
            self.slowest = self.slowest.max(one.took);
            self.waited += usize::from(one.took * 5 >= deadline * 4);
            if is_later {
                self.later.push(one.took);
            }
        }
    }
}

// === how it is shown ===

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, seed, decisions, failures, .. } = self;
        let deadline = self.deadline.as_millis();
        writeln!(
            f,
            "{title}, seed {seed}, deadline {deadline} ms: {decisions} requests; {failures:.0} times Redis did not decide.\n"
        )?;
        self.show_faults(f)?;
        writeln!(f)?;
        self.show_limits(f)?;
        writeln!(f)?;
        let Self { failed, unlogged, out_of_time, .. } = self;
        writeln!(
            f,
            "Requests that failed under `local` or `allow`: {failed}. Answers that no access log tells of: {unlogged}."
        )?;
        writeln!(
            f,
            "Grants that Redis dates before they were asked for, or after they were answered: {out_of_time}.\n"
        )?;
        let occupied =
            |(memory, descriptors): (u64, usize)| format!("{} MiB, {descriptors} descriptors", memory / 1024);
        for (number, [first, last]) in self.occupied.iter().enumerate() {
            writeln!(
                f,
                "Gateway {number}: {} after the first fault, {} after the last.",
                occupied(*first),
                occupied(*last)
            )?;
        }
        Ok(())
    }
}

impl Report {
    fn show_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| fault | times | requests meanwhile | decided without Redis | failed | slowest | near the deadline or more | p99 after a second | the same without a limit | exact again after | at worst |"
        )?;
        writeln!(f, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
        for (fault, row) in &self.faults {
            let (sum, worst) = (row.settled_in.iter().sum::<u64>(), row.settled_in.iter().max().copied());
            let mean = sum / row.settled_in.len().max(1) as u64;
            let settled = match (row.unsettled, worst) {
                (0, Some(worst)) => format!("{mean} ms | {worst} ms"),
                _ => "NEVER | NEVER".to_owned(),
            };
            let (title, Row { times, asked, alone, failed, waited, .. }) = (fault.title(), row);
            let [p99, free] = [&row.later, &row.free].map(|took| p99(took).map_or("-".to_owned(), millis));
            let slowest = millis(row.slowest);
            writeln!(
                f,
                "| {title} | {times} | {asked} | {alone} | {failed} | {slowest} | {waited} | {p99} | {free} | {settled} |"
            )?;
        }
        Ok(())
    }

    fn show_limits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| limit | policy | rate | granted by Redis | granted alone | fullest by Redis | beyond the law | beyond the share | not charged | forgotten |"
        )?;
        writeln!(f, "|---|---|---|--:|--:|--:|--:|--:|--:|--:|")?;
        for (limit, verdict) in &self.limits {
            let (title, policy, rate, interval) =
                (limit.title(), limit.policy().word(), limit.rule.rate, limit.rule.interval);
            let Verdict { granted: (by_store, alone), beyond_law, beyond_share, uncharged, forgotten, fullest, .. } =
                verdict;
            let (used, allowed) = (fullest.used, fullest.allowed);
            let law = beyond_law + verdict.undenied;
            writeln!(
                f,
                "| {title} | {policy} | {rate} in {interval} ms | {by_store} | {alone} | {used} of {allowed} | {law} | {beyond_share} | {uncharged} | {forgotten} |"
            )?;
        }
        Ok(())
    }
}

fn p99(took: &[Duration]) -> Option<Duration> {
    let mut took = took.to_vec();
    took.sort_unstable();
    took.get(took.len().checked_sub(took.len() / 100 + 1)?).copied()
}

fn millis(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1_000.0)
}
