//! An HTTP reverse proxy with exact distributed rate limits, and the same limits as a library.
//!
//! [`RateLimitLayer`] limits the requests to your own service. [`Gateway`] runs the reverse proxy from code. Both take their
//! rules from a [`Config`]. [`RateLimiter`] limits any other action, and can share a limit with Java services that use Redisson.
//!
//! # Modules
//!
//! A module imports only its own layer and the layers below. A test checks this.
//!
//! | layer | modules |
//! |---|---|
//! | 6 program | `cli` commands · `gateway` assembles all layers · `internals` for benchmarks and the fuzzer |
//! | 5 services | `server` client connections · `admin` the admin listener · `access` the access log |
//! | 4 gateway | `layer` rate limits for requests · `forward` forwards requests to upstreams · `local_response` responses that no upstream sent · `headers` rate limit fields · `ruleset` compiled rules |
//! | 3 meaning | `admission` admits or rejects a request · `rate_limiter` permits for programs · `config` the rule file |
//! | 2 machinery | `store` buckets · `upstream` connections to upstreams · `http1` the HTTP/1.1 codec · `http2` checks of HTTP/2 trailers · `transport` byte streams · `tls` certificates |
//! | 1 vocabulary | `facts` properties of a request · `path` normalized paths · `client` identifies clients · `cost` the cost of a request · `reason` reason phrases · `rule` a limit · `route` routes · `condition` conditions of routes · `policy` rate limit policies for clients · `rules` all rules, and the charges of a request · `sanitize` removes unsafe fields · `upgrade` protocol upgrades |
//! | 0 core | `clock` time · `limit` the algorithms · `metrics` the counters · `timer` timers with moving deadlines · `boxed` boxed futures · `random` random bytes · `words` enums of the rule file's words |

// Without the gateway, some items of the shared modules are unused.
#![cfg_attr(not(feature = "gateway"), allow(dead_code))]

// 0 core
mod boxed;
mod clock;
mod limit;
mod metrics;
mod random;
mod timer;
mod words;
// 1 vocabulary
mod client;
mod condition;
mod cost;
mod facts;
mod path;
mod policy;
mod reason;
mod route;
mod rule;
mod rules;
mod sanitize;
mod upgrade;
// 2 machinery
#[cfg(feature = "gateway")]
mod http1;
#[cfg(feature = "gateway")]
mod http2;
mod store;
mod tls;
#[cfg(feature = "gateway")]
mod transport;
#[cfg(feature = "gateway")]
mod upstream;
#[cfg(not(feature = "gateway"))]
mod upstream {
    //! The upstream settings of a rule file. A layer ignores them.
    pub mod settings;
}
// 3 meaning
mod admission;
mod config;
mod rate_limiter;
// 4 gateway
#[cfg(feature = "gateway")]
mod forward;
mod headers;
mod layer;
mod local_response;
mod ruleset;
// 5 services
#[cfg(feature = "gateway")]
mod access;
#[cfg(feature = "gateway")]
mod admin;
#[cfg(feature = "gateway")]
mod server;
// 6 program
#[cfg(feature = "gateway")]
mod cli;
#[cfg(feature = "gateway")]
mod gateway;
#[doc(hidden)]
pub mod internals;

pub use clock::{Clock, ManualClock, Timestamp};
#[cfg(feature = "gateway")]
pub use config::ListenAddress;
pub use config::{Config, ConfigLoadError, Problem, Problems};
#[cfg(feature = "gateway")]
pub use gateway::{Gateway, GatewayStartError};
pub use layer::{
    ClientKey, LayerError, NotSent, OverTls, Peer, RateLimitLayer, RateLimitLayerBuilder, RateLimited, RateLimitedBody,
    Rejection, ReportHandle, RequestOutcome, RequestReport, TlsPeer, Unmatched,
};
pub use limit::{Mode, RateConfig, RateConfigError};
pub use metrics::Metrics;
pub use rate_limiter::{Acquisition, InstanceId, InstanceIdError, PermitsInUse, RateLimiter, RateLimiterError};
pub use store::{MemoryStoreBuilder, RedisStoreBuilder, Store, StoreError, StoreOpenError};

#[cfg(test)]
#[path = "../tests/it/support/wire/mod.rs"]
mod wire;
