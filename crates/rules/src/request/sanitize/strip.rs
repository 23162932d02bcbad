//! Fields that origins trust and that any client can forge. They are removed unless a trusted proxy sent them.

use std::collections::BTreeSet;

use http::HeaderName;

/// A list of fields that are removed unless the peer is a trusted proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strip {
    /// In lower case, like all names and prefixes here.
    names: BTreeSet<Box<str>>,
    prefixes: BTreeSet<Box<str>>,
    kept: BTreeSet<Box<str>>,
    /// Rule out most names quickly. The group of a name depends on its start and its end, the group of a prefix only on
    /// its start.
    may_be_named: Filter,
    may_have_prefix: Filter,
}

/// The lengths of some names for each group of names, as bit sets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Filter([u64; 64]);

/// A pattern for field names: one name, or a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The field of this name.
    Name(HeaderName),
    /// All fields whose names start with this prefix: `X-Forwarded-*`.
    Prefix(Box<str>),
}

/// An invalid field name pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// The text is neither a field name nor a prefix followed by `*`.
    #[error("must be a header field name or a prefix followed by `*`")]
    Name,
    /// The pattern matches a field that every request needs.
    #[error("matches `{0}`, which must not be removed from requests")]
    Required(&'static str),
}

/// Fields that route or frame a request, so they cannot be removed.
const REQUIRED: [&str; 5] = ["connection", "content-length", "expect", "host", "transfer-encoding"];

impl Pattern {
    /// Parses a pattern such as `X-Real-IP` or `X-Forwarded-*`.
    ///
    /// # Errors
    /// See [`BadPattern`].
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let stem = text.strip_suffix('*').unwrap_or(text);
        let name = HeaderName::from_bytes(stem.as_bytes()).ok().filter(|_| !stem.contains('*'));
        let name = name.ok_or(BadPattern::Name)?;
        let pattern = if stem == text { Self::Name(name) } else { Self::Prefix(name.as_str().into()) };
        match REQUIRED.into_iter().find(|required| pattern.matches(required)) {
            Some(required) => Err(BadPattern::Required(required)),
            None => Ok(pattern),
        }
    }

    /// Returns `true` if the pattern matches this name, which must be in lower case.
    pub fn matches(&self, other: &str) -> bool {
        match self {
            Self::Name(name) => name == other,
            Self::Prefix(prefix) => other.starts_with(&**prefix),
        }
    }
}

impl Strip {
    /// The patterns of the fields that are removed by default.
    pub const DEFAULT: [&str; 61] = [
        // The original client, host and scheme.
        "Forwarded",
        "Forwarded-For",
        "X-Forwarded",
        "X-Forwarded-*",
        "X-Forward-For",
        "X-Original-Forwarded-For",
        "X-Real-IP",
        "X-Client-IP",
        "Client-IP",
        "X-Cluster-Client-IP",
        "X-Originating-IP",
        "X-Remote-IP",
        "X-Remote-Addr",
        "X-ProxyUser-IP",
        "X-Scheme",
        "X-Url-Scheme",
        "Front-End-Https",
        // The same, as set by content delivery networks and clouds.
        "True-Client-IP",
        "CF-Connecting-*",
        "CF-Pseudo-IPv4",
        "CF-Visitor",
        "CloudFront-Viewer-*",
        "CloudFront-Forwarded-Proto",
        "Fastly-Client-IP",
        "Fastly-SSL",
        "Fly-Client-IP",
        "Fly-Forwarded-*",
        "DO-Connecting-IP",
        "Incap-Client-IP",
        "X-Sucuri-ClientIP",
        "X-Azure-ClientIP",
        "X-Azure-SocketIP",
        "X-Appengine-User-IP",
        "X-Appengine-Remote-Addr",
        "X-Envoy-External-Address",
        "X-Envoy-Internal",
        "X-Envoy-Original-*",
        "X-NF-Client-Connection-IP",
        "X-Vercel-Forwarded-For",
        "X-Vercel-Proxied-For",
        // The authenticated identity of a client.
        "Client-Cert",
        "Client-Cert-Chain",
        "X-Client-Cert*",
        "X-SSL-*",
        "SSL-Client-*",
        "X-ARR-ClientCert",
        "X-ARR-SSL",
        "X-Amzn-Mtls-*",
        // Overrides of the target and the method.
        "X-Original-URL",
        "X-Original-URI",
        "X-Original-Method",
        "X-Original-Host",
        "X-Rewrite-URL",
        "X-Host",
        "X-HTTP-Host-Override",
        "X-HTTP-Method",
        "X-HTTP-Method-Override",
        "X-Method-Override",
        // Server settings: `HTTP_PROXY`, X-Accel and X-Sendfile in Rack.
        "Proxy",
        "X-Accel-Mapping",
        "X-Sendfile-Type",
    ];

    /// Creates a list of these patterns, with the `kept` names as exceptions.
    pub fn new(patterns: impl IntoIterator<Item = Pattern>, kept: impl IntoIterator<Item = HeaderName>) -> Self {
        let (names, prefixes) = (BTreeSet::new(), BTreeSet::new());
        let kept = kept.into_iter().map(|name| name.as_str().into()).collect();
        let mut strip = Self { names, prefixes, kept, may_be_named: Filter([0; 64]), may_have_prefix: Filter([0; 64]) };
        for pattern in patterns {
            match pattern {
                Pattern::Name(name) => {
                    strip.may_be_named.add_name(name.as_str());
                    strip.names.insert(name.as_str().into());
                }
                Pattern::Prefix(prefix) => {
                    strip.may_have_prefix.add_prefix(&prefix);
                    strip.prefixes.insert(prefix);
                }
            }
        }
        strip
    }

    /// Returns the patterns in the form of a rule file.
    pub fn patterns(&self) -> impl Iterator<Item = String> {
        let prefixes = self.prefixes.iter().map(|prefix| format!("{prefix}*"));
        self.names.iter().map(ToString::to_string).chain(prefixes)
    }

    /// Returns the names that are kept although they match a pattern.
    pub fn kept(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().map(|name| &**name)
    }

    /// Returns `true` if the field of this name, which must be in lower case, is removed.
    #[inline]
    pub fn has(&self, name: &str) -> bool {
        let (start, length) = (group_of_start(name), length(name));
        let is_named = || self.may_be_named.0[group(name, start)] & length != 0 && self.names.contains(name);
        let has_prefix = || {
            self.may_have_prefix.0[start] & length != 0
                && self.prefixes.iter().any(|prefix| name.starts_with(&**prefix))
        };
        (is_named() || has_prefix()) && !self.kept.contains(name)
    }
}

impl Default for Strip {
    fn default() -> Self {
        Self::new(Self::DEFAULT.iter().filter_map(|text| Pattern::parse(text).ok()), [])
    }
}

impl Filter {
    fn add_name(&mut self, name: &str) {
        self.0[group(name, group_of_start(name))] |= length(name);
    }

    /// Adds all names with this prefix: its length and all greater lengths.
    fn add_prefix(&mut self, prefix: &str) {
        let lengths = length(prefix).wrapping_neg();
        self.0[group_of_start(prefix)] |= lengths;
        if X.starts_with(prefix) {
            self.0[32..].iter_mut().for_each(|group| *group |= lengths);
        }
    }
}

/// The start of many names.
const X: &str = "x-";

/// Returns the group of a name: of its start and its last letter. `x-api-key` is not in the group of `x-arr-ssl`.
fn group(name: &str, start: usize) -> usize {
    (start + 5 * usize::from(name.as_bytes().last().copied().unwrap_or_default())) % 64
}

/// Returns the group of the start of a name: its first letter, or its first letter after `x-`.
fn group_of_start(name: &str) -> usize {
    let letter = |name: &str| usize::from(name.as_bytes().first().copied().unwrap_or_default() & 31);
    name.strip_prefix(X).map_or_else(|| letter(name), |rest| 32 + letter(rest))
}

/// Returns the bit for the length of a name. All lengths from 63 share a bit.
fn length(name: &str) -> u64 {
    1 << name.len().min(63)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn strip(patterns: &[&str], kept: &[&'static str]) -> Strip {
        let patterns = patterns.iter().map(|text| Pattern::parse(text).unwrap());
        Strip::new(patterns, kept.iter().map(|name| HeaderName::from_static(name)))
    }

    #[test]
    fn all_defaults_are_valid_patterns() {
        for text in Strip::DEFAULT {
            assert!(Pattern::parse(text).is_ok(), "{text}");
        }
        let default = Strip::default();
        for name in
            ["x-real-ip", "x-forwarded-for", "x-forwarded-client-cert", "forwarded", "proxy", "cf-connecting-ip"]
        {
            assert!(default.has(name), "{name}");
        }
        for name in ["host", "x-api-key", "x-forward", "accept", "cookie", "proxy-authorization", "x-request-id", "via"]
        {
            assert!(!default.has(name), "{name}");
        }
    }

    #[test]
    fn kept_name_is_not_stripped() {
        let strip = strip(&["X-Forwarded-*", "proxy"], &["x-forwarded-user"]);
        assert!(strip.has("x-forwarded-users") && strip.has("x-forwarded-") && strip.has("proxy"));
        assert!(!strip.has("x-forwarded-user") && !strip.has("x-forwarded") && !strip.has("proxy-x"));
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        for text in ["", "*", "a*b", "a**", "x y", "x:", "é", "X-*-For"] {
            assert_eq!(Pattern::parse(text), Err(BadPattern::Name), "{text:?}");
        }
        for (text, required) in [("Host", "host"), ("content-*", "content-length"), ("T*", "transfer-encoding")] {
            assert_eq!(Pattern::parse(text), Err(BadPattern::Required(required)), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn length_filter_misses_no_match(
            texts in prop::collection::vec("(x-?)?[ab_]{1,3}[*]?|x-?[*]", 0..6), name in "(x-?)?[ab_]{0,4}|x|a{60,70}",
        ) {
            let patterns: Vec<Pattern> = texts.iter().map(|text| Pattern::parse(text).unwrap()).collect();
            prop_assume!(!name.is_empty());
            let strip = Strip::new(patterns.iter().cloned(), []);
            prop_assert_eq!(strip.has(&name), patterns.iter().any(|pattern| pattern.matches(&name)));
        }
    }
}
