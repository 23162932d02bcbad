//! The keys of API keys and tokens.

use super::keys::Kind::{Map, OneOrMany, Size, Text};
use super::located::Located;
use super::shape::shape;
use crate::values::units::Bytes;

shape! {
    /// How requests identify their clients. Routes use it with `require`, and limits with `client: jwt:CLAIM` or
    /// `client: key:NAME` ([identities.md](identities.md)).
    IDENTITIES: Identities = "`identities`" {
        /// API keys.
        keys: IdentityKeys = Map(&IDENTITY_KEYS), Optional;
        /// Signed tokens (JWT).
        jwt: Jwt = Map(&JWT), Optional;
    }
}

shape! {
    /// API keys. Give one of `header`, `cookie` and `query`.
    IDENTITY_KEYS: IdentityKeys = "`keys`" {
        /// A YAML file of at most 64 MiB: a map from `KEY` or `sha256:HEX` to `{ id, tier, attributes }`. The gateway
        /// notices when it changes.
        file: String = Text, Required("file: keys.yaml");
        /// The header field with the key. In `Authorization`, the key follows `Bearer`.
        header: String = Text, Optional;
        /// The cookie with the key.
        cookie: String = Text, Optional;
        /// The query parameter with the key.
        query: String = Text, Optional;
    }
}

shape! {
    /// Tokens that an issuer has signed with RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA.
    JWT: Jwt = "`jwt`" {
        /// The issuer's key set (JWKS): an `https` or `http` URL, or a path. In a layer, a path.
        jwks: String = Text, Required("jwks: https://id.example.com/jwks.json");
        /// The authorities that may sign the certificate of an `https` server of the key set. By default, the authorities
        /// that the system trusts.
        ca: String = Text, Optional;
        /// The required `iss` of tokens.
        issuer: String = Text, Required("issuer: https://id.example.com/");
        /// The accepted values of `aud`.
        audience: Vec<Located<String>> = OneOrMany(&Text), Required("audience: api");
        /// Where requests contain the token: `header:NAME`, `cookie:NAME` or `query:NAME`. In `Authorization`, it follows
        /// `Bearer`.
        from: String = Text, Default("header:Authorization");
        /// The longest token. One near 16KiB gets a 431 unless the `max_field_bytes` of the listener is raised.
        max_token: Bytes = Size(256, 16 << 10), Default("8KiB");
    }
}
