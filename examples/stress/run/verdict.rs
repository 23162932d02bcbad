//! What the decisions of a run prove, as a table.

use std::collections::BTreeMap;
use std::fmt;

use super::Run;
use super::checker::{Finding, Fullness, Grant, all_but_a_hundredth, check};
use super::load::Answers;
use super::log::Decisions;
use super::table::Limit;

/// What became of a run.
#[derive(Debug)]
pub struct Verdict {
    rows: Vec<Row>,
    /// Did nothing happen? Only then is nobody refused while there is room.
    calm: bool,
    /// Was every limit asked for more than it grants? Only a bounded load is known to be above all of them.
    paced: bool,
    /// Answers in a second.
    speed: u64,
    outcomes: BTreeMap<String, u64>,
    /// Answers that clients have seen and no line tells of.
    unlogged: u64,
    /// Requests that were refused while there was room.
    unfounded: usize,
    /// How many things happened.
    pub events: usize,
}

/// What became of one limit.
#[derive(Debug)]
struct Row {
    limit: Limit,
    granted: u64,
    fullest: Fullness,
    violations: usize,
    /// In the whole intervals of all its buckets: how much was granted, and how much could have been.
    whole: (u64, u64),
}

impl Verdict {
    /// Judges a run by what the gateways and the clients say.
    pub fn of(run: &Run, limits: &[Limit], decisions: &Decisions, answers: &Answers, events: Option<usize>) -> Self {
        let missing = |(status, seen): (&u16, &u64)| {
            let logged = decisions.statuses.get(status).copied().unwrap_or(0);
            if *status == 0 { 0 } else { seen.saturating_sub(logged) }
        };
        let calm = events.is_none();
        Self {
            rows: limits.iter().map(|limit| Row::of(limit, decisions)).collect(),
            calm,
            paced: run.rate.is_some(),
            speed: answers.values().sum::<u64>() * 1_000 / u64::try_from(run.duration.as_millis()).unwrap_or(1).max(1),
            outcomes: decisions.outcomes.clone(),
            unlogged: answers.iter().map(missing).sum(),
            unfounded: if calm { unfounded(decisions, limits) } else { 0 },
            events: events.unwrap_or(0),
        }
    }

    /// Did no window of any limit ever hold more than its rate, by logs that tell of all requests? And was all granted
    /// that could have been, within 1 %, if nothing happened meanwhile and it was asked for?
    pub fn is_good(&self) -> bool {
        let exact = self.unlogged == 0 && self.rows.iter().all(|row| row.granted > 0 && row.violations == 0);
        exact && self.unfounded == 0 && (!self.is_for_all() || self.rows.iter().all(Row::is_generous))
    }

    /// Were limits to grant all that they allow?
    fn is_for_all(&self) -> bool {
        self.calm && self.paced
    }
}

/// Counts the requests that were refused though none of their limits was full.
fn unfounded(decisions: &Decisions, limits: &[Limit]) -> usize {
    let unfounded = |(refusals, limits): (&[u64], Vec<(&Limit, Vec<Grant>)>)| {
        let mut full = vec![false; refusals.len()];
        for (limit, grants) in limits {
            let by_this_one = limit.rules[0].is_full_at(&grants, refusals);
            full.iter_mut().zip(by_this_one).for_each(|(full, this_one)| *full |= this_one);
        }
        full.into_iter().filter(|full| !full).count()
    };
    decisions.refused(limits).map(unfounded).sum()
}

// === impl Row ===

impl Row {
    fn of(limit: &Limit, decisions: &Decisions) -> Self {
        let mut row = Self { limit: *limit, granted: 0, fullest: Fullness::default(), violations: 0, whole: (0, 0) };
        for grants in decisions.buckets(limit) {
            let Finding { fullest, violations } = check(&limit.rules, &grants);
            row.fullest = row.fullest.or_fuller(fullest);
            row.violations += violations.len();
            row.granted += grants.iter().map(|grant| grant.permits).sum::<u64>();
            let first = grants.iter().map(|grant| grant.at).min().unwrap_or(decisions.end);
            let first = limit.rules[0].whole_from(first);
            let (allowed, end) = limit.rules[0].allowed(first, decisions.end);
            let whole = grants.iter().filter(|grant| (first..end).contains(&grant.at));
            row.whole.0 += whole.map(|grant| grant.permits).sum::<u64>();
            row.whole.1 += allowed;
        }
        row
    }

    fn is_generous(&self) -> bool {
        let (granted, allowed) = self.whole;
        !self.limit.binds || all_but_a_hundredth(granted, allowed)
    }

    fn verdict(&self, for_all: bool) -> &'static str {
        match () {
            () if self.violations > 0 => "TOO MUCH",
            () if self.granted == 0 => "NOT TRIED",
            () if for_all && !self.is_generous() => "TOO LITTLE",
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
        let header = ["limit", "rate and others", "granted", "fullest", "in whole", "by law", "ratio"];
        let [limit, rules, granted, window, whole, law, ratio] = header;
        writeln!(f, "{limit:<14} {rules:<24} {granted:>8} {window:>11} {whole:>9} {law:>8} {ratio:>7}  verdict")?;
        for row in &self.rows {
            let (granted, allowed) = row.whole;
            // Of a limit that another one holds down, or that was changed, nobody knows what it would have granted.
            let columns = match self.calm && row.limit.binds {
                true => {
                    let thousandths = granted * 10_000 / allowed.max(1);
                    format!("{granted:>9} {allowed:>8} {:>5}.{:02}", thousandths / 100, thousandths % 100)
                }
                false => format!("{:>9} {:>8} {:>8}", "-", "-", "-"),
            };
            writeln!(f, "{row} {columns}  {}", row.verdict(self.is_for_all()))?;
        }
        let outcomes: Vec<String> = self.outcomes.iter().map(|(word, count)| format!("{word} {count}")).collect();
        writeln!(f, "answers a second: {}", self.speed)?;
        writeln!(f, "decisions: {}; answers that no log tells of: {}", outcomes.join(", "), self.unlogged)?;
        match self.calm {
            true => write!(f, "refused while there was room: {}", self.unfounded),
            false => write!(f, "things that happened: {}", self.events),
        }
    }
}
