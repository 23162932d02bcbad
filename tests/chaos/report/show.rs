//! How a report is shown.

use std::fmt;
use std::time::Duration;

use super::super::losses::ByLaw;
use super::super::run::Round;
use super::super::table::Limit;
use super::super::verdict::Verdict;
use super::{Report, Row};

/// So many violations are told one by one.
const TOLD: usize = 10;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, seed, requests, failures, decisions: [decisions, kept, alone], .. } = self;
        let deadline = self.deadline.as_millis();
        writeln!(
            f,
            "{title}, seed {seed}, deadline {deadline} ms: {requests} requests; {failures:.0} times Redis did not decide.\n\
             Decisions: {decisions}, {alone} of them by a gateway alone, {kept} while Redis kept its data.\n"
        )?;
        self.show_faults(f)?;
        writeln!(f)?;
        self.show_limits(f)?;
        writeln!(f)?;
        self.violations().iter().try_for_each(|violation| writeln!(f, "{violation}."))?;
        let Self { failed, unlogged, out_of_time, .. } = self;
        let losses: u64 = self.rounds.iter().filter_map(|round| round.lost).map(|lost| lost.times).sum();
        let forgotten: u64 = self.limits.iter().map(|(_, verdict)| verdict.by_law.forgotten_in_all).sum();
        writeln!(f, "Redis lost data {losses} times, and forgot {forgotten} permits thereby, of all limits together.")?;
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
        for (number, sizes) in self.occupied.iter().enumerate() {
            let [first, half, last] = sizes.map(occupied);
            writeln!(f, "Gateway {number}: {first} after the first fault, {half} half-way, {last} after the last.")?;
        }
        Ok(())
    }
}

impl Report {
    fn show_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| fault | times | requests meanwhile | decided without Redis | failed | slowest | the same without a limit | near the deadline or more | p99 after a second | the same without a limit | exact again after | at worst |"
        )?;
        writeln!(f, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
        for (fault, row) in &self.faults {
            let (sum, worst) = (row.settled_in.iter().sum::<u64>(), row.settled_in.iter().max().copied());
            let mean = sum / row.settled_in.len().max(1) as u64;
            let settled = match (row.unsettled, worst) {
                (0, Some(worst)) => format!("{mean} ms | {worst} ms"),
                _ => "NEVER | NEVER".to_owned(),
            };
            let (title, Row { times, asked, alone, failed, waited, .. }) = (fault.title(), row);
            let [p99, p99_free] = [&row.later, &row.later_free].map(|took| p99(took).map_or("-".to_owned(), millis));
            let [slowest, slowest_free] = [row.slowest, row.slowest_free].map(millis);
            writeln!(
                f,
                "| {title} | {times} | {asked} | {alone} | {failed} | {slowest} | {slowest_free} | {waited} | {p99} | {p99_free} | {settled} |"
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
            let Verdict { granted: (by_store, alone), by_law, .. } = verdict;
            let ByLaw { fullest, forgotten, .. } = by_law;
            let (used, allowed, lost, held) = (fullest.used, fullest.allowed, forgotten.used, forgotten.allowed);
            let law = by_law.violations.len() + verdict.undenied.len();
            let (share, uncharged) = (verdict.beyond_share.len(), verdict.uncharged.len());
            writeln!(
                f,
                "| {title} | {policy} | {rate} in {interval} ms | {by_store} | {alone} | {used} of {allowed} | {law} | {share} | {uncharged} | {lost} of {held} |"
            )?;
        }
        Ok(())
    }

    /// When promises were broken, and what had happened before.
    pub(super) fn violations(&self) -> Vec<String> {
        let of_limit = |(limit, verdict): &(Limit, Verdict)| {
            let moments = verdict.violations().flat_map(|(what, moments)| moments.iter().map(move |at| (what, *at)));
            moments
                .map(|(what, at)| format!("{} at {at}: {what}, {}", limit.title(), self.after(at)))
                .collect::<Vec<_>>()
        };
        self.limits.iter().flat_map(of_limit).take(TOLD).collect()
    }

    fn after(&self, at: u64) -> String {
        let round = self.rounds.iter().rfind(|round| round.begin <= at);
        round.map_or("before any fault".to_owned(), |round| after(round, at))
    }
}

/// How long after the steps of a round that is.
fn after(round: &Round, at: u64) -> String {
    let steps = [
        ("it began", Some(round.begin)),
        ("data was lost for the last time", round.lost.map(|lost| lost.until)),
        ("it was over", Some(round.end)),
        ("all was as before", round.all_settled()),
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
