//! Fields that origins believe, and that are anybody's invention unless a trusted proxy says them.

use std::collections::BTreeSet;

use http::HeaderName;

/// The fields that are removed from requests of peers that are no trusted proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strip {
    /// In lower case, as all names are.
    names: BTreeSet<Box<str>>,
    prefixes: BTreeSet<Box<str>>,
    kept: BTreeSet<Box<str>>,
    /// For the first letter of a name, the lengths that are worth a closer look; most names end here.
    lengths: [u64; 32],
}

/// One field, or all that begin alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The field of this name.
    Name(HeaderName),
    /// All fields whose names begin with this: `X-Forwarded-*`.
    Prefix(Box<str>),
}

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// It is not the name of a field, or the beginning of one with a `*` behind it.
    #[error("is neither the name of a header field nor the beginning of one with `*` behind it")]
    Name,
    /// Without that field a request is another.
    #[error("takes in `{0}`, which no request can do without")]
    Needed(&'static str),
}

/// What no request can do without: it says where it goes and where it ends.
const NEEDED: [&str; 5] = ["connection", "content-length", "expect", "host", "transfer-encoding"];

impl Pattern {
    /// Reads `X-Real-IP` or `X-Forwarded-*`.
    ///
    /// # Errors
    /// See [`BadPattern`].
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let stem = text.strip_suffix('*').unwrap_or(text);
        let name = HeaderName::from_bytes(stem.as_bytes()).ok().filter(|_| !stem.contains('*'));
        let name = name.ok_or(BadPattern::Name)?;
        let pattern = if stem == text { Self::Name(name) } else { Self::Prefix(name.as_str().into()) };
        match NEEDED.into_iter().find(|needed| pattern.matches(needed)) {
            Some(needed) => Err(BadPattern::Needed(needed)),
            None => Ok(pattern),
        }
    }

    /// Is this name, in lower case, one of those?
    pub fn matches(&self, other: &str) -> bool {
        match self {
            Self::Name(name) => name == other,
            Self::Prefix(prefix) => other.starts_with(&**prefix),
        }
    }
}

impl Strip {
    /// What is removed unless the rule file says otherwise.
    pub const DEFAULT: [&str; 61] = [
        // Whom a request is forwarded for, from where, and how it came.
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
        // The same, as content delivery networks and clouds say it.
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
        // Who a client has proved to be.
        "Client-Cert",
        "Client-Cert-Chain",
        "X-Client-Cert*",
        "X-SSL-*",
        "SSL-Client-*",
        "X-ARR-ClientCert",
        "X-ARR-SSL",
        "X-Amzn-Mtls-*",
        // What is asked for, beside the request line and Host.
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
        // What servers take for settings of their own: HTTP_PROXY, how Rack sends files, who asks inside NextHop.js.
        "Proxy",
        "X-Accel-Mapping",
        "X-Sendfile-Type",
    ];

    /// Those that these patterns match, but for some names.
    pub fn new(patterns: impl IntoIterator<Item = Pattern>, kept: impl IntoIterator<Item = HeaderName>) -> Self {
        let (names, prefixes, lengths) = (BTreeSet::new(), BTreeSet::new(), [0; 32]);
        let kept = kept.into_iter().map(|name| name.as_str().into()).collect();
        let mut strip = Self { names, prefixes, kept, lengths };
        for pattern in patterns {
            match pattern {
                Pattern::Name(name) => {
                    strip.lengths[letter(name.as_str())] |= length(name.as_str());
                    strip.names.insert(name.as_str().into());
                }
                Pattern::Prefix(prefix) => {
                    // Its own length and all above.
                    strip.lengths[letter(&prefix)] |= length(&prefix).wrapping_neg();
                    strip.prefixes.insert(prefix);
                }
            }
        }
        strip
    }

    /// Is the field of this name, in lower case, one of them?
    #[inline]
    pub(crate) fn has(&self, name: &str) -> bool {
        self.lengths[letter(name)] & length(name) != 0 && self.holds(name)
    }

    fn holds(&self, name: &str) -> bool {
        let begins_alike = || self.prefixes.iter().any(|prefix| name.starts_with(&**prefix));
        (self.names.contains(name) || begins_alike()) && !self.kept.contains(name)
    }
}

impl Default for Strip {
    fn default() -> Self {
        Self::new(Self::DEFAULT.iter().filter_map(|text| Pattern::parse(text).ok()), [])
    }
}

/// A number for the first letter of a name.
fn letter(name: &str) -> usize {
    usize::from(name.as_bytes().first().copied().unwrap_or_default() & 31)
}

/// A bit for the length of a name; one for all that are long.
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
    fn all_defaults_are_patterns() {
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
    fn a_name_that_is_kept_is_no_longer_one_of_them() {
        let strip = strip(&["X-Forwarded-*", "proxy"], &["x-forwarded-user"]);
        assert!(strip.has("x-forwarded-users") && strip.has("x-forwarded-") && strip.has("proxy"));
        assert!(!strip.has("x-forwarded-user") && !strip.has("x-forwarded") && !strip.has("proxy-x"));
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        for text in ["", "*", "a*b", "a**", "x y", "x:", "é", "X-*-For"] {
            assert_eq!(Pattern::parse(text), Err(BadPattern::Name), "{text:?}");
        }
        for (text, needed) in [("Host", "host"), ("content-*", "content-length"), ("T*", "transfer-encoding")] {
            assert_eq!(Pattern::parse(text), Err(BadPattern::Needed(needed)), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn the_look_at_letter_and_length_overlooks_nothing(
            texts in prop::collection::vec("[ab_]{1,3}[*]?", 0..6), name in "[ab_]{1,4}|a{60,70}",
        ) {
            let patterns: Vec<Pattern> = texts.iter().map(|text| Pattern::parse(text).unwrap()).collect();
            let strip = Strip::new(patterns.iter().cloned(), []);
            prop_assert_eq!(strip.has(&name), patterns.iter().any(|pattern| pattern.matches(&name)));
        }
    }
}
