//! The targets of requests to the admin API.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// A limit and its route.
#[derive(Clone, Debug)]
pub(super) struct LimitName {
    route: String,
    limit: String,
}

impl LimitName {
    /// Returns the path of the limit, with these segments below it.
    pub(super) fn path(&self, below: &[&str]) -> String {
        path(&[&["limits", &self.route, &self.limit], below].concat())
    }
}

impl FromStr for LimitName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_domain = text.starts_with('/');
        let slash = text.char_indices().skip(1).find(|(_, letter)| *letter == '/');
        let parts = slash.map(|(at, _)| (&text[..at], &text[at + 1..]));
        match parts {
            // The name of a limit of a domain can contain slashes.
            Some((route, limit)) if route.len() > 1 || !is_domain => match limit {
                "" => Err(FORM),
                _ if !is_domain && limit.contains('/') => Err(FORM),
                _ => Ok(Self { route: route.to_owned(), limit: limit.to_owned() }),
            },
            _ => Err(FORM),
        }
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.route, self.limit)
    }
}

/// How to write the name of a limit.
const FORM: &str = "write ROUTE/LIMIT, with the names of the rule file, or /DOMAIN/LIMIT";

/// Returns a path of the API.
pub(super) fn path(segments: &[&str]) -> String {
    segments.iter().fold("/api/v1".to_owned(), |path, segment| path + "/" + &encoded(segment))
}

/// Returns the query with its question mark; empty without parameters.
pub(super) fn query(parameters: &[(&str, String)]) -> String {
    let pairs: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn encoded(text: &str) -> String {
    const SET: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, SET).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_leave_their_parameter() {
        let limit: LimitName = "rest/per-key".parse().expect("a limit");
        let parameters = [("value", "a&b=c?#/%\u{e9}".to_owned()), ("reason", "x y".to_owned())];
        let target = limit.path(&["client"]) + &query(&parameters);
        let encoded = "value=a%26b%3Dc%3F%23%2F%25%C3%A9&reason=x%20y";
        assert_eq!(target, format!("/api/v1/limits/rest/per-key/client?{encoded}"));
        assert_eq!(limit.path(&[]) + &query(&[]), "/api/v1/limits/rest/per-key");
        for invalid in ["rest", "/per-key", "rest/", "a/b/c", "/", "//x", "/edge/", ""] {
            assert!(invalid.parse::<LimitName>().is_err(), "{invalid}");
        }
        let of_domain: LimitName = "/edge/path=/v1/*".parse().expect("a limit");
        assert_eq!(of_domain.path(&["client"]), "/api/v1/limits/%2Fedge/path%3D%2Fv1%2F%2A/client");
        assert_eq!(of_domain.to_string(), "/edge/path=/v1/*");
    }
}
