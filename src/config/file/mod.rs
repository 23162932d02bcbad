//! The rule file as people write it, short forms written out: each key described once, at the field that it fills. Nothing
//! is filled in here that was not written, and what was written wrongly is `None` as well.

mod gateway;
mod limits;
mod words;

pub(crate) use self::gateway::{
    CERTIFICATE, CLIENT_AUTH, Certificate, FILE, File, LISTEN, LISTEN_TLS, Listen, ListenTls, PROXY_PROTOCOL,
    ProxyProtocol, SENTINEL, STORE, Sentinel, Store, TARGET, TLS, Tls, UPSTREAM, UPSTREAM_TLS, Upstream, UpstreamTls,
};
pub(crate) use self::limits::{
    CANDIDATE, CLIENTS, HeaderPermits, LIMIT, Limit, MATCH, Match, PERMITS, Permits, REQUESTS, ROUTE, Requests, Route,
    UPGRADES, Upgrades,
};
pub(crate) use self::words::{
    Algorithm, EncodedSlash, Fields, Mode, OnMissingClient, OnStoreFailure, Protocol, TlsVersion, Underscores,
};
use super::keys::Shape;

const SECOND: u64 = 1000;
const HOUR: u64 = 60 * 60 * SECOND;

/// All shapes, to tell where a misplaced key belongs, and in the order in which people read of them.
pub(crate) static SHAPES: [&Shape; 20] = [
    &FILE,
    &LISTEN,
    &PROXY_PROTOCOL,
    &LISTEN_TLS,
    &CERTIFICATE,
    &CLIENT_AUTH,
    &STORE,
    &SENTINEL,
    &CLIENTS,
    &REQUESTS,
    &UPSTREAM,
    &UPSTREAM_TLS,
    &TARGET,
    &ROUTE,
    &UPGRADES,
    &MATCH,
    &LIMIT,
    &PERMITS,
    &CANDIDATE,
    &TLS,
];
