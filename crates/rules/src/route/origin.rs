//! The origins that may access a route in browsers (Fetch, section "`Origin` header").

use http::HeaderValue;

/// The end of an entry that matches any port.
const ANY_PORT: &str = ":*";

/// The origins that an entry of `origins` matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginPattern {
    /// All origins: `*`.
    Any,
    /// One origin, as browsers send it.
    Exact(String),
    /// The origins of all hosts below a domain.
    Below {
        /// The scheme: `https://`.
        scheme: String,
        /// The domain and the port: `.example.com:8443`.
        domain: String,
    },
    /// The origins of this pattern with any port: `http://localhost:*`. The pattern has no port itself.
    AnyPort(Box<OriginPattern>),
}

// === impl OriginPattern ===

impl OriginPattern {
    /// Parses an entry of `origins`. Browsers send an origin in lower case, without a path and without the usual port.
    /// Returns `None` for a text that no browser sends.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix(ANY_PORT) {
            _ if text == "*" => Some(Self::Any),
            None => Self::parse_one(text),
            Some(text) if split_port(text.split_once("://")?.1).1.is_some() => None,
            Some(text) => Self::parse_one(text).map(|pattern| Self::AnyPort(Box::new(pattern))),
        }
    }

    /// Parses an entry without a wildcard for ports.
    fn parse_one(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let (host, port) = split_port(authority);
        let is_scheme_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
        let usual_port = match scheme {
            "http" => "80",
            "https" => "443",
            _ => "",
        };
        let is_port =
            |port: &str| port != usual_port && port.parse::<u16>().is_ok_and(|number| number.to_string() == port);
        if !scheme.bytes().all(is_scheme_byte) || !port.is_none_or(is_port) {
            return None;
        }
        match host.strip_prefix('*') {
            Some(domain) if domain.len() > 1 && domain.starts_with('.') && is_host(domain) => {
                let port = port.map(|port| format!(":{port}")).unwrap_or_default();
                Some(Self::Below { scheme: format!("{scheme}://"), domain: format!("{domain}{port}") })
            }
            Some(_) => None,
            None => (is_host(host) || is_ipv6(host)).then(|| Self::Exact(text.to_owned())),
        }
    }

    /// Returns `true` if this entry matches the value of `Origin`.
    pub(super) fn matches(&self, origin: &HeaderValue) -> bool {
        self.matches_bytes(origin.as_bytes())
    }

    fn matches_bytes(&self, origin: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(text) => origin == text.as_bytes(),
            Self::Below { scheme, domain } => {
                let host = origin.strip_prefix(scheme.as_bytes()).and_then(|rest| rest.strip_suffix(domain.as_bytes()));
                host.is_some_and(|host| !host.is_empty() && host.iter().copied().all(is_host_byte))
            }
            Self::AnyPort(pattern) => pattern.matches_bytes(without_port(origin)),
        }
    }
}

impl std::fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(text) => f.write_str(text),
            Self::Below { scheme, domain } => write!(f, "{scheme}*{domain}"),
            Self::AnyPort(pattern) => write!(f, "{pattern}{ANY_PORT}"),
        }
    }
}

/// Splits the port off a host.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// Returns an origin without its port. The rest of an origin that no browser sends matches no pattern.
fn without_port(origin: &[u8]) -> &[u8] {
    let Some(colon) = origin.iter().rposition(|byte| *byte == b':') else { return origin };
    let (rest, port) = (&origin[..colon], &origin[colon + 1..]);
    let is_port = (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit);
    if is_port { rest } else { origin }
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte)
}

fn is_host(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_host_byte)
}

fn is_ipv6(text: &str) -> bool {
    let address = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, origin: &'static str) -> bool {
        OriginPattern::parse(pattern).expect(pattern).matches(&HeaderValue::from_static(origin))
    }

    #[test]
    fn only_texts_that_browsers_send_are_origins() {
        let valid = [
            "*",
            "https://a.b",
            "http://localhost:3000",
            "http://localhost:*",
            "http://[::1]:8080",
            "http://[::1]:*",
            "https://*.a.b",
            "https://*.a.b:*",
            "app://*.x:1",
        ];
        for text in valid {
            assert_eq!(OriginPattern::parse(text).map(|pattern| pattern.to_string()).as_deref(), Some(text));
        }
        let wrong = [
            "",
            "null",
            "a.b",
            "https://",
            "https://A.b",
            "https://a.b/",
            "https://a.b:443",
            "http://a.b:80",
            "https://*",
            "https://*.",
            "https://*a.b",
            "https://a.*",
            "https://a@b",
            "https://a.b:080",
            "https://a.b:",
            "h ttp://a",
            "*:*",
            "http://:*",
            "http://*:*",
            "http://a:1:*",
            "http://a:80*",
            "http://a:*:1",
            "http://a:*/",
        ];
        for text in wrong {
            assert_eq!(OriginPattern::parse(text), None, "{text}");
        }
    }

    #[test]
    fn wildcard_matches_hosts_below_the_domain_only() {
        let allows = |origin| matches("https://*.a.b", origin);
        assert!(allows("https://x.a.b") && allows("https://y.x.a.b"));
        let others = [
            "https://a.b",
            "https://.a.b",
            "http://x.a.b",
            "https://x.a.b:444",
            "https://xa.b",
            "https://evil.c/.a.b",
            "https://evil.c:1.a.b",
            "https://evil@x.a.b",
            "null",
            "*",
        ];
        for origin in others {
            assert!(!allows(origin), "{origin}");
        }
    }

    #[test]
    fn port_wildcard_matches_ports_of_the_same_host_only() {
        for origin in ["http://localhost", "http://localhost:80", "http://localhost:3000", "http://localhost:65535"] {
            assert!(matches("http://localhost:*", origin), "{origin}");
        }
        let others = [
            "https://localhost:3000",
            "http://localhost.evil.com:80",
            "http://localhost:80@evil",
            "http://localhost:80@evil:80",
            "http://localhost:80:80",
            "http://localhost:",
            "http://localhost:+80",
            "http://localhost:123456",
            "http://localhost:80/",
            "http://a.localhost:80",
            "http://evil:80#http://localhost:80",
            "null",
        ];
        for origin in others {
            assert!(!matches("http://localhost:*", origin), "{origin}");
        }
        assert!(matches("http://[::1]:*", "http://[::1]:5173") && !matches("http://[::1]:*", "http://[::1]1"));
        assert!(matches("https://*.a.b:*", "https://x.a.b:8443") && matches("https://*.a.b:*", "https://x.a.b"));
        for origin in ["https://a.b:8443", "https://x.a.b.evil:1", "https://x.a.b:1@evil:1", "https://evil:1.a.b:1"] {
            assert!(!matches("https://*.a.b:*", origin), "{origin}");
        }
    }
}
