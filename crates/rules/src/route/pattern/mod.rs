//! The host and path patterns of the rule file.

use std::fmt;

use super::case::Case;
use super::glob;
use crate::request::path::{self, EncodedSlash};

/// `api.example.com`, or `*.example.com` for every host below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// This host, in lower case.
    Exact(String),
    /// Hosts that end with this, which starts with a dot.
    Suffix(String),
}

/// A path pattern: literal segments, `{name}` for any single segment, `*` for any characters of a segment, and one `/**`
/// for any number of segments.
///
/// A trailing slash makes no difference: `/login` also matches `/login/`, since most upstreams treat them equally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    pub(super) segments: Vec<Segment>,
    /// Whether more segments may follow.
    pub(super) rest: bool,
    /// The last segments of a path, after `**`. Empty without `**`.
    pub(super) tail: Vec<Segment>,
    case: Case,
}

/// A segment of a path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// This text.
    Literal(String),
    /// Any text, under this name in the rule file.
    Any(String),
    /// A text in which each `*` stands for any characters.
    Glob(String),
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
    /// There are two `**`.
    #[error("`{0}` has more than one `**`")]
    Rest(String),
    /// A segment has parameters, which are not matched.
    #[error("`{0}` has the parameters of a segment")]
    Parameters(String),
    /// A segment has braces but is not `{name}`, or is only `*`.
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
            label.len() <= 63 && label.bytes().all(inner) && label.bytes().any(|byte| byte.is_ascii_alphanumeric())
        };
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).filter(|_| !any_label);
        if let Some(address) = address.and_then(|address| address.parse::<std::net::Ipv6Addr>().ok()) {
            return Ok(Self::Exact(format!("[{address}]"))); // the form that clients send (RFC 5952)
        }
        if name.len() > 253 || !name.split('.').all(is_label) {
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

    /// Returns `true` if all hosts of `other` match this pattern.
    pub fn covers(&self, other: &Self) -> bool {
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
    pub fn segments_before_rest(&self) -> Option<usize> {
        (self.rest && self.tail.is_empty()).then_some(self.segments.len())
    }

    /// Parses a pattern such as `/login`, `/users/{id}/posts`, `/static/**`, `/v*/users` or `/**/*.css`.
    ///
    /// # Errors
    /// The pattern could never match.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let not_normal = || PatternError::Path(text.to_owned());
        let inner = text.strip_prefix('/').ok_or_else(not_normal)?;
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let mut parts = inner.split('/').filter(|_| !inner.is_empty());
        let mut rest = false;
        let before_rest = parts.by_ref().take_while(|part| {
            rest = *part == "**";
            !rest
        });
        let segments = before_rest.map(|part| Segment::parse(part, text)).collect::<Result<_, _>>()?;
        let tail = parts.map(|part| Segment::parse(part, text)).collect::<Result<_, _>>()?;
        Ok(Self { segments, rest, tail, case: Case::Sensitive })
    }

    /// Returns the pattern that compares letters in this way.
    #[must_use]
    pub fn with_case(self, case: Case) -> Self {
        Self { case, ..self }
    }

    /// Returns how the pattern compares letters.
    pub(super) fn case(&self) -> Case {
        self.case
    }

    /// Returns the pattern with its literal segments in lower case.
    pub(super) fn to_lowercase(&self) -> Self {
        let lower = |segment: &Segment| match segment {
            Segment::Literal(text) => Segment::Literal(text.to_ascii_lowercase()),
            other => other.clone(),
        };
        Self { segments: self.segments.iter().map(lower).collect(), ..self.clone() }
    }

    /// Returns `true` if the pattern matches a single path.
    pub fn is_literal(&self) -> bool {
        !self.rest && self.all_segments().all(|segment| matches!(segment, Segment::Literal(_)))
    }

    /// Returns `true` if the pattern consists of literal segments, `{name}` and `/**` at the end.
    pub(super) fn is_plain(&self) -> bool {
        self.tail.is_empty() && !self.segments.iter().any(|segment| matches!(segment, Segment::Glob(_)))
    }

    /// Returns `true` if the pattern has an encoded slash or backslash, which matches only with [`EncodedSlash::Keep`].
    pub fn has_encoded_slash(&self) -> bool {
        self.all_segments().any(|segment| match segment {
            Segment::Literal(text) | Segment::Glob(text) => text.contains("%2F") || text.contains("%5C"),
            Segment::Any(_) => false,
        })
    }

    fn all_segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().chain(&self.tail)
    }

    /// Returns `true` if the pattern matches `path`, which must be in the form of `Path::matched`.
    pub fn matches(&self, path: &str) -> bool {
        let path = trim_slashes(path);
        let mut parts = path.split('/').filter(|_| !path.is_empty());
        let mut matches = |segment: &Segment| parts.next().is_some_and(|part| segment.matches(part, self.case));
        if !self.segments.iter().all(&mut matches) {
            return false;
        }
        match self.rest {
            false => parts.next().is_none(),
            true => {
                let mut ends = self.tail.iter().rev();
                ends.all(|segment| parts.next_back().is_some_and(|part| segment.matches(part, self.case)))
            }
        }
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        let each = |(wide, narrow): (&Segment, &Segment)| wide.covers(self.case, narrow, other.case);
        let (own, others) = (self.segments.len(), other.segments.len());
        match (self.rest, other.rest) {
            (false, false) => own == others && self.segments.iter().zip(&other.segments).all(each),
            (false, true) => false,
            (true, false) => {
                own + self.tail.len() <= others
                    && self.segments.iter().zip(&other.segments).all(each)
                    && self.tail.iter().rev().zip(other.segments.iter().rev()).all(each)
            }
            (true, true) => {
                own <= others
                    && self.tail.len() <= other.tail.len()
                    && self.segments.iter().zip(&other.segments).all(each)
                    && self.tail.iter().rev().zip(other.tail.iter().rev()).all(each)
            }
        }
    }

    /// Returns `true` if a path may match both patterns.
    pub fn overlaps(&self, other: &Self) -> bool {
        let case = self.case.wider(other.case);
        let each = |(segment, other): (&Segment, &Segment)| segment.overlaps(other, case);
        let fits = |rest: &Self, whole: &Self| {
            rest.segments.len() + rest.tail.len() <= whole.segments.len()
                && rest.tail.iter().rev().zip(whole.segments.iter().rev()).all(each)
        };
        self.segments.iter().zip(&other.segments).all(each)
            && match (self.rest, other.rest) {
                (false, false) => self.segments.len() == other.segments.len(),
                (true, false) => fits(self, other),
                (false, true) => fits(other, self),
                (true, true) => self.tail.iter().rev().zip(other.tail.iter().rev()).all(each),
            }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.segments.iter().try_for_each(|segment| segment.fmt(f))?;
        match (self.rest, self.segments.is_empty()) {
            (true, _) => f.write_str("/**")?,
            (false, true) => f.write_str("/")?,
            (false, false) => {}
        }
        self.tail.iter().try_for_each(|segment| segment.fmt(f))
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
        if text.contains(['{', '}']) || text.contains("**") || text == "*" {
            return Err(PatternError::Segment(text.to_owned()));
        }
        if text.contains(';') {
            return Err(PatternError::Parameters(pattern.to_owned()));
        }
        // A star stands for a letter here, so that the texts around it are in normal form.
        let path = format!("/{}", text.replace('*', "x"));
        match path::normalize(&path, EncodedSlash::Keep) {
            Ok(normal) if normal.matched() == path && text.contains('*') => Ok(Self::Glob(text.to_owned())),
            Ok(normal) if normal.matched() == path && !text.is_empty() => Ok(Self::Literal(text.to_owned())),
            _ => Err(PatternError::Path(pattern.to_owned())),
        }
    }

    fn matches(&self, part: &str, case: Case) -> bool {
        match self {
            Self::Literal(text) => case.is_equal(text.as_bytes(), part.as_bytes()),
            Self::Any(_) => true,
            Self::Glob(pattern) => glob::matches(pattern, part, case),
        }
    }

    /// Returns `true` if this segment certainly matches everything that `narrow` matches.
    fn covers(&self, case: Case, narrow: &Self, narrow_case: Case) -> bool {
        match (self, narrow) {
            (Self::Any(_), _) => true,
            (_, Self::Any(_)) | (Self::Literal(_), Self::Glob(_)) => false,
            (_, Self::Literal(text)) => case.includes(narrow_case) && self.matches(text, case),
            (Self::Glob(wide), Self::Glob(narrow)) => {
                case.includes(narrow_case) && case.is_equal(wide.as_bytes(), narrow.as_bytes())
            }
        }
    }

    /// Returns `false` if certainly no text matches both segments.
    fn overlaps(&self, other: &Self, case: Case) -> bool {
        match (self, other) {
            (Self::Any(_), _) | (_, Self::Any(_)) | (Self::Glob(_), Self::Glob(_)) => true,
            (segment, Self::Literal(text)) | (Self::Literal(text), segment) => segment.matches(text, case),
        }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) | Self::Glob(text) => write!(f, "/{text}"),
            Self::Any(name) => write!(f, "/{{{name}}}"),
        }
    }
}

/// Returns a path without its leading and trailing slash.
pub(super) fn trim_slashes(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.strip_suffix('/').unwrap_or(path)
}

#[cfg(test)]
mod tests;
