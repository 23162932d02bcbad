//! Which rules touch a request: the first route that matches, top to bottom.

mod matcher;
mod pattern;
mod table;

use std::sync::Arc;

use http::{HeaderName, Method, header};

use http::header::CONTENT_LENGTH;

pub use self::matcher::Matcher;
pub use self::pattern::{HostPattern, PathPattern, PatternError};
use self::table::Table;
use crate::facts::{BadRequest, Facts, is_common};
use crate::policy::RateLimitHeaders;
use crate::rule::Limit;
use crate::upgrade::Upgrades;

/// The routes of a rule file, in their order.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    list: Vec<Route>,
    /// Where each of them is found by host and path.
    table: Table,
    /// Which of them ask for more than that. So most lookups need not fetch the route itself.
    conditional: Vec<bool>,
    /// The methods that they name beyond the registered ones.
    methods: Vec<Method>,
    /// The fields that they ask for and that have one value.
    fields: Vec<HeaderName>,
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
    /// The longest body that a request may have, in bytes; where the layer stands in somebody's own service, the longest
    /// `Content-Length`.
    pub max_body: u64,
    /// What else than HTTP its clients may speak.
    pub upgrades: Upgrades,
    /// In which fields its clients are told what is left.
    pub rate_limit_headers: RateLimitHeaders,
    /// The upstream's name; none where the layer stands in somebody's own service.
    pub upstream: Option<Arc<str>>,
}

// === impl Route ===

impl Route {
    /// The longest body unless the rule file says otherwise: 1 GiB: more than nearly all requests
    /// need, and still a bound.
    pub const DEFAULT_MAX_BODY: u64 = 1 << 30;

    /// The most limits, candidates included; the store counts them in a byte.
    pub const MAX_LIMITS: usize = 100;

    /// Is the body as long as it says too long? One that tells no length is found out when it is read.
    pub(crate) fn is_too_long(&self, facts: &Facts<'_>) -> bool {
        if facts.method.is_safe() {
            return false; // hardly any has a body, and none is worth a look
        }
        let length = facts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        length.is_some_and(|length: u64| length > self.max_body)
    }
}

// === impl Routes ===

impl Routes {
    /// Routes in the order in which they are tried.
    pub fn new(list: Vec<Route>) -> Self {
        let table = Table::new(list.iter().map(|route| &route.matcher));
        let conditional = list.iter().map(|route| route.matcher.has_method_or_header()).collect();
        let asked = || list.iter().map(|route| &route.matcher);
        let methods = unique(asked().flat_map(|asked| &asked.methods).filter(|method| !is_common(method)));
        let fields =
            unique(asked().flat_map(|asked| &asked.headers).map(|(name, _)| name).filter(|name| !is_list(name)));
        Self { list, table, conditional, methods, fields }
    }

    /// Whether a request could pass for one of another route.
    ///
    /// # Errors
    /// Its method is that of a route in another case, or a field that a route asks for has two values.
    pub fn check(&self, facts: &Facts<'_>) -> Result<(), BadRequest> {
        let sent = facts.method.as_str();
        let differs = |method: &Method| method.as_str() != sent && method.as_str().eq_ignore_ascii_case(sent);
        if self.methods.iter().any(differs) {
            return Err(BadRequest::MethodCase);
        }
        let has_two = |name: &HeaderName| {
            let mut values = facts.headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii());
            values.next().is_some_and(|first| values.any(|other| other != first))
        };
        if self.fields.iter().any(has_two) { Err(BadRequest::TwoValues) } else { Ok(()) }
    }

    /// The first route that matches, with its position. However many there are, few of them are looked at: those that
    /// the table has for the request's host and path.
    pub fn find(&self, facts: &Facts<'_>) -> Option<(usize, &Route)> {
        let meets_other_conditions = |position: usize| {
            self.conditional.get(position) == Some(&false)
                || self.list.get(position).is_some_and(|route| route.matcher.unmet_method_or_header(facts).is_none())
        };
        let position = self.table.find(&facts.host, facts.path.matched(), meets_other_conditions)?;
        Some((position, self.list.get(position)?))
    }

    /// All routes, in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, Route> {
        self.list.iter()
    }
}

/// Fields that say the same on many lines as on one (RFC 9110 section 5.3).
fn is_list(name: &HeaderName) -> bool {
    const LISTS: [HeaderName; 5] = [
        header::CACHE_CONTROL,
        header::COOKIE,
        header::FORWARDED,
        header::VIA,
        HeaderName::from_static("x-forwarded-for"),
    ];
    LISTS.contains(name) || name.as_str().starts_with("accept")
}

fn unique<'t, T: Clone + PartialEq + 't>(all: impl Iterator<Item = &'t T>) -> Vec<T> {
    let mut unique = Vec::new();
    for one in all {
        if !unique.contains(one) {
            unique.push(one.clone());
        }
    }
    unique
}
