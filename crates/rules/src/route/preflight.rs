//! Finds the route of a preflight (Fetch, section "CORS-preflight request").
//!
//! A preflight announces the method and the names of the header fields of a request, but neither their values nor its
//! cookies. So several routes can match that request. The gateway allows it only if all of them allow its origin.

use http::header::{self, ACCESS_CONTROL_REQUEST_HEADERS, HeaderName};

use super::cors::requested_method;
use super::value::{Met, ValueCondition, ValueSource, ValueTest};
use super::{Matcher, Route, Routes};
use crate::request::facts::Facts;

/// Fields that browsers set themselves, or that scripts may set without announcing them. Others are `sec-` and `proxy-`
/// fields.
const UNANNOUNCED: [HeaderName; 10] = [
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::CONTENT_LANGUAGE,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::HOST,
    header::ORIGIN,
    header::RANGE,
    header::REFERER,
    header::USER_AGENT,
];

impl Routes {
    /// Returns the route that answers this preflight, with its position. That is the first route that the announced
    /// request can match, or a route that does not allow the origin. Returns `None` if one of these routes has no `cors`:
    /// then the request is not answered as a preflight.
    pub fn find_preflight(&self, facts: &Facts<'_>) -> Option<(usize, &Route)> {
        if !self.has_cors {
            return None;
        }
        let method = requested_method(facts.method, facts.headers)?;
        let announced = Facts { method: &method, ..facts.clone() };
        if let Some(position) =
            self.quotas.find_by(&announced, |matcher| matcher.met_by_announced(&announced) != Met::No)
        {
            let route = self.list.get(position)?;
            return route.cors.as_ref().map(|_| (position, route));
        }
        let (mut answer, mut last) = (None, None);
        loop {
            let met = |position: usize| {
                self.list.get(position).map_or(Met::No, |route| route.matcher.met_by_announced(&announced))
            };
            let can_match = |position: usize| last.is_none_or(|last| position > last) && met(position) != Met::No;
            let Some(position) = self.table.find(&announced.host, announced.path.matched(), can_match) else {
                return answer;
            };
            let route = self.list.get(position)?;
            let cors = route.cors.as_ref()?;
            let first = *answer.get_or_insert((position, route));
            match (cors.allows_origin(facts.headers), met(position)) {
                (false, _) => return Some((position, route)),
                (true, Met::Yes) => return Some(first),
                (true, _) => last = Some(position),
            }
        }
    }
}

impl Matcher {
    /// Returns whether the request that a preflight announces meets the conditions. The host is known to match, and the
    /// path unless it has patterns.
    fn met_by_announced(&self, facts: &Facts<'_>) -> Met {
        if !self.matches_method(facts.method) || (self.has_patterns() && !self.matches_path(facts)) {
            return Met::No;
        }
        let values = self.values.iter().map(|value| value.met_by_announced(facts));
        let clients = self.clients.iter().map(|clients| clients.met(facts));
        let not = self.not.iter().map(|not| match not.matches_path(facts) && not.matches_host(facts) {
            true => not.met_by_announced(facts).inverted(),
            false => Met::Yes,
        });
        let identity = (!self.identity.is_empty()).then_some(Met::Maybe); // a preflight has no credentials
        values.chain(clients).chain(not).chain(identity).min().unwrap_or(Met::Yes)
    }
}

impl ValueCondition {
    fn met_by_announced(&self, facts: &Facts<'_>) -> Met {
        let name = match &self.source {
            ValueSource::Header(name) => name,
            ValueSource::Cookie(_) | ValueSource::Json(_) => return Met::Maybe,
            ValueSource::Query(_) => return self.met(facts),
        };
        if is_announced(name, facts) {
            return match self.test {
                ValueTest::Present => Met::Yes,
                ValueTest::Absent => Met::No,
                ValueTest::OneOf(_) => Met::Maybe,
            };
        }
        let is_unannounced =
            UNANNOUNCED.contains(name) || name.as_str().starts_with("sec-") || name.as_str().starts_with("proxy-");
        match self.test {
            _ if is_unannounced => Met::Maybe,
            ValueTest::Absent => Met::Yes,
            ValueTest::Present | ValueTest::OneOf(_) => Met::No,
        }
    }
}

/// Returns `true` if the preflight announces this field.
fn is_announced(name: &HeaderName, facts: &Facts<'_>) -> bool {
    let values = facts.headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let mut names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    names.any(|other| other.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes()))
}
