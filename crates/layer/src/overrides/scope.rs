//! The limits that an override changes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The limits that an override changes. The order is from the least to the most specific.
///
/// A domain of the rate limit service is the route `/DOMAIN`. In the text of a scope, slashes in the name of a domain are `%2F`,
/// which no name contains. So each text has one meaning, although names of domains and of their limits can contain slashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The limits of all routes and domains: null.
    All,
    /// The own limits of a route: `ROUTE`; `/DOMAIN` for the limits of a domain, and `@` for all shared limits.
    Route(String),
    /// One limit: `ROUTE/LIMIT`.
    Limit {
        /// The name of the route; `@` for a shared limit.
        route: String,
        /// The name of the limit.
        limit: String,
    },
}

/// The error of a text that is not a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`scope` is null, ROUTE, or ROUTE/LIMIT")]
pub struct ScopeError;

impl Scope {
    /// Returns `true` if the scope contains a limit of this route.
    pub fn contains_limit(&self, of_route: &str, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Route(route) => route == of_route,
            Self::Limit { route, limit } => route == of_route && limit == name,
        }
    }

    /// Returns the text; `None` for all routes.
    fn text(&self) -> Option<String> {
        match self {
            Self::All => None,
            Self::Route(route) => Some(escaped(route)),
            Self::Limit { route, limit } => Some(format!("{}/{limit}", escaped(route))),
        }
    }

    /// Parses the text of a scope in a domain, without its first slash.
    fn parse_domain(text: &str) -> Result<Self, ScopeError> {
        let (domain, limit) = text.split_once('/').map_or((text, None), |(domain, limit)| (domain, Some(limit)));
        if domain.is_empty() || limit.is_some_and(str::is_empty) {
            return Err(ScopeError);
        }
        let route = format!("/{}", domain.replace(SLASH, "/"));
        Ok(match limit {
            Some(limit) => Self::Limit { route, limit: limit.to_owned() },
            None => Self::Route(route),
        })
    }
}

/// A slash in the name of a domain.
const SLASH: &str = "%2F";

/// Returns the name of a route, or of a domain without other slashes than the first.
fn escaped(route: &str) -> String {
    match route.strip_prefix('/') {
        Some(domain) => format!("/{}", domain.replace('/', SLASH)),
        None => route.to_owned(),
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        if let Some(in_domain) = text.strip_prefix('/') {
            return Self::parse_domain(in_domain);
        }
        let (route, limit) = text.split_once('/').map_or((text, None), |(route, limit)| (route, Some(limit)));
        if route.is_empty() || limit.is_some_and(|limit| limit.is_empty() || limit.contains('/')) {
            return Err(ScopeError);
        }
        let route = route.to_owned();
        Ok(match limit {
            Some(limit) => Self::Limit { route, limit: limit.to_owned() },
            None => Self::Route(route),
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_deref().unwrap_or("*"))
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Option::<String>::deserialize(deserializer)? {
            Some(text) => text.parse().map_err(serde::de::Error::custom),
            None => Ok(Self::All),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(route: &str, limit: &str) -> Scope {
        Scope::Limit { route: route.to_owned(), limit: limit.to_owned() }
    }

    #[test]
    fn each_scope_has_its_own_text() {
        for (scope, text) in [
            (Scope::Route("api".to_owned()), "api"),
            (limit("api", "per-key"), "api/per-key"),
            (limit("@", "daily"), "@/daily"),
            (Scope::Route("/edge".to_owned()), "/edge"),
            (Scope::Route("/a/b".to_owned()), "/a%2Fb"),
            (limit("/a", "b/c"), "/a/b/c"),
            (limit("/a/b", "c"), "/a%2Fb/c"),
            (limit("/edge", "path=/v1/*.method=POST"), "/edge/path=/v1/*.method=POST"),
        ] {
            assert_eq!(scope.to_string(), text);
            assert_eq!(text.parse(), Ok(scope));
        }
        for invalid in ["", "/", "//", "//b", "a/", "/a/", "a/b/c"] {
            assert_eq!(invalid.parse::<Scope>(), Err(ScopeError), "{invalid}");
        }
    }
}
