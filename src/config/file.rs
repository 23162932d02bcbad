//! The rule file as people write it, short forms written out: one field for every key of [`keys`](super::keys) that is
//! built. Nothing is filled in here that was not written, and what was written wrongly is `None` as well.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::units::{Bytes, Interval, Millis};

/// Not `Debug`: it holds secrets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) listen: Option<Vec<Option<Listen>>>,
    pub(crate) max_connections: Option<u64>,
    pub(crate) admin: Option<String>,
    pub(crate) access_log: Option<String>,
    pub(crate) store: Option<Store>,
    pub(crate) clients: Option<Clients>,
    pub(crate) requests: Option<Requests>,
    pub(crate) upstreams: Option<BTreeMap<String, Option<Upstream>>>,
    pub(crate) routes: Option<Vec<Option<Route>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listen {
    pub(crate) address: Option<String>,
    pub(crate) max_connections: Option<u64>,
    pub(crate) max_connections_per_client: Option<u64>,
    pub(crate) max_requests: Option<u64>,
    pub(crate) max_streams: Option<u64>,
    pub(crate) header_timeout: Option<Millis>,
    pub(crate) idle_timeout: Option<Millis>,
    pub(crate) body_timeout: Option<Millis>,
    pub(crate) min_rate: Option<Bytes>,
    pub(crate) max_fields: Option<u64>,
    pub(crate) max_field_bytes: Option<Bytes>,
    pub(crate) max_target: Option<Bytes>,
}

/// Not `Debug`: it holds secrets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Store {
    pub(crate) url: Option<String>,
    pub(crate) timeout: Option<Millis>,
    pub(crate) prefix: Option<String>,
    pub(crate) pool_size: Option<u64>,
    pub(crate) key_secret: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clients {
    pub(crate) trusted_proxies: Option<Vec<Option<String>>>,
    pub(crate) ipv6_prefix: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requests {
    pub(crate) encoded_slash: Option<EncodedSlash>,
    pub(crate) underscores: Option<Underscores>,
    pub(crate) strip: Option<Vec<Option<String>>>,
    pub(crate) keep: Option<Vec<Option<String>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upstream {
    pub(crate) targets: Option<Vec<Option<Target>>>,
    pub(crate) connect_timeout: Option<Millis>,
    pub(crate) response_timeout: Option<Millis>,
    pub(crate) body_timeout: Option<Millis>,
    pub(crate) max_connections: Option<u64>,
    pub(crate) queue: Option<u64>,
    pub(crate) queue_timeout: Option<Millis>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    pub(crate) url: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    pub(crate) name: Option<String>,
    pub(crate) r#match: Option<Match>,
    pub(crate) upstream: Option<String>,
    pub(crate) limits: Option<Vec<Option<Limit>>>,
    pub(crate) max_body: Option<Bytes>,
    pub(crate) headers: Option<Vec<Option<Fields>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Match {
    pub(crate) host: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) methods: Option<Vec<Option<String>>>,
    pub(crate) headers: Option<BTreeMap<String, Option<String>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limit {
    pub(crate) name: Option<String>,
    pub(crate) mode: Option<Mode>,
    pub(crate) client: Option<Vec<Option<String>>>,
    pub(crate) rate: Option<u64>,
    pub(crate) interval: Option<Interval>,
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) burst: Option<u64>,
    pub(crate) segments: Option<u64>,
    pub(crate) timezone: Option<String>,
    pub(crate) permits: Option<Permits>,
    pub(crate) on_store_failure: Option<OnStoreFailure>,
    pub(crate) on_missing_client: Option<OnMissingClient>,
    pub(crate) max_wait: Option<Millis>,
    pub(crate) queue: Option<u64>,
    pub(crate) shadow: Option<bool>,
    /// Of which only what makes a quota can be written.
    pub(crate) candidate: Option<Box<Limit>>,
    pub(crate) key: Option<String>,
    pub(crate) adopt: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Permits {
    Fixed(u64),
    Header(HeaderPermits),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderPermits {
    pub(crate) header: Option<String>,
    pub(crate) default: Option<u64>,
    pub(crate) max: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EncodedSlash {
    Reject,
    Keep,
    Decode,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Underscores {
    Drop,
    Reject,
    Keep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Mode {
    Overall,
    PerClient,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fields {
    Ietf,
    Legacy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Algorithm {
    #[default]
    TokenBucket,
    Gcra,
    LeakyBucket,
    SlidingWindow,
    FixedWindow,
}

impl Algorithm {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::Gcra => "gcra",
            Self::LeakyBucket => "leaky_bucket",
            Self::SlidingWindow => "sliding_window",
            Self::FixedWindow => "fixed_window",
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnStoreFailure {
    Allow,
    Deny,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnMissingClient {
    Deny,
    Skip,
    Ip,
}
