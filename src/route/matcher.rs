//! The conditions of a route, and which of them take in others.

use http::{HeaderName, HeaderValue, Method};

use super::pattern::{HostPattern, PathPattern, Segment};
use crate::facts::Facts;

/// The conditions of a route: all of them must hold.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// The host asked for; any if none is given.
    pub host: Option<HostPattern>,
    /// The path in its normal form; any if none is given.
    pub path: Option<PathPattern>,
    /// The methods; any if empty.
    pub methods: Vec<Method>,
    /// Fields that must be there with just this value.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

// === impl Matcher ===

impl Matcher {
    /// Does a request with these facts meet every condition?
    pub fn matches(&self, facts: &Facts<'_>) -> bool {
        self.unmet(facts).is_none()
    }

    /// Does this one match whatever `other` matches? Then a route with `other` after this one is never reached.
    pub fn covers(&self, other: &Matcher) -> bool {
        covers(&self.host, &other.host, HostPattern::covers)
            && covers(&self.path, &other.path, PathPattern::covers)
            && (self.methods.is_empty()
                || (!other.methods.is_empty() && other.methods.iter().all(|method| self.methods.contains(method))))
            && self.headers.iter().all(|header| other.headers.contains(header))
    }

    /// The one host and the literal first segment that it asks for. Where it has one, it covers only matchers that
    /// have the same.
    pub(crate) fn lookup_key(&self) -> (Option<&str>, Option<&str>) {
        let host = match &self.host {
            Some(HostPattern::Exact(host)) => Some(host.as_str()),
            Some(HostPattern::Suffix(_)) | None => None,
        };
        let segment = match self.path.as_ref().and_then(|path| path.segments.first()) {
            Some(Segment::Literal(segment)) => Some(segment.as_str()),
            Some(Segment::Any(_)) | None => None,
        };
        (host, segment)
    }
}

fn covers<P>(wide: &Option<P>, narrow: &Option<P>, covers: impl Fn(&P, &P) -> bool) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => covers(wide, narrow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PathPattern {
        PathPattern::parse(text).expect(text)
    }

    #[test]
    fn a_route_covers_another_when_nothing_would_get_past_it() {
        let matcher = |host: &str, pattern: &str, methods: &[Method]| Matcher {
            host: (!host.is_empty()).then(|| HostPattern::parse(host).expect(host)),
            path: (!pattern.is_empty()).then(|| path(pattern)),
            methods: methods.to_vec(),
            headers: Vec::new(),
        };
        let all = matcher("", "", &[]);
        assert!(all.covers(&matcher("a.b", "/x", &[Method::GET])) && !matcher("", "/x", &[]).covers(&all));
        assert!(matcher("*.b", "/x/**", &[]).covers(&matcher("a.b", "/x/{id}", &[])));
        assert!(matcher("", "/{a}", &[]).covers(&matcher("", "/x", &[])));
        assert!(!matcher("", "/x", &[]).covers(&matcher("", "/{a}", &[])));
        assert!(!matcher("", "/x", &[]).covers(&matcher("", "/x/**", &[])));
        assert!(!matcher("", "", &[Method::GET]).covers(&all));
        assert!(!matcher("", "", &[Method::GET]).covers(&matcher("", "", &[Method::GET, Method::POST])));
    }
}
