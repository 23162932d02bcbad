//! API keys, tokens and passwords that identify clients.

use super::{IdentityCondition, setters};
use tidegate_config::built::Map;

/// API keys in a file (`docs/identities.md`).
#[derive(Clone, Debug)]
#[must_use = "these settings do nothing until rules have them"]
pub struct ApiKeys {
    pub(super) keys: Map,
}

/// Tokens (JWT) that an issuer has signed (`docs/identities.md`).
#[derive(Clone, Debug)]
#[must_use = "these settings do nothing until rules have them"]
pub struct Tokens {
    pub(super) keys: Map,
}

/// Users with passwords in a file (`docs/identities.md`).
#[derive(Clone, Debug)]
#[must_use = "these settings do nothing until rules have them"]
pub struct Passwords {
    pub(super) keys: Map,
}

impl Passwords {
    /// Reads users and the hashes of their passwords from a file: `USER:HASH` in each line.
    pub fn in_file(file: &str) -> Self {
        let mut keys = Map::default();
        keys.set("file", file);
        Self { keys }
    }

    setters! {
        /// Sets the name that browsers show when they ask for a password. By default `internal`.
        realm(realm: &str) = "realm", realm;
    }
}

impl ApiKeys {
    /// Reads the key from a header field. In `Authorization`, the key follows `Bearer`.
    pub fn in_header(file: &str, name: &str) -> Self {
        Self::new(file, "header", name)
    }

    /// Reads the key from a cookie.
    pub fn in_cookie(file: &str, name: &str) -> Self {
        Self::new(file, "cookie", name)
    }

    /// Reads the key from a query parameter.
    pub fn in_query(file: &str, name: &str) -> Self {
        Self::new(file, "query", name)
    }

    fn new(file: &str, source: &str, name: &str) -> Self {
        let mut keys = Map::default();
        keys.set("file", file);
        keys.set(source, name);
        Self { keys }
    }
}

impl Tokens {
    /// Accepts tokens of this issuer for one of these audiences. `jwks` is the path of the issuer's key set. Without an
    /// audience, a [`claim`](Self::claim) is required.
    pub fn new<'n>(jwks: &str, issuer: &str, audience: impl IntoIterator<Item = &'n str>) -> Self {
        let mut keys = Map::default();
        keys.set("jwks", jwks);
        keys.set("issuer", issuer);
        for audience in audience {
            keys.push("audience", audience);
        }
        Self { keys }
    }

    /// Adds a condition on a claim of each token, for example on `client_id`. Other tokens are not valid.
    pub fn claim(mut self, name: &str, condition: impl Into<IdentityCondition>) -> Self {
        self.keys.change("claims", |claims| claims.add(name, condition.into().0));
        self
    }

    setters! {
        /// Sets where requests contain the token: `header:NAME`, `cookie:NAME` or `query:NAME`. By default
        /// `header:Authorization`, after `Bearer`.
        from(source: &str) = "from", source;
        /// Sets the longest token, in bytes. By default 8 KiB.
        max_token(bytes: u64) = "max_token", format!("{bytes}B");
    }
}
