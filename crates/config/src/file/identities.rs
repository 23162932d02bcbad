//! The keys of API keys, tokens and passwords, and the conditions on them.

use super::keys::Kind::{self, Duration, List, Many, Map, Name, OneOrMany, OrMap, Scalar, Size, Text, Word};
use super::located::{Located, OneOrList, ValueOrMap};
use super::shape::shape;
use super::{HOUR, SECOND};
use crate::values::units::{Bytes, Millis};
use tidegate_rules::request::identity::OnServiceFailure;

shape! {
    /// How requests identify their clients. Routes use it with `require`, and limits with `client: jwt:CLAIM` or
    /// `client: key:NAME` ([identities.md](identities.md)).
    IDENTITIES: Identities = "`identities`" {
        /// API keys.
        keys: IdentityKeys = Map(&IDENTITY_KEYS), Optional;
        /// Signed tokens (JWT). A list has an entry for each issuer: the `iss` of a token selects its entry.
        jwt: Vec<Located<Jwt>> = OneOrMany(&Map(&JWT)), Optional;
        /// Users with passwords (Basic authentication).
        basic: Basic = Map(&BASIC), Optional;
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
        /// The name of the issuer. Required in a list.
        name: String = Name, Optional;
        /// The issuer's key set (JWKS): an `https` or `http` URL, or a path. In a layer, a path.
        jwks: String = Text, Required("jwks: https://id.example.com/jwks.json");
        /// The authorities that may sign the certificate of an `https` server of the key set. By default, the authorities
        /// that the system trusts.
        ca: String = Text, Optional;
        /// The required `iss` of tokens.
        issuer: String = Text, Required("issuer: https://id.example.com/");
        /// The accepted values of `aud`. Required unless `claims` names another claim of tokens for this API.
        audience: Vec<Located<String>> = OneOrMany(&Text), Optional;
        /// Conditions that the claims of each token must meet, in addition to `audience` or instead of it: for example
        /// `{ client_id: [web, app] }`. Other tokens are not valid.
        claims: IdentityConditions = IDENTITY_CONDITIONS, Optional;
        /// Where requests contain the token: `header:NAME`, `cookie:NAME` or `query:NAME`. In `Authorization`, it follows
        /// `Bearer`. All issuers have the same.
        from: String = Text, Default("header:Authorization");
        /// The longest token. One near 16KiB gets a 431 unless the `max_field_bytes` of the listener is raised.
        max_token: Bytes = Size(256, 16 << 10), Default("8KiB");
    }
}

shape! {
    /// Users with passwords, for internal pages: a hash takes much longer to check than a signature. Browsers ask their
    /// users for the password.
    BASIC: Basic = "`basic`" {
        /// A file of at most 1 MiB with a line `USER:HASH` for each user, as `htpasswd -B` writes it. The hashes are bcrypt
        /// with a cost of 4 to 14. The gateway notices when it changes.
        file: String = Text, Required("file: users.htpasswd");
        /// The name that browsers show when they ask for the password: letters, digits, spaces and `._-`.
        realm: String = Text, Default("internal");
    }
}

shape! {
    /// Credentials that suffice for a route: a request has all kinds of these credentials, and they meet all conditions. `{}`
    /// is a kind without conditions. If there is a `service`, it must also allow the request.
    REQUIRE: Require = "`require`" {
        /// Claims of the token, or JSON pointers to nested values such as `/realm_access/roles`. An array meets a condition if
        /// one of its items does. Texts of `scope` and `scp` are lists with spaces.
        jwt: IdentityConditions = IDENTITY_CONDITIONS, Optional;
        /// `id`, `tier` and attributes of the API key.
        keys: IdentityConditions = IDENTITY_CONDITIONS, Optional;
        /// The name of the `user`.
        basic: IdentityConditions = IDENTITY_CONDITIONS, Optional;
        /// The `http` or `https` URL of a service that must allow each request
        /// ([identities.md](identities.md#authorization-services)). Only the gateway asks services.
        service: String = Text, Optional;
        /// The fields of the request that the service receives, in addition to `X-Forwarded-*`.
        headers: Vec<Located<String>> = List(&Text), Default("[authorization, cookie]");
        /// The fields of the service's response that the upstream receives. The same fields of the client are removed.
        pass: Vec<Located<String>> = List(&Text), Default("[]");
        /// How long a permission holds for requests from which the service would receive the same. By default, the service is
        /// asked about each request.
        cache: Millis = Duration(1, HOUR), Optional;
        /// The longest time until the response of the service.
        timeout: Millis = Duration(1, 60 * SECOND), Default("1s");
        /// The treatment of requests while the service is unavailable.
        on_failure: OnServiceFailure = Word(OnServiceFailure::WORDS), Default("deny");
        /// The authorities that may sign the certificate of an `https` service. By default, the authorities that the system
        /// trusts.
        ca: String = Text, Optional;
    }
}

shape! {
    /// Excludes values.
    EXCLUSION: Exclusion = "an exclusion" {
        /// Values that the request must not have. It must have another value; no item of an array is one of these.
        not: Vec<Located<String>> = OneOrMany(&Scalar), Required("not: free");
    }
}

/// The condition on a value of credentials, by the name of the value.
pub(crate) type IdentityConditions = Vec<(String, Located<OneOrList<ValueOrMap<String, Exclusion>>>)>;

/// The kind of conditions on values of credentials.
pub(super) const IDENTITY_CONDITIONS: Kind = Kind::Conditions(&OrMap(&Scalar, &EXCLUSION), &Many(&Scalar));
