//! The keys of the rule file. Each key is described once: at the field for its value.
//!
//! Defaults are applied later, in [`check`](crate::check).

mod actions;
mod authorize;
mod compression;
mod concurrency;
mod cors;
pub(crate) mod defaults;
mod gateway;
mod identities;
pub(crate) mod include;
pub(crate) mod keys;
mod limits;
mod listen_tls;
pub(crate) mod located;
pub(crate) mod prices;
pub(crate) mod read;
mod service;
mod shape;
mod upstream_tls;
pub(crate) mod used;

pub(crate) use self::actions::{
    BANS, FIELD_CHANGES, FieldChanges, REDIRECT, REJECT, RESPOND, REWRITE, Redirect, Reject, Respond, Rewrite,
};
pub(crate) use self::authorize::{AUTHORIZE, Authorize};
pub(crate) use self::compression::COMPRESSION;
pub(crate) use self::concurrency::CONCURRENCY;
pub(crate) use self::cors::{CORS, Cors};
pub(crate) use self::defaults::DEFAULTS;
pub(crate) use self::gateway::{
    ACCESS_LOG, ADMIN, DNS, EJECT, Eject, FILE, File, HASH_BALANCE, HEALTH, HashBalance, Health, LISTEN, Listen,
    METRICS, PROXY_PROTOCOL, RETRY, Retry, SENTINEL, STORE, Store, TARGET, TIMEOUTS, TLS, TOKENS, Target, Timeouts,
    Tls, UPSTREAM, Upstream,
};
pub(crate) use self::identities::{
    BASIC, EXCLUSION, Exclusion, IDENTITIES, IDENTITY_KEYS, Identities, IdentityConditions, JWT, Jwt, REQUIRE, Require,
};
pub(crate) use self::include::{INCLUDE, Include};
use self::keys::{Kind, Shape};
#[cfg(test)]
pub(crate) use self::limits::USAGE;
pub(crate) use self::limits::{
    CANDIDATE, CLIENTS, LIMIT, Limit, MATCH, Match, NOT, ON_LIMIT, PATTERN, PERMITS, Pattern, Permits, RATE_SOURCE,
    REQUESTS, RESERVE, ROUTE, RateSource, Requests, Reserve, Route, TIER, TIER_SOURCE, TextOrPattern, Tier, UPGRADES,
    USAGE_MEMBERS, UsageMembers, Values, WEIGHTS, WHEN, Weights, When,
};
pub(crate) use self::listen_tls::{CERTIFICATE, CLIENT_AUTH, Certificate, LISTEN_TLS, ListenTls};
use self::read::FromYaml;
pub(crate) use self::service::{
    CONTROL_PLANE, DOMAIN, DOMAIN_ALGORITHMS, DOMAIN_LIMIT, Domain, DomainLimit, LEGACY_NAMES, SERVICE,
    SERVICE_LISTENER, Service,
};
pub(crate) use self::upstream_tls::{UPSTREAM_TLS, UpstreamTls};
use crate::problem::{Checked, Problems};
use crate::yaml::key_value::KeyValue;
use crate::yaml::node::Node;

const SECOND: u64 = 1000;
const HOUR: u64 = 60 * 60 * SECOND;

/// The kind of the rule file.
static FILE_KIND: Kind = Kind::Map(&FILE);

impl File {
    /// Reads the root of a tree, and reports all errors in its values.
    pub(crate) fn from_root(node: &Node, problems: &mut Problems) -> Checked<Self> {
        Self::from_yaml(KeyValue { node, key: FILE.title }, &FILE_KIND, problems)
    }
}

/// The shapes (the keys) of all maps, in the order of `docs/rules.md`. The check of a misplaced key finds its map here.
#[rustfmt::skip]
pub(crate) static SHAPES: [&Shape; 65] = [
    &FILE, &ADMIN, &TOKENS, &ACCESS_LOG, &LISTEN, &PROXY_PROTOCOL, &LISTEN_TLS, &CERTIFICATE, &CLIENT_AUTH, &STORE,
    &SENTINEL, &METRICS, &CLIENTS, &REQUESTS, &BANS, &IDENTITIES, &IDENTITY_KEYS, &JWT, &BASIC, &INCLUDE, &DNS, &UPSTREAM, &HASH_BALANCE,
    &EJECT, &TIMEOUTS, &RETRY, &UPSTREAM_TLS, &HEALTH, &TARGET, &ROUTE, &DEFAULTS, &REQUIRE, &EXCLUSION, &REDIRECT, &RESPOND, &REWRITE, &FIELD_CHANGES,
    &REJECT, &ON_LIMIT, &COMPRESSION, &UPGRADES, &CORS, &AUTHORIZE, &MATCH, &PATTERN, &NOT, &CONCURRENCY, &LIMIT, &WHEN, &TIER, &TIER_SOURCE,
    &RATE_SOURCE, &PERMITS, &USAGE_MEMBERS, &WEIGHTS, &RESERVE, &CANDIDATE, &TLS, &SERVICE, &SERVICE_LISTENER, &CONTROL_PLANE, &DOMAIN_ALGORITHMS, &DOMAIN, &DOMAIN_LIMIT,
    &LEGACY_NAMES,
];
