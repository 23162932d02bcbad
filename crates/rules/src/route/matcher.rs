//! The conditions of a route.

use std::sync::Arc;

use http::{HeaderName, Method};

use super::case::Case;
use super::clients::ClientNetworks;
use super::pattern::{HostPattern, PathPattern};
use super::value::{Met, ValueCondition, ValueSource};
use crate::request::facts::{Facts, Scheme};
use crate::request::identity::{IdentityCondition, IdentityKinds};
use tidegate_usage::Pointer;

/// The conditions of a route: all of them must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    /// The hosts; an empty list matches all hosts.
    pub hosts: Vec<HostPattern>,
    /// The paths in their normal form; an empty list matches all paths.
    pub paths: Vec<PathPattern>,
    /// How paths and values are compared, as the patterns themselves know it.
    pub case: Case,
    /// The methods; an empty list matches all methods.
    pub methods: Vec<Method>,
    /// The conditions on header fields, query parameters and cookies.
    pub values: Vec<ValueCondition>,
    /// The networks of the client's address; `None` matches all addresses.
    pub clients: Option<ClientNetworks>,
    /// The scheme; `None` matches both.
    pub scheme: Option<Scheme>,
    /// The names of listeners; an empty list matches all listeners.
    pub listeners: Vec<Arc<str>>,
    /// The conditions on verified credentials. They are not met until the credentials are verified.
    pub identity: Vec<IdentityCondition>,
    /// Excluded requests: no request matches that meets all conditions of one of these.
    pub not: Vec<Matcher>,
}

// === impl Matcher ===

impl Matcher {
    /// The maximal number of pairs of a host and a path.
    pub const MAX_PAIRS: usize = 1_000;

    /// Returns `true` if a request with these facts meets all conditions, in at least one reading.
    pub fn matches(&self, facts: &Facts<'_>) -> bool {
        self.unmet(facts).is_none()
    }

    /// Returns `true` if a request with this method meets the condition of methods.
    pub fn matches_method(&self, method: &Method) -> bool {
        self.methods.is_empty() || self.methods.contains(method)
    }

    /// Returns `true` if the scheme of the request matches.
    pub fn matches_scheme(&self, facts: &Facts<'_>) -> bool {
        self.scheme.is_none_or(|scheme| facts.scheme() == scheme)
    }

    /// Returns `true` if the listener of the request matches.
    pub fn matches_listener(&self, facts: &Facts<'_>) -> bool {
        self.listeners.is_empty()
            || facts.listener().is_some_and(|name| self.listeners.iter().any(|own| **own == *name))
    }

    /// Returns `true` if the host of the request matches.
    pub fn matches_host(&self, facts: &Facts<'_>) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|host| host.matches(&facts.host))
    }

    /// Returns `true` if the path of the request matches.
    pub fn matches_path(&self, facts: &Facts<'_>) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|path| path.matches(facts.path.matched()))
    }

    /// Returns whether a request with these facts meets all conditions.
    pub fn met(&self, facts: &Facts<'_>) -> Met {
        let is_candidate = self.matches_path(facts) && self.matches_host(facts);
        if is_candidate { self.met_other(facts) } else { Met::No }
    }

    /// Returns `true` if the table finds requests by a path that the matcher still has to compare.
    pub(super) fn has_patterns(&self) -> bool {
        self.paths.iter().any(|path| !path.is_plain())
    }

    /// As [`met`](Self::met), for a request whose host and path are known to match.
    pub fn met_other(&self, facts: &Facts<'_>) -> Met {
        match self.met_without_identity(facts) {
            met if self.identity.is_empty() || met == Met::No => met,
            met if self.unmet_identity(facts).is_none() => met,
            _ => Met::No,
        }
    }

    /// Returns the first condition that the verified credentials of the request do not meet.
    pub(crate) fn unmet_identity(&self, facts: &Facts<'_>) -> Option<&IdentityCondition> {
        let is_met =
            |condition: &IdentityCondition| facts.identity.as_ref().is_some_and(|identity| condition.is_met(identity));
        self.identity.iter().find(|condition| !is_met(condition))
    }

    /// Returns the kinds of credentials that the conditions read.
    pub fn identity_kinds(&self) -> IdentityKinds {
        let kinds = self.identity.iter().map(|condition| condition.value.kinds());
        kinds.fold(IdentityKinds::default(), IdentityKinds::union)
    }

    /// As [`met_other`](Self::met_other), for any credentials.
    pub(super) fn met_without_identity(&self, facts: &Facts<'_>) -> Met {
        if !self.matches_method(facts.method) || !self.matches_scheme(facts) || !self.matches_listener(facts) {
            return Met::No;
        }
        let values = self.values.iter().map(|value| value.met(facts));
        let clients = self.clients.iter().map(|clients| clients.met(facts));
        let not = self.not.iter().map(|not| not.met(facts).inverted());
        let mut met = Met::Yes;
        for condition in values.chain(clients).chain(not) {
            met = met.min(condition);
            if met == Met::No {
                break;
            }
        }
        met
    }

    /// Returns `true` if servers may differ in whether a request that matches meets all conditions.
    pub fn is_ambiguous(&self, facts: &Facts<'_>) -> bool {
        let can_be = !(self.values.is_empty() && self.clients.is_none() && self.not.is_empty());
        can_be && self.met(facts) == Met::Maybe
    }

    /// Iterates over all pairs of a host and a path.
    pub fn pairs(&self) -> impl Iterator<Item = (Option<&HostPattern>, Option<&PathPattern>)> {
        let hosts = self.hosts.iter().map(Some).chain(self.hosts.is_empty().then_some(None));
        hosts.flat_map(|host| {
            let paths = self.paths.iter().map(Some).chain(self.paths.is_empty().then_some(None));
            paths.map(move |path| (host, path))
        })
    }

    /// Iterates over the methods of all conditions.
    pub(super) fn all_methods(&self) -> impl Iterator<Item = &Method> {
        self.methods.iter().chain(self.not.iter().flat_map(|not| &not.methods))
    }

    /// Calls `found` for each header field that the conditions read.
    pub fn fields(&self, found: &mut impl FnMut(&HeaderName)) {
        self.values.iter().filter_map(ValueCondition::field).for_each(&mut *found);
        for not in &self.not {
            not.values.iter().filter_map(ValueCondition::field).for_each(&mut *found);
        }
    }

    /// Returns the places in JSON bodies that the conditions read.
    pub fn body_pointers(&self) -> impl Iterator<Item = &Pointer> {
        self.values.iter().filter_map(|value| match &value.source {
            ValueSource::Json(pointer) => Some(pointer),
            _ => None,
        })
    }

    /// Iterates over the header fields that must not be sent with two values.
    pub(super) fn single_fields(&self) -> impl Iterator<Item = &HeaderName> {
        let values = self.values.iter().chain(self.not.iter().flat_map(|not| &not.values));
        values.filter_map(ValueCondition::single_field)
    }
}
