//! The conditions of a route, and which conditions cover others.

use http::{HeaderName, HeaderValue, Method};

use super::pattern::{HostPattern, PathPattern, Segment};
use crate::facts::Facts;

/// The conditions of a route: all of them must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    /// The host; `None` matches all hosts.
    pub host: Option<HostPattern>,
    /// The path in its normal form; `None` matches all paths.
    pub path: Option<PathPattern>,
    /// The methods; an empty list matches all methods.
    pub methods: Vec<Method>,
    /// The header fields that must have exactly these values.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

// === impl Matcher ===

impl Matcher {
    /// Returns `true` if a request with these facts meets all conditions.
    pub fn matches(&self, facts: &Facts<'_>) -> bool {
        self.unmet(facts).is_none()
    }

    /// Returns `true` if a request with this method meets the condition of methods.
    pub(crate) fn matches_method(&self, method: &Method) -> bool {
        self.methods.is_empty() || self.methods.contains(method)
    }

    /// Returns `true` if this matcher matches all requests that `other` matches. Then a later route with `other` is
    /// never reached.
    pub fn covers(&self, other: &Matcher) -> bool {
        covers(&self.host, &other.host, HostPattern::covers)
            && covers(&self.path, &other.path, PathPattern::covers)
            && (self.methods.is_empty()
                || (!other.methods.is_empty() && other.methods.iter().all(|method| self.methods.contains(method))))
            && self.headers.iter().all(|header| other.headers.contains(header))
    }

    /// Returns the exact host and the literal first segment, if there are any. If this matcher has one of them, it
    /// covers only matchers with the same value.
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
    fn matcher_covers_narrower_matchers() {
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
