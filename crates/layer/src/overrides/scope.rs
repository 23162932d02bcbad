//! The limits that an override changes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The limits that an override changes. The order is from the least to the most specific.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The limits of all routes: null.
    All,
    /// The own limits of a route: `ROUTE`; `@` for all shared limits.
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
            Self::Route(route) => Some(route.clone()),
            Self::Limit { route, limit } => Some(format!("{route}/{limit}")),
        }
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
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
