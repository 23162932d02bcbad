//! The result of a run, as a table.

use std::collections::BTreeMap;
use std::fmt;

use super::Run;
use super::checker::{Finding, Fullness, Grant, check, is_nearly_all};
use super::load::StatusCounts;
use super::log::Decisions;
use super::replay::Comparison;
use super::table::Limit;

/// The result of a run.
#[derive(Debug)]
pub struct Verdict {
    rows: Vec<Row>,
    /// Whether there were no disturbances. Only then must every rejection have a reason.
    calm: bool,
    /// Whether the load had a fixed rate. Only then is the demand known to exceed every limit.
    paced: bool,
    /// Responses per second.
    speed: u64,
    outcomes: BTreeMap<String, u64>,
    /// Responses that clients received without a log line.
    unlogged: u64,
    /// Requests that were rejected while permits were available.
    unfounded: usize,
    /// The number of disturbances.
    pub disturbances: usize,
    /// The comparison with a replay of the logs. `None` with disturbances.
    pub replayed: Option<Comparison>,
}

/// The result of one limit.
#[derive(Debug)]
struct Row {
    limit: Limit,
    granted: u64,
    fullest: Fullness,
    violations: usize,
    /// The granted and the allowed permits in the whole intervals of all buckets.
    whole: (u64, u64),
}

impl Verdict {
    /// Evaluates a run by the logs of the gateways and the statuses that the clients received.
    pub fn new(
        run: &Run,
        limits: &[Limit],
        decisions: &Decisions,
        statuses: &StatusCounts,
        disturbances: Option<usize>,
        replayed: Option<Comparison>,
    ) -> Self {
        let missing = |(status, seen): (&u16, &u64)| {
            let logged = decisions.statuses.get(status).copied().unwrap_or(0);
            if *status == 0 { 0 } else { seen.saturating_sub(logged) }
        };
        let calm = disturbances.is_none();
        Self {
            rows: limits.iter().map(|limit| Row::new(limit, decisions)).collect(),
            calm,
            paced: run.rate.is_some(),
            speed: statuses.values().sum::<u64>() * 1_000 / u64::try_from(run.duration.as_millis()).unwrap_or(1).max(1),
            outcomes: decisions.outcomes.clone(),
            unlogged: statuses.iter().map(missing).sum(),
            unfounded: if calm { unfounded(decisions, limits) } else { 0 },
            disturbances: disturbances.unwrap_or(0),
            replayed,
        }
    }

    /// Returns `true` if all requests are logged and no window of any limit exceeds its rate. Without disturbances, a
    /// replay of the logs must also make the same decisions; with a fixed rate, the limits must have granted 99 % of the
    /// allowed permits.
    pub fn is_pass(&self) -> bool {
        let is_replayable = self.replayed.as_ref().is_none_or(|replayed| replayed.differences == 0);
        let exact = self.unlogged == 0 && self.rows.iter().all(|row| row.granted > 0 && row.violations == 0);
        exact
            && is_replayable
            && self.unfounded == 0
            && (!self.must_be_generous() || self.rows.iter().all(Row::is_generous))
    }

    /// Returns `true` if the limits had to grant all that they allow.
    fn must_be_generous(&self) -> bool {
        self.calm && self.paced
    }
}

/// Counts the requests that were rejected although none of their limits was full.
fn unfounded(decisions: &Decisions, limits: &[Limit]) -> usize {
    let unfounded = |(rejections, limits): (&[u64], Vec<(&Limit, Vec<Grant>)>)| {
        let mut full = vec![false; rejections.len()];
        for (limit, grants) in limits {
            let full_limit = limit.rules[0].is_full_at(&grants, rejections);
            full.iter_mut().zip(full_limit).for_each(|(full, limit_is_full)| *full |= limit_is_full);
        }
        full.into_iter().filter(|full| !full).count()
    };
    decisions.rejected(limits).map(unfounded).sum()
}

// === impl Row ===

impl Row {
    fn new(limit: &Limit, decisions: &Decisions) -> Self {
        let mut row = Self { limit: *limit, granted: 0, fullest: Fullness::default(), violations: 0, whole: (0, 0) };
        for grants in decisions.buckets(limit) {
            let Finding { fullest, violations } = check(&limit.rules, &grants);
            row.fullest = row.fullest.or_fuller(fullest);
            row.violations += violations.len();
            row.granted += grants.iter().map(|grant| grant.permits).sum::<u64>();
            let first = grants.iter().map(|grant| grant.at).min().unwrap_or(decisions.end);
            let first = limit.rules[0].first_whole_interval(first);
            let (allowed, end) = limit.rules[0].allowed(first, decisions.end);
            let whole = grants.iter().filter(|grant| (first..end).contains(&grant.at));
            row.whole.0 += whole.map(|grant| grant.permits).sum::<u64>();
            row.whole.1 += allowed;
        }
        row
    }

    fn is_generous(&self) -> bool {
        let (granted, allowed) = self.whole;
        !self.limit.binds || is_nearly_all(granted, allowed)
    }

    fn verdict(&self, must_be_generous: bool) -> &'static str {
        match () {
            () if self.violations > 0 => "TOO MUCH",
            () if self.granted == 0 => "NOT TRIED",
            () if must_be_generous && !self.is_generous() => "TOO LITTLE",
            () => "ok",
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limit { route, name, rules, .. } = &self.limit;
        let rules: Vec<String> = rules.iter().map(|rule| format!("{}/{}ms", rule.rate, rule.interval)).collect();
        let window = format!("{}/{}", self.fullest.used, self.fullest.allowed);
        write!(f, "{:<14} {:<24} {:>8} {:>11}", format!("{route}.{name}"), rules.join(" "), self.granted, window)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["limit", "rates", "granted", "fullest", "in whole", "allowed", "ratio"];
        let [limit, rules, granted, window, whole, allowed_header, ratio] = header;
        writeln!(
            f,
            "{limit:<14} {rules:<24} {granted:>8} {window:>11} {whole:>9} {allowed_header:>8} {ratio:>7}  verdict"
        )?;
        for row in &self.rows {
            let (granted, allowed) = row.whole;
            // The allowed permits are unknown if another limit binds, or if the rules changed.
            let columns = match self.calm && row.limit.binds {
                true => {
                    let thousandths = granted * 10_000 / allowed.max(1);
                    format!("{granted:>9} {allowed:>8} {:>5}.{:02}", thousandths / 100, thousandths % 100)
                }
                false => format!("{:>9} {:>8} {:>8}", "-", "-", "-"),
            };
            writeln!(f, "{row} {columns}  {}", row.verdict(self.must_be_generous()))?;
        }
        let outcomes: Vec<String> = self.outcomes.iter().map(|(word, count)| format!("{word} {count}")).collect();
        writeln!(f, "responses per second: {}", self.speed)?;
        writeln!(f, "decisions: {}; responses without a log line: {}", outcomes.join(", "), self.unlogged)?;
        if let Some(Comparison { lines, differences, first }) = &self.replayed {
            writeln!(f, "replayed lines: {lines}; with another decision: {differences}")?;
            first.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        match self.calm {
            true => write!(f, "rejected without a reason: {}", self.unfounded),
            false => write!(f, "disturbances: {}", self.disturbances),
        }
    }
}
