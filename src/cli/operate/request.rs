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
        match text.split_once('/') {
            Some((route, limit)) if !route.is_empty() && !limit.is_empty() && !limit.contains('/') => {
                Ok(Self { route: route.to_owned(), limit: limit.to_owned() })
            }
            _ => Err("write ROUTE/LIMIT, with the names of the rule file"),
        }
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.route, self.limit)
    }
}

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
        for invalid in ["rest", "/per-key", "rest/", "a/b/c"] {
            assert!(invalid.parse::<LimitName>().is_err(), "{invalid}");
        }
    }
}
