//! The recordings of `tidegate record` among the logs.

use std::collections::BTreeSet;
use std::path::Path;

use http::HeaderName;

use crate::log::recorded::RecordedValues;
use crate::report::counted::requests;
use tidegate_layer::recording::{Held, Inputs, Mark, sampled_by};
use tidegate_limit::Mode;
use tidegate_rules::client::ClientSource;
use tidegate_rules::rules::Rules;

/// The recordings that have been read.
#[derive(Clone, Debug, Default)]
pub struct Recordings {
    files: Vec<Recorded>,
    /// The number of recordings: a file can have several.
    count: usize,
    /// The values that recordings have, if a request has them.
    values: RecordedValues,
}

/// A file with a recording.
#[derive(Clone, Debug)]
struct Recorded {
    file: String,
    last: Mark,
    /// The values of its requests: other ones after a reload.
    held: Vec<Held>,
    /// The sums of all recordings of the file.
    dropped: u64,
    unfinished: u64,
    /// Whether a recording before the last one has no last line.
    is_cut: bool,
}

impl Recordings {
    /// Adds the marks of a file.
    pub(crate) fn add(&mut self, path: &Path, marks: &[Mark]) {
        for mark in marks {
            if let Some(held) = &mark.holds {
                held.add_fields(&mut |name| _ = self.values.fields.insert(name));
                self.values.identity.extend(held.identity());
            }
            let file = path.display().to_string();
            let position = self.files.iter().position(|known| known.file == file).unwrap_or_else(|| {
                let last = Mark { end: true, ..Mark::default() };
                self.files.push(Recorded { file, last, held: Vec::new(), dropped: 0, unfinished: 0, is_cut: false });
                self.files.len() - 1
            });
            self.count += usize::from(self.files[position].add(mark));
        }
    }

    pub(crate) fn values(&self) -> &RecordedValues {
        &self.values
    }

    /// Returns what samples mean for the limits whose names are `shown`.
    pub(crate) fn sample_notes(&self, rules: &Rules, shown: impl Fn(&str) -> bool) -> Vec<String> {
        let samples = self.files.iter().filter(|file| file.last.sample < 1.0);
        let note = |Recorded { file, last, .. }: &Recorded| {
            let percent = last.sample * 100.0;
            let mut limits = partly_sampled(rules, last.by.as_deref());
            limits.retain(|name| shown(name));
            let meaning = match &limits[..] {
                [] => String::new(),
                names => format!("; these limits count only a part of their requests: {}", names.join(", ")),
            };
            format!("{file} is a sample of {percent} % of the clients{meaning}")
        };
        samples.map(note).collect()
    }

    /// Returns what these rules read and the recordings lack, except the fields that are noted already.
    pub(crate) fn lacking_notes<'n>(&self, rules: &Rules, noted: impl Iterator<Item = &'n HeaderName>) -> Vec<String> {
        if self.files.is_empty() {
            return Vec::new();
        }
        let (inputs, noted) = (Inputs::new(rules, &|_| false), noted.map(|name| format!("`header:{name}`")));
        let noted: Vec<_> = noted.collect();
        let mut notes = Vec::new();
        for Recorded { file, held, .. } in &self.files {
            let lacking: Vec<_> = held.iter().map(|held| inputs.lacking(held)).collect();
            let certain: BTreeSet<_> = lacking.iter().flat_map(|lacking| &lacking.certain).collect();
            let possible: BTreeSet<_> = lacking.iter().flat_map(|lacking| &lacking.possible).collect();
            let others = certain.iter().map(|input| ("lacks", *input));
            let others = others.chain(possible.difference(&certain).map(|input| ("may lack", *input)));
            let others = others.filter(|(_, lacking)| !noted.contains(lacking));
            notes.extend(others.map(|(verb, lacking)| format!("{file} {verb} {lacking}, which the rules read")));
        }
        notes
    }

    /// Returns what dropped requests and several recordings mean for all rules.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.count > 1 {
            let count = self.count;
            notes.push(format!(
                "{count} recordings have different hashes: a client of several counts as several clients"
            ));
        }
        for Recorded { file, last, dropped, unfinished, is_cut, .. } in &self.files {
            if *dropped > 0 {
                notes.push(format!(
                    "{file} lacks {}: its reader was too slow, or no values could replace theirs",
                    requests(*dropped)
                ));
            }
            if *unfinished > 0 {
                notes.push(format!("{file} lacks {} in flight at its end", requests(*unfinished)));
            }
            if *is_cut || !last.end {
                notes.push(format!("{file} has no end, so the number of the last requests that it lacks is unknown"));
            }
        }
        notes
    }
}

impl Recorded {
    /// Adds a mark. Returns `true` if a recording starts with it.
    fn add(&mut self, mark: &Mark) -> bool {
        let is_new = self.last.end || self.last.id != mark.id || mark.dropped < self.last.dropped;
        self.is_cut |= is_new && !self.last.end;
        let dropped = mark.dropped - if is_new { 0 } else { self.last.dropped };
        self.dropped = self.dropped.saturating_add(dropped);
        self.unfinished = self.unfinished.saturating_add(mark.unfinished);
        self.held.extend(mark.holds.clone().filter(|held| !self.held.contains(held)));
        let by = self.last.by.take().filter(|_| !is_new).or_else(|| mark.by.clone());
        self.last = Mark { by, ..mark.clone() };
        is_new
    }
}

/// Returns the names of the limits for which a sample has only a part of the requests of a bucket: those that count all
/// clients together, or other clients than the sample.
fn partly_sampled(rules: &Rules, by: Option<&str>) -> Vec<String> {
    let mut names = Vec::new();
    for route in rules.routes.iter() {
        let route_client = sampled_by(Some(route));
        let is_whole = |client: &ClientSource| by.map_or(client == route_client, |by| client.to_string() == by);
        for limit in &route.limits {
            let name = format!("{}/{}", limit.owner(&route.name), limit.name);
            let is_partly_sampled = limit.mode() == Mode::Overall || !is_whole(&limit.client);
            if is_partly_sampled && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_keeps_the_source_of_the_sample() {
        let first = Mark { id: "a".into(), sample: 0.5, by: Some("header:x-org".into()), ..Mark::default() };
        let last = Mark { by: None, end: true, ..first.clone() };
        let by = |marks: &[Mark]| {
            let mut recordings = Recordings::default();
            recordings.add(Path::new("a"), marks);
            recordings.files[0].last.by.clone()
        };
        assert_eq!(by(&[first.clone(), last.clone()]), first.by);
        let other = Mark { id: "b".into(), ..last.clone() };
        assert_eq!(by(&[first, last, other]), None);
    }
}
