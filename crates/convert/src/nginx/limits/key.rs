//! The keys of zones, as clients of limits.

use crate::draft::Match;
use crate::nginx::values::Unknown;
use crate::nginx::values::branch::{Branch, Piece};
use crate::nginx::values::pattern::conditions;
use crate::nginx::values::source::Source;
use crate::report::Verdict;

/// The client of a limit, for the requests that meet some conditions.
#[derive(Clone, Debug, Default)]
pub(super) struct Key {
    /// The parts of the client. Empty if all requests share a bucket.
    pub(super) client: Vec<String>,
    pub(super) when: Match,
    pub(super) on_missing_client: Option<&'static str>,
    /// The differences from the key of the source.
    pub(super) differences: Vec<(Verdict, String)>,
}

/// Returns the keys of a value. Requests with an empty value are not counted, so they have no key.
pub(super) fn keys(branches: &[Branch]) -> Result<Vec<Key>, Unknown> {
    let counted = branches.iter().filter(|branch| !branch.is_empty());
    let mut keys: Vec<Key> = counted.map(key).collect::<Result<_, _>>()?;
    let clients: Vec<_> = keys.iter().map(|key| key.client.clone()).collect();
    for (index, key) in keys.iter_mut().enumerate() {
        if clients[..index].contains(&key.client) {
            let reason = "requests with different conditions have separate buckets, though their keys are equal";
            key.differences.push((Verdict::Looser, reason.to_owned()));
        }
    }
    Ok(keys)
}

fn key(branch: &Branch) -> Result<Key, Unknown> {
    let mut key = Key { when: conditions(&branch.when, &branch.unless)?, ..Key::default() };
    let sources: Vec<&Source> = branch.value.iter().filter_map(source).collect();
    let mut dropped = Vec::new();
    for source in &sources {
        match source.client() {
            Some(client) if !key.client.contains(&client) => key.client.push(client),
            Some(_) | None if **source == Source::ServerName => {}
            Some(_) => {}
            None => dropped.push(name(source)),
        }
    }
    if key.client.is_empty() && !dropped.is_empty() {
        return Err(format!("{} cannot identify a client", dropped.join(" and ")));
    }
    if !dropped.is_empty() {
        let reason = format!("{} takes no part in the client: its values share a bucket", dropped.join(" and "));
        key.differences.push((Verdict::Stricter, reason));
    }
    if sources.contains(&&Source::Target) {
        let reason = "the client has the path without the query: all queries share a bucket";
        key.differences.push((Verdict::Stricter, reason.to_owned()));
    }
    key.set_missing(&sources);
    Ok(key)
}

fn source(piece: &Piece) -> Option<&Source> {
    match piece {
        Piece::Source(source) => Some(source),
        Piece::Text(_) => None,
    }
}

fn name(source: &Source) -> String {
    match source {
        Source::Method => "the method".to_owned(),
        Source::Scheme => "the scheme".to_owned(),
        Source::Other(name) => format!("`${name}`"),
        other => format!("{other:?}"),
    }
}

// === impl Key ===

impl Key {
    /// Sets what happens to requests without a part of the client. nginx does not count an empty key, but it counts a key
    /// of which only a part is empty.
    fn set_missing(&mut self, sources: &[&Source]) {
        let optional: Vec<_> = sources.iter().filter(|source| !source.is_always_present()).collect();
        if optional.is_empty() || self.client.is_empty() {
            return;
        }
        let reason = "a request with several different values of the client gets the status 400";
        self.differences.push((Verdict::Stricter, reason.to_owned()));
        if self.client.len() == 1 {
            self.on_missing_client = Some("skip");
            return;
        }
        self.on_missing_client = Some("ip");
        if !self.client.iter().any(|client| client == "ip") {
            let reason = "requests without a part of the client have a bucket for each address";
            self.differences.push((Verdict::Looser, reason.to_owned()));
        }
    }
}
