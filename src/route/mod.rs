//! Which rules touch a request: the first route that matches, top to bottom.

mod matcher;
mod pattern;
mod table;

use std::sync::Arc;

pub use self::matcher::Matcher;
pub use self::pattern::{HostPattern, PathPattern, PatternError};
use self::table::Table;
use crate::facts::Facts;
use crate::policy::Told;
use crate::rule::Limit;

/// The routes of a rule file, in their order.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    list: Vec<Route>,
    /// Where each of them is found by host and path.
    table: Table,
    /// Which of them ask for more than that. So most lookups need not fetch the route itself.
    conditional: Vec<bool>,
}

/// One entry of `routes:`.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name in the rule file, metrics and logs.
    pub name: Arc<str>,
    /// The requests it is for.
    pub matcher: Matcher,
    /// What it takes from its requests; may be empty.
    pub limits: Vec<Limit>,
    /// In which fields its clients are told what is left.
    pub told: Told,
    /// The upstream's name; none where the layer stands in somebody's own service.
    pub upstream: Option<Arc<str>>,
}

// === impl Routes ===

impl Routes {
    /// Routes in the order in which they are tried.
    pub fn new(list: Vec<Route>) -> Self {
        let table = Table::new(list.iter().map(|route| &route.matcher));
        let conditional = list.iter().map(|route| route.matcher.has_conditions_beside_place()).collect();
        Self { list, table, conditional }
    }

    /// The first route that matches, with its position. However many there are, few of them are looked at: those that
    /// the table has for the request's host and path.
    pub fn find(&self, facts: &Facts<'_>) -> Option<(usize, &Route)> {
        let meets_the_rest = |position: usize| {
            self.conditional.get(position) == Some(&false)
                || self.list.get(position).is_some_and(|route| route.matcher.unmet_beside_place(facts).is_none())
        };
        let position = self.table.find(&facts.host, &facts.path, meets_the_rest)?;
        Some((position, self.list.get(position)?))
    }

    /// All routes, in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, Route> {
        self.list.iter()
    }
}
