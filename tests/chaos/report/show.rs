//! Formats a report.

use std::fmt;
use std::time::Duration;

use super::super::losses::StoreFinding;
use super::super::run::Round;
use super::super::table::Limit;
use super::super::verdict::Verdict;
use super::{Report, Row};

/// At most this many violations are listed.
const MAX_LISTED: usize = 10;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, seed, requests, store_failures, decisions, decisions_without_loss, local_decisions, .. } =
            self;
        let deadline = self.deadline.as_millis();
        writeln!(
            f,
            "{title}, seed {seed}, deadline {deadline} ms: {requests} requests, {store_failures:.0} store failures.\n\
             Decisions: {decisions}, {local_decisions} of them local, {decisions_without_loss} while Redis kept its data.\n"
        )?;
        self.show_faults(f)?;
        writeln!(f)?;
        self.show_limits(f)?;
        writeln!(f)?;
        self.violations().iter().try_for_each(|violation| writeln!(f, "{violation}."))?;
        let Self { failed, unlogged, misdated, .. } = self;
        let losses: u64 = self.rounds.iter().filter_map(|round| round.data_loss).map(|loss| loss.times).sum();
        let forgotten: u64 = self.limits.iter().map(|(_, verdict)| verdict.store_finding.total_forgotten).sum();
        writeln!(f, "Redis lost data {losses} times, and with it {forgotten} permits of all limits together.")?;
        writeln!(
            f,
            "Failed requests under `local` or `allow`: {failed}. Responses missing from the access logs: {unlogged}."
        )?;
        writeln!(f, "Grants that Redis dates before the start or after the end of their requests: {misdated}.\n")?;
        let usage = |(memory, descriptors): (u64, usize)| format!("{} MiB, {descriptors} descriptors", memory / 1024);
        for (number, sampled) in self.resources.iter().enumerate() {
            let [first, half, last] = sampled.map(usage);
            writeln!(f, "Gateway {number}: {first} after the first fault, {half} half-way, {last} after the last.")?;
        }
        Ok(())
    }
}

impl Report {
    fn show_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| fault | times | requests during it | decided locally | failed | slowest | slowest without a limit | near the deadline | p99 after a second | p99 without a limit | mean recovery | longest recovery |"
        )?;
        writeln!(f, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
        for (fault, row) in &self.faults {
            let (sum, worst) = (row.recovery_times.iter().sum::<u64>(), row.recovery_times.iter().max().copied());
            let mean = sum / row.recovery_times.len().max(1) as u64;
            let recovery = match (row.unrecovered, worst) {
                (0, Some(worst)) => format!("{mean} ms | {worst} ms"),
                _ => "NEVER | NEVER".to_owned(),
            };
            let (title, Row { times, requests, local, failed, near_deadline, .. }) = (fault.title(), row);
            let [p99, p99_unlimited] =
                [&row.later, &row.later_unlimited].map(|took| p99(took).map_or("-".to_owned(), millis));
            let [slowest, slowest_unlimited] = [row.slowest, row.slowest_unlimited].map(millis);
            writeln!(
                f,
                "| {title} | {times} | {requests} | {local} | {failed} | {slowest} | {slowest_unlimited} | {near_deadline} | {p99} | {p99_unlimited} | {recovery} |"
            )?;
        }
        Ok(())
    }

    fn show_limits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| limit | policy | rate | granted by Redis | granted locally | fullest window | over the limit | over the share | not charged | forgotten |"
        )?;
        writeln!(f, "|---|---|---|--:|--:|--:|--:|--:|--:|--:|")?;
        for (limit, verdict) in &self.limits {
            let (title, policy, rate, interval) =
                (limit.title(), limit.policy().as_str(), limit.rule.rate, limit.rule.interval);
            let Verdict { granted_by_store, granted_locally, store_finding, .. } = verdict;
            let StoreFinding { fullest, forgotten, .. } = store_finding;
            let (used, allowed, lost, held) = (fullest.used, fullest.allowed, forgotten.used, forgotten.allowed);
            let over_limit = store_finding.violations.len() + verdict.not_denied.len();
            let (over_share, uncharged) = (verdict.over_share.len(), verdict.uncharged.len());
            writeln!(
                f,
                "| {title} | {policy} | {rate} in {interval} ms | {granted_by_store} | {granted_locally} | {used} of {allowed} | {over_limit} | {over_share} | {uncharged} | {lost} of {held} |"
            )?;
        }
        Ok(())
    }

    /// Lists the first violations, each with the steps of the round before it.
    pub(super) fn violations(&self) -> Vec<String> {
        let violations_of = |(limit, verdict): &(Limit, Verdict)| {
            let times = verdict.violations().flat_map(|(kind, times)| times.iter().map(move |at| (kind, *at)));
            times
                .map(|(kind, at)| format!("{} at {at}: {kind}, {}", limit.title(), self.preceding_steps(at)))
                .collect::<Vec<_>>()
        };
        self.limits.iter().flat_map(violations_of).take(MAX_LISTED).collect()
    }

    fn preceding_steps(&self, at: u64) -> String {
        let round = self.rounds.iter().rfind(|round| round.begin <= at);
        round.map_or("before any fault".to_owned(), |round| steps_before(round, at))
    }
}

/// Returns how long before this time each step of the round was.
fn steps_before(round: &Round, at: u64) -> String {
    let steps = [
        ("its start", Some(round.begin)),
        ("the last loss of data", round.data_loss.map(|loss| loss.until)),
        ("its end", Some(round.end)),
        ("the recovery", round.recovered_at()),
    ];
    let since = |(name, then): (&str, Option<u64>)| Some(format!("{} ms after {name}", at.checked_sub(then?)?));
    let steps: Vec<String> = steps.into_iter().filter_map(since).collect();
    format!("{}: {}", round.fault.title(), steps.join(", "))
}

fn p99(took: &[Duration]) -> Option<Duration> {
    let mut took = took.to_vec();
    took.sort_unstable();
    took.get(took.len().checked_sub(took.len() / 100 + 1)?).copied()
}

fn millis(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1_000.0)
}
