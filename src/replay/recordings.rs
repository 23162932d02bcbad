//! The recordings of `tidegate record` among the logs.

use std::path::Path;

use hashbrown::HashSet;
use http::HeaderName;

use crate::client::ClientSource;
use crate::limit::Mode;
use crate::recording::{Mark, sampled_by};
use crate::rules::Rules;

/// The recordings that have been read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recordings {
    files: Vec<Recorded>,
    /// The header fields that recordings have, if a request has them.
    fields: HashSet<HeaderName>,
}

/// A file with a recording.
#[derive(Clone, Debug)]
struct Recorded {
    file: String,
    last: Mark,
    /// The sum of the dropped requests, if the file has several recordings.
    dropped: u64,
}

impl Recordings {
    /// Adds the marks of a file.
    pub(super) fn add(&mut self, path: &Path, marks: &[Mark]) {
        for mark in marks {
            self.fields.extend(mark.fields.iter().filter_map(|name| name.parse().ok()));
            let file = path.display().to_string();
            match self.files.iter_mut().find(|known| known.file == file) {
                None => self.files.push(Recorded { file, dropped: mark.dropped, last: mark.clone() }),
                Some(known) => {
                    known.dropped += mark.dropped.checked_sub(known.last.dropped).unwrap_or(mark.dropped);
                    known.last = mark.clone();
                }
            }
        }
    }

    pub(super) fn fields(&self) -> &HashSet<HeaderName> {
        &self.fields
    }

    /// Returns what a sample and dropped requests mean for the limits whose names are `shown`.
    pub(super) fn notes(&self, rules: &Rules, shown: impl Fn(&str) -> bool) -> Vec<String> {
        let mut notes = Vec::new();
        if self.files.len() > 1 {
            let count = self.files.len();
            notes.push(format!(
                "{count} recordings have different hashes: a client of several counts as several clients"
            ));
        }
        for Recorded { file, last, dropped } in &self.files {
            if last.sample < 1.0 {
                let percent = last.sample * 100.0;
                let mut limits = partly_sampled(rules, last.by.as_deref());
                limits.retain(|name| shown(name));
                let meaning = match &limits[..] {
                    [] => String::new(),
                    names => format!("; these limits count only a part of their requests: {}", names.join(", ")),
                };
                notes.push(format!("{file} is a sample of {percent} % of the clients{meaning}"));
            }
            if *dropped > 0 {
                notes.push(format!(
                    "{file} lacks {dropped} requests: its reader was too slow, or no values could replace theirs"
                ));
            }
        }
        notes
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
