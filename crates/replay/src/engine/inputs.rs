//! The inputs of the rules that a log lacks.

use hashbrown::HashSet;
use http::HeaderName;
use http::header::{HOST, HeaderMap};

use tidegate_limit::Mode;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::rules::Rules;

/// The fields that the rules read, and whether the log has had them.
#[derive(Debug)]
pub(crate) struct Inputs {
    fields: Vec<(HeaderName, bool)>,
}

/// The input of a limit that logs may lack. Without it, the limit is not replayed, or only for some requests.
#[derive(Debug)]
pub(crate) enum Needs {
    /// All logs have the input.
    Nothing,
    /// The fields that identify clients.
    Fields(Vec<HeaderName>),
    /// Credentials, or the field of a trusted proxy that sets the rate. No log has them.
    Credentials,
    /// The rate in Redis.
    AdoptedRate,
}

impl Inputs {
    pub(crate) fn new(rules: &Rules) -> Self {
        let mut fields: Vec<_> = rules.used_fields().into_iter().map(|name| (name, false)).collect();
        fields.sort_by(|(left, _), (right, _)| left.as_str().cmp(right.as_str()));
        Self { fields }
    }

    /// Returns the names of all fields that the rules read.
    pub(crate) fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.fields.iter().map(|(name, _)| name)
    }

    /// Records the fields of a line, and those that recordings have.
    pub(crate) fn record(&mut self, headers: &HeaderMap, recorded: &HashSet<HeaderName>) {
        for (name, is_known) in self.fields.iter_mut().filter(|(_, is_known)| !is_known) {
            *is_known = headers.contains_key(&*name) || recorded.contains(&*name);
        }
    }

    /// Returns `true` if the log has had none of the fields so far.
    pub(crate) fn lacks(&self, fields: &[HeaderName]) -> bool {
        let is_known = |name| self.fields.iter().any(|(field, is_known)| *is_known && field == name);
        !fields.iter().any(is_known)
    }

    /// Returns the fields that the log did not have.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &HeaderName> {
        self.fields.iter().filter(|(name, is_known)| !is_known && name != HOST).map(|(name, _)| name)
    }
}

impl Needs {
    pub(crate) fn of(limit: &Limit) -> Self {
        if limit.limiter.quota.is_adopted() {
            return Self::AdoptedRate;
        }
        if !limit.identity_kinds().is_empty() || limit.rates.is_some() {
            return Self::Credentials;
        }
        let mut fields = Vec::new();
        if limit.mode() == Mode::PerClient {
            limit.client.fields(&mut |name| fields.push(name.clone()));
        }
        if fields.is_empty() { Self::Nothing } else { Self::Fields(fields) }
    }
}
