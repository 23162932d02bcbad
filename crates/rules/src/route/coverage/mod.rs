//! Compares matchers: which conditions cover others, and which conditions contradict each other.

use super::case::Case;
use super::pattern::{HostPattern, PathPattern, Segment};
use super::{Matcher, ValueCondition};

/// An exact host and the literal first segment of a path.
pub type LookupKey<'m> = (Option<&'m str>, Option<&'m str>);

impl Matcher {
    /// Returns `true` if this matcher certainly matches all requests that `other` matches. Then a later route with
    /// `other` is never reached.
    pub fn covers(&self, other: &Matcher) -> bool {
        other.pairs().all(|(host, path)| self.covers_pair(host, path, other))
    }

    /// Returns `true` if this matcher certainly matches all requests that `other` matches on this host and this path.
    pub fn covers_pair(&self, host: Option<&HostPattern>, path: Option<&PathPattern>, other: &Matcher) -> bool {
        let covers_path = |wide: &PathPattern| path.is_some_and(|path| wide.covers(path));
        let covers_host = |wide: &HostPattern| host.is_some_and(|host| wide.covers(host));
        let is_allowed =
            |not: &Matcher| other.not.iter().any(|other| other.covers(not)) || not.excludes_none_of(host, path, other);
        (self.hosts.is_empty() || self.hosts.iter().any(covers_host))
            && (self.paths.is_empty() || self.paths.iter().any(covers_path))
            && (self.methods.is_empty()
                || (!other.methods.is_empty() && other.methods.iter().all(|method| self.methods.contains(method))))
            && self.scheme.is_none_or(|scheme| other.scheme == Some(scheme))
            && (self.listeners.is_empty()
                || (!other.listeners.is_empty() && other.listeners.iter().all(|name| self.listeners.contains(name))))
            && self.values.iter().all(|wide| other.values.iter().any(|narrow| wide.covers(narrow)))
            && self.clients.iter().all(|wide| other.clients.as_ref().is_some_and(|narrow| wide.covers(narrow)))
            && self.identity.iter().all(|wide| other.identity.contains(wide))
            && self.not.iter().all(is_allowed)
    }

    /// Returns `true` if this matcher certainly matches no request that `other` matches on this host and this path.
    fn excludes_none_of(&self, host: Option<&HostPattern>, path: Option<&PathPattern>, other: &Matcher) -> bool {
        let hosts = || self.hosts.iter().all(|own| host.is_some_and(|host| !own.overlaps(host)));
        let paths = || self.paths.iter().all(|own| path.is_some_and(|path| !own.overlaps(path)));
        let methods = || !self.methods.iter().any(|method| other.methods.contains(method));
        let schemes = || self.scheme.zip(other.scheme).is_some_and(|(own, other)| own != other);
        let listeners = || !self.listeners.iter().any(|name| other.listeners.contains(name));
        let values = || contradict(&self.values, &other.values);
        let clients = || self.clients.as_ref().zip(other.clients.as_ref()).is_some_and(|(a, b)| a.contradicts(b));
        (!self.hosts.is_empty() && hosts())
            || (!self.paths.is_empty() && paths())
            || (!self.methods.is_empty() && !other.methods.is_empty() && methods())
            || schemes()
            || (!self.listeners.is_empty() && !other.listeners.is_empty() && listeners())
            || values()
            || clients()
    }

    /// Returns `true` if two conditions contradict each other.
    pub fn has_contradiction(&self) -> bool {
        contradict(&self.values, &self.values)
    }

    /// Returns `true` if `not` certainly excludes all requests.
    pub fn excludes_all(&self) -> bool {
        let positive = Self { not: Vec::new(), ..self.clone() };
        self.pairs().all(|(host, path)| self.not.iter().any(|not| not.covers_pair(host, path, &positive)))
    }
}

fn contradict(some: &[ValueCondition], others: &[ValueCondition]) -> bool {
    some.iter().any(|own| others.iter().any(|other| own.contradicts(other)))
}

/// Returns the exact host and the literal first segment, if there are any and case matters. A pair with one of them
/// covers only pairs with the same value.
pub fn lookup_key<'m>(host: Option<&'m HostPattern>, path: Option<&'m PathPattern>) -> LookupKey<'m> {
    let host = match host {
        Some(HostPattern::Exact(host)) => Some(host.as_str()),
        Some(HostPattern::Suffix(_)) | None => None,
    };
    let sensitive = path.filter(|path| path.case() == Case::Sensitive);
    let segment = match sensitive.and_then(|path| path.segments.first()) {
        Some(Segment::Literal(segment)) => Some(segment.as_str()),
        Some(Segment::Any(_) | Segment::Glob(_)) | None => None,
    };
    (host, segment)
}

#[cfg(test)]
mod tests;
