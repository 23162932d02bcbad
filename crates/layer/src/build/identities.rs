//! API keys and tokens that identify clients.

use super::setters;
use tidegate_config::built::{Item, Map};

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
    /// Accepts tokens of this issuer for one of these audiences. `jwks` is the path of the issuer's key set.
    pub fn new<'n>(jwks: &str, issuer: &str, audience: impl IntoIterator<Item = &'n str>) -> Self {
        let mut keys = Map::default();
        keys.set("jwks", jwks);
        keys.set("issuer", issuer);
        keys.set("audience", Item::from_iter(audience));
        Self { keys }
    }

    setters! {
        /// Sets where requests contain the token: `header:NAME`, `cookie:NAME` or `query:NAME`. By default
        /// `header:Authorization`, after `Bearer`.
        from(source: &str) = "from", source;
        /// Sets the longest token, in bytes. By default 8 KiB.
        max_token(bytes: u64) = "max_token", format!("{bytes}B");
    }
}
