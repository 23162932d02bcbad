//! Replays logs with one or two rule files.

use hashbrown::HashMap;

use super::engine::{Engine, Verdict};
use super::read::{LogFiles, ReadError, ReadSummary};
use super::report::{Difference, Report, RouteDifference, UnparsedLine};
use crate::log::batch::ParsedRequest;
use crate::log::recorded::RecordedValues;
use crate::read::recordings::Recordings;
use tidegate_rules::rules::Rules;

/// The decisions of two rule files about the same requests.
#[derive(Debug)]
struct Comparison<'r> {
    rules: &'r Rules,
    other: Engine<'r>,
    difference: Difference,
    /// The first decision of each request that the other rule file has not decided yet, by the request's number.
    undecided: HashMap<u64, Verdict>,
}

/// Replays logs.
///
/// # Errors
/// A log cannot be read.
pub fn replay(
    rules: &Rules,
    against: Option<(String, &Rules)>,
    files: &LogFiles,
) -> Result<(Report, ReadSummary), ReadError> {
    let mut engine = Engine::new(rules);
    let mut comparison = against.map(|(file, rules)| Comparison::new(file, rules));
    let mut fields = engine.fields();
    if let Some(comparison) = &comparison {
        fields.extend(comparison.other.fields());
    }
    let mut number = 0;
    let summary = files.read(fields, |request, upcoming, _, recorded| {
        number += 1;
        engine.load(upcoming);
        engine.replay(request, number, recorded);
        match &mut comparison {
            Some(comparison) => comparison.replay(&mut engine, request, number, recorded),
            None => _ = engine.take_verdicts(),
        }
    })?;
    engine.end();
    let mut report = Report { unparsed: summary.unparsed, formats: summary.formats.clone(), ..engine.report() };
    report.notes.extend(summary.recordings.notes());
    report.notes.extend(notes_for(rules, &engine, &summary.recordings));
    let first_unparsed = summary.first_unparsed.clone().map(|(file, line, text)| UnparsedLine { file, line, text });
    let against = comparison.map(|comparison| Box::new(comparison.end(&mut engine, &summary.recordings)));
    Ok((Report { first_unparsed, against, ..report }, summary))
}

/// Returns what recordings mean for these rules.
fn notes_for(rules: &Rules, engine: &Engine<'_>, recordings: &Recordings) -> Vec<String> {
    let mut notes = recordings.sample_notes(rules, |_| true);
    notes.extend(recordings.lacking_notes(rules, engine.missing_fields()));
    notes
}

impl<'r> Comparison<'r> {
    fn new(file: String, rules: &'r Rules) -> Self {
        let difference = Difference {
            file,
            newly_rejected: 0,
            newly_allowed: 0,
            routes: Default::default(),
            report: Default::default(),
        };
        Self { rules, other: Engine::new(rules), difference, undecided: HashMap::new() }
    }

    fn replay(&mut self, engine: &mut Engine<'r>, request: &ParsedRequest, number: u64, recorded: &RecordedValues) {
        self.other.replay(request, number, recorded);
        self.compare(engine);
    }

    /// Decides the requests that still wait, and returns the differences.
    fn end(mut self, engine: &mut Engine<'r>, recordings: &Recordings) -> Difference {
        self.other.end();
        self.compare(engine);
        let mut report = self.other.report();
        report.notes.extend(notes_for(self.rules, &self.other, recordings));
        self.difference.report = Box::new(report);
        self.difference
    }

    /// Compares the decisions since the last call.
    fn compare(&mut self, engine: &mut Engine<'r>) {
        let mut decisions: Vec<_> = engine.take_verdicts().map(|verdict| (verdict, false)).collect();
        decisions.extend(self.other.take_verdicts().map(|verdict| (verdict, true)));
        for (verdict, is_other) in decisions {
            let Some(before) = self.undecided.remove(&verdict.number) else {
                self.undecided.insert(verdict.number, verdict);
                continue;
            };
            let (first, other) = if is_other { (before, verdict) } else { (verdict, before) };
            let route = match (first.route, other.route) {
                (Some(route), _) => engine.route_name(route),
                (None, Some(route)) => self.other.route_name(route),
                (None, None) => continue,
            };
            let count = |count: &mut u64, is_so: bool| *count += u64::from(is_so);
            let rejects = first.admitted && !other.admitted;
            let allows = !first.admitted && other.admitted;
            count(&mut self.difference.newly_rejected, rejects);
            count(&mut self.difference.newly_allowed, allows);
            if !self.difference.routes.contains_key(route) {
                self.difference.routes.insert(route.to_owned(), RouteDifference::default());
            }
            let Some(of_route) = self.difference.routes.get_mut(route) else { continue };
            of_route.requests += 1;
            count(&mut of_route.newly_rejected, rejects);
            count(&mut of_route.newly_allowed, allows);
        }
    }
}
