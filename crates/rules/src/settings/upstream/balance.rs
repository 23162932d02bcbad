//! How requests are distributed to the targets of an upstream.

use std::fmt;

use http::HeaderName;
use serde::{Serialize, Serializer};

use tidegate_limit::text::words::words;

/// How the target of a request is selected: `balance:` of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    /// A method without regard to the content of requests.
    Method(BalanceMethod),
    /// The same target for equal keys. Requests without a key use [`BalanceMethod::LeastRequests`].
    Hash(HashKey),
}

words! {
    /// How requests are distributed, without regard to their content.
    pub enum BalanceMethod, default LeastRequests {
        /// Of two random targets, the one with fewer requests in flight for its weight. A failed response counts as a
        /// request in flight for at least a second.
        LeastRequests = "least_requests",
        /// The targets in turn, by their weights.
        RoundRobin = "round_robin",
    }
}

/// The part of a request that selects its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address.
    Client,
    /// The value of a header field.
    Header(HeaderName),
    /// The value of a cookie.
    Cookie(String),
    /// The path.
    Path,
}

impl Default for Balance {
    fn default() -> Self {
        Self::Method(BalanceMethod::default())
    }
}

/// Writes the method, or the key of the hash, as in the rule file.
impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(method) => f.write_str(method.name()),
            Self::Hash(HashKey::Client) => f.write_str("hash client"),
            Self::Hash(HashKey::Header(name)) => write!(f, "hash header:{name}"),
            Self::Hash(HashKey::Cookie(name)) => write!(f, "hash cookie:{name}"),
            Self::Hash(HashKey::Path) => f.write_str("hash path"),
        }
    }
}

impl Serialize for Balance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
