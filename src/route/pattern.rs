//! The host and path patterns of the rule file.

use std::fmt;

use crate::path::{self, EncodedSlash};

/// `api.example.com`, or `*.example.com` for every host below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// This host, in lower case.
    Exact(String),
    /// Hosts that end with this, which starts with a dot.
    Suffix(String),
}

/// A path pattern: literal segments, `{name}` for any single segment, and `/**` at the end for all paths at or below.
///
/// A trailing slash makes no difference: `/login` also matches `/login/`, since most upstreams treat them equally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    pub(super) segments: Vec<Segment>,
    /// Whether more segments may follow.
    pub(super) rest: bool,
}

/// A segment of a path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// This text.
    Literal(String),
    /// Any text, under this name in the rule file.
    Any(String),
}

/// The error of an invalid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not a host name, with or without a leading `*.`.
    #[error("`{0}` is not a host")]
    Host(String),
    /// The path pattern is not in normal form, so it could never match.
    #[error("`{0}` is not a path in its normal form")]
    Path(String),
    /// `**` is not at the end.
    #[error("`**` can only be the last segment of `{0}`")]
    Rest(String),
    /// A segment has parameters, which are not matched.
    #[error("`{0}` has the parameters of a segment")]
    Parameters(String),
    /// A segment has braces but is not `{name}`.
    #[error("`{0}` is neither a literal segment nor `{{name}}`")]
    Segment(String),
}

// === impl HostPattern ===

impl HostPattern {
    /// Parses `host` or `*.host`.
    ///
    /// # Errors
    /// The text is not a host name (labels of letters, digits, `-` and `_`, separated by dots) or an IPv6 address in
    /// brackets.
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

    /// Returns `true` if the pattern matches `host`, which must be in lower case.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => host == name,
            Self::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
        }
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(name)) => self.matches(name),
            (Self::Suffix(wide), Self::Suffix(narrow)) => narrow.ends_with(wide.as_str()),
            (Self::Exact(_), Self::Suffix(_)) => false,
        }
    }

    /// Returns `true` if a host matches both patterns.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
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
    /// Returns the number of segments in front of `/**`, if the pattern ends with it.
    pub(crate) fn segments_before_rest(&self) -> Option<usize> {
        self.rest.then_some(self.segments.len())
    }

    /// Parses a pattern such as `/login`, `/users/{id}/posts` or `/static/**`.
    ///
    /// # Errors
    /// The pattern could never match.
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

    /// Returns `true` if the pattern matches a single path.
    pub(crate) fn is_literal(&self) -> bool {
        !self.rest && self.segments.iter().all(|segment| matches!(segment, Segment::Literal(_)))
    }

    /// Returns `true` if the pattern has an encoded slash or backslash, which matches only with [`EncodedSlash::Keep`].
    pub(crate) fn has_encoded_slash(&self) -> bool {
        let has = |text: &str| text.contains("%2F") || text.contains("%5C");
        self.segments.iter().any(|segment| matches!(segment, Segment::Literal(text) if has(text)))
    }

    /// Returns `true` if the pattern matches `path`, which must be in the form of `Path::matched`.
    pub fn matches(&self, path: &str) -> bool {
        let path = trim_slashes(path);
        let mut parts = path.split('/').filter(|_| !path.is_empty());
        let literal = self.segments.iter().all(|segment| parts.next().is_some_and(|part| segment.matches(part)));
        literal && (self.rest || parts.next().is_none())
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        let each = |(wide, narrow): (&Segment, &Segment)| matches!(wide, Segment::Any(_)) || wide == narrow;
        let same = self.segments.iter().zip(&other.segments).all(each);
        let length = match self.rest {
            true => self.segments.len() <= other.segments.len(),
            false => self.segments.len() == other.segments.len() && !other.rest,
        };
        same && length
    }

    /// Returns `true` if a path may match both patterns.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let each = |(one, other): (&Segment, &Segment)| match (one, other) {
            (Segment::Literal(one), Segment::Literal(other)) => one == other,
            (Segment::Any(_), _) | (_, Segment::Any(_)) => true,
        };
        let (own, others) = (self.segments.len(), other.segments.len());
        self.segments.iter().zip(&other.segments).all(each)
            && (own == others || (own < others && self.rest) || (others < own && other.rest))
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
        if text.contains(';') {
            return Err(PatternError::Parameters(pattern.to_owned()));
        }
        let path = format!("/{text}");
        match path::normalize(&path, EncodedSlash::Keep) {
            Ok(normal) if normal.matched() == path && !text.is_empty() => Ok(Self::Literal(text.to_owned())),
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

/// Returns a path without its leading and trailing slash.
pub(super) fn trim_slashes(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.strip_suffix('/').unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PathPattern {
        PathPattern::parse(text).expect(text)
    }

    #[test]
    fn path_patterns_match_segments_and_prefixes() {
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
    fn patterns_that_cannot_match_are_errors() {
        for text in [
            "/a;x", "/a%40b", "/a%2fb", "login", "", "/a//b", "/a/../b", "/%61", "/a/**/b", "/{}", "/a{b}", "/a*",
            "/a?x=1", "/a b",
        ] {
            assert!(PathPattern::parse(text).is_err(), "{text}");
        }
        for text in ["", "a b", "http://a", "a:80", "*", "*a.example", "a..b", "a.*.b"] {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn wildcard_host_matches_only_subdomains() {
        let below = HostPattern::parse("*.Example.com").expect("a pattern");
        assert!(below.matches("a.example.com") && below.matches("a.b.example.com"));
        assert!(!below.matches("example.com") && !below.matches("badexample.com"));
    }
}
