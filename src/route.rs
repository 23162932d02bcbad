//! Which rules touch a request: the first route that matches, top to bottom.

use std::fmt;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};

use crate::facts::Facts;
use crate::policy::Told;
use crate::rule::Limit;

/// The routes of a rule file, in their order.
#[derive(Clone, Debug, Default)]
pub struct Routes(Vec<Route>);

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

/// `api.example.com`, or `*.example.com` for every host below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// This host, in lower case.
    Exact(String),
    /// Hosts that end with this, which starts with a dot.
    Suffix(String),
}

/// Literal segments, `{name}` for any one segment, and `/**` at the end for everything at or below.
///
/// A trailing slash makes no difference: `/login` is also `/login/`, since most upstreams take them for the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    segments: Vec<Segment>,
    rest: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Any(String),
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not a host name, with or without a leading `*.`.
    #[error("`{0}` is not a host")]
    Host(String),
    /// A path pattern is compared with normal forms, so it must be one.
    #[error("`{0}` is not a path in its normal form")]
    Path(String),
    /// `**` anywhere but at the end.
    #[error("`**` can only be the last segment of `{0}`")]
    Rest(String),
    /// A segment that has braces and is not `{name}`.
    #[error("`{0}` is neither a literal segment nor `{{name}}`")]
    Segment(String),
}

// === impl Routes ===

impl Routes {
    /// Routes in the order in which they are tried.
    pub fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// The first route that matches, with its position.
    pub fn find(&self, facts: &Facts<'_>) -> Option<(usize, &Route)> {
        self.iter().enumerate().find(|(_, route)| route.matcher.matches(facts))
    }

    /// All routes, in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, Route> {
        self.0.iter()
    }
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
    pub(crate) fn kin(&self) -> (Option<&str>, Option<&str>) {
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

// === impl HostPattern ===

impl HostPattern {
    /// Reads `host` or `*.host`.
    ///
    /// # Errors
    /// The text is no host name: labels of letters, digits, `-` and `_`, separated by dots; or an address in brackets.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let (name, any_label) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let is_label = |label: &str| {
            let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            !label.is_empty() && label.len() <= 63 && label.bytes().all(inner)
        };
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let is_address = !any_label && address.is_some_and(|name| name.parse::<std::net::Ipv6Addr>().is_ok());
        if name.len() > 253 || !(is_address || name.split('.').all(is_label)) {
            return Err(PatternError::Host(text.to_owned()));
        }
        let name = name.to_ascii_lowercase();
        Ok(if any_label { Self::Suffix(format!(".{name}")) } else { Self::Exact(name) })
    }

    /// Is `host`, in lower case, one of these?
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => host == name,
            Self::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(name)) => self.matches(name),
            (Self::Suffix(wide), Self::Suffix(narrow)) => narrow.ends_with(wide.as_str()),
            (Self::Exact(_), Self::Suffix(_)) => false,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Suffix(suffix) => write!(f, "*{suffix}"),
        }
    }
}

// === impl PathPattern ===

impl PathPattern {
    /// Reads a pattern such as `/login`, `/users/{id}/posts` or `/static/**`.
    ///
    /// # Errors
    /// Names the part that can never match.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let not_normal = || PatternError::Path(text.to_owned());
        let inner = text.strip_prefix('/').ok_or_else(not_normal)?;
        let (inner, rest) = match inner.strip_suffix("**") {
            Some(inner) if inner.is_empty() || inner.ends_with('/') => (inner, true),
            _ => (inner, false),
        };
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let mut segments = Vec::new();
        for segment in inner.split('/').filter(|_| !inner.is_empty()) {
            segments.push(Segment::parse(segment, text)?);
        }
        Ok(Self { segments, rest })
    }

    /// Does `path`, in its normal form, match?
    pub fn matches(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut parts = path.split('/').filter(|_| !path.is_empty());
        let literal = self.segments.iter().all(|segment| parts.next().is_some_and(|part| segment.matches(part)));
        literal && (self.rest || parts.next().is_none())
    }

    fn covers(&self, other: &Self) -> bool {
        let each = |(wide, narrow): (&Segment, &Segment)| matches!(wide, Segment::Any(_)) || wide == narrow;
        let same = self.segments.iter().zip(&other.segments).all(each);
        let length = match self.rest {
            true => self.segments.len() <= other.segments.len(),
            false => self.segments.len() == other.segments.len() && !other.rest,
        };
        same && length
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => write!(f, "/{text}")?,
                Segment::Any(name) => write!(f, "/{{{name}}}")?,
            }
        }
        match (self.rest, self.segments.is_empty()) {
            (true, _) => f.write_str("/**"),
            (false, true) => f.write_str("/"),
            (false, false) => Ok(()),
        }
    }
}

impl Segment {
    fn parse(text: &str, pattern: &str) -> Result<Self, PatternError> {
        if text == "**" {
            return Err(PatternError::Rest(pattern.to_owned()));
        }
        if let Some(name) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            let valid = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            return if valid { Ok(Self::Any(name.to_owned())) } else { Err(PatternError::Segment(text.to_owned())) };
        }
        if text.contains(['{', '}', '*']) {
            return Err(PatternError::Segment(text.to_owned()));
        }
        let path = format!("/{text}");
        match crate::path::normalize(&path) {
            Ok(normal) if normal == path && !text.is_empty() && !text.contains(['?', '#']) => {
                Ok(Self::Literal(text.to_owned()))
            }
            _ => Err(PatternError::Path(pattern.to_owned())),
        }
    }

    fn matches(&self, part: &str) -> bool {
        match self {
            Self::Literal(text) => text == part,
            Self::Any(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PathPattern {
        PathPattern::parse(text).expect(text)
    }

    #[test]
    fn a_path_pattern_is_literal_segments_any_segments_and_a_rest() {
        for (pattern, yes, no) in [
            ("/", &["/"][..], &["/a"][..]),
            ("/login", &["/login", "/login/"], &["/", "/login/x", "/logins", "/Login"]),
            ("/users/{id}/posts", &["/users/7/posts"], &["/users/posts", "/users/7/8/posts", "/users/7"]),
            ("/static/**", &["/static", "/static/", "/static/a/b"], &["/statics", "/"]),
            ("/**", &["/", "/a", "/a/b/"], &[]),
        ] {
            let pattern = path(pattern);
            assert!(yes.iter().all(|path| pattern.matches(path)), "{pattern}");
            assert!(!no.iter().any(|path| pattern.matches(path)), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_no_path_can_match_is_refused() {
        for text in ["login", "", "/a//b", "/a/../b", "/%61", "/a/**/b", "/{}", "/a{b}", "/a*", "/a?x=1", "/a b"] {
            assert!(PathPattern::parse(text).is_err(), "{text}");
        }
        for text in ["", "a b", "http://a", "a:80", "*", "*a.example", "a..b", "a.*.b"] {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_suffix_is_for_hosts_below_it_only() {
        let below = HostPattern::parse("*.Example.com").expect("a pattern");
        assert!(below.matches("a.example.com") && below.matches("a.b.example.com"));
        assert!(!below.matches("example.com") && !below.matches("badexample.com"));
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
