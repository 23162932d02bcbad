//! Finds the route whose quota a request asks for.

use super::table::Table;
use super::{Matcher, Route};
use crate::request::facts::Facts;

/// The routes with a quota.
#[derive(Clone, Debug, Default)]
pub(super) struct Quotas {
    /// The positions of the matchers, by host and path.
    table: Table,
    /// The matcher of each quota, with the position of its route.
    matchers: Vec<(Matcher, usize)>,
}

impl Quotas {
    pub(super) fn new(routes: &[Route]) -> Self {
        let matchers =
            routes.iter().enumerate().filter_map(|(position, route)| Some((route.quota_matcher()?, position)));
        let matchers: Vec<_> = matchers.collect();
        Self { table: Table::new(matchers.iter().map(|(matcher, _)| matcher)), matchers }
    }

    /// Returns the position of the route.
    pub(super) fn find(&self, facts: &Facts<'_>) -> Option<usize> {
        self.find_by(facts, |matcher| matcher.unmet_other(facts).is_none())
    }

    /// Returns the position of the first route with the host and the path of the request whose quota matches.
    pub(super) fn find_by(&self, facts: &Facts<'_>, matches: impl Fn(&Matcher) -> bool) -> Option<usize> {
        if self.matchers.is_empty() {
            return None;
        }
        let matches = |index: usize| self.matchers.get(index).is_some_and(|(matcher, _)| matches(matcher));
        let index = self.table.find(&facts.host, facts.path.matched(), matches)?;
        self.matchers.get(index).map(|(_, position)| *position)
    }
}

impl Route {
    /// Returns the conditions of requests for the quota: the path of the quota, with the other conditions of the
    /// route except the methods.
    #[doc(hidden)]
    pub fn quota_matcher(&self) -> Option<Matcher> {
        let paths = vec![self.quota.clone()?];
        Some(Matcher { paths, methods: Vec::new(), ..self.matcher.clone() })
    }
}
