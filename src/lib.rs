//! Tidegate: an HTTP reverse-proxy gateway with exact distributed rate limiting.
//!
//! To limit the requests of a service of your own, put a [`RateLimitLayer`] over it; to run the gateway from code,
//! start a [`Gateway`]. Both take their rules from a [`Config`]. To limit anything else, and to share a limit with Java
//! services that use Redisson, there is [`RateLimiter`].
//!
//! # The map
//!
//! A layer imports the layers below it, never upwards; a test holds it to that.
//!
//! | layer | modules |
//! |---|---|
//! | 6 program | [`cli`] the commands · [`gateway`] every layer put together · `internals` what benchmarks measure |
//! | 5 services | `server` connections · `admin` what operators see · `access` the access log |
//! | 4 gateway | [`layer`] the life of a request · `forward` the service below · `local_response` responses that no upstream sent · `headers` what clients are told · `ruleset` the rules, prepared |
//! | 3 meaning | `admission` permit or denial · [`rate_limiter`] permits for programs · [`config`] the rule file |
//! | 2 machinery | [`store`] where buckets are · `upstream` where requests go · `http1` in which bytes · `http2` with which trailers · `transport` over which streams · [`tls`] in which certificates' name |
//! | 1 vocabulary | `sanitize` what nobody reads of it · `facts` what a request says · `path` its normal form · [`client`] who is asking · [`cost`] what it takes · `reason` the phrases of status codes · [`rule`] a limit · [`route`] which limits touch it · [`condition`] and why · [`policy`] what is told of them · [`rules`] all of these, and the charges · [`upgrade`] what else may be spoken |
//! | 0 core | [`clock`] time · [`limit`] the algorithms · [`metrics`] the counters · `timer` deadlines that move · `boxed` futures made in place |

// What only the gateway uses is part of the layer's modules all the same.
#![cfg_attr(not(feature = "gateway"), allow(dead_code))]

// 0 core
mod boxed;
pub mod clock;
pub mod limit;
pub mod metrics;
mod timer;
// 1 vocabulary
pub mod client;
pub mod condition;
pub mod cost;
mod facts;
mod path;
pub mod policy;
mod reason;
pub mod route;
pub mod rule;
pub mod rules;
mod sanitize;
pub mod upgrade;
// 2 machinery
#[cfg(feature = "gateway")]
mod http1;
#[cfg(feature = "gateway")]
mod http2;
pub mod store;
pub mod tls;
#[cfg(feature = "gateway")]
mod transport;
#[cfg(feature = "gateway")]
pub mod upstream;
#[cfg(not(feature = "gateway"))]
pub mod upstream {
    //! What the rule file says of upstreams; a layer goes on to the service below.
    pub mod settings;
}
// 3 meaning
mod admission;
pub mod config;
pub mod rate_limiter;
// 4 gateway
#[cfg(feature = "gateway")]
mod forward;
mod headers;
pub mod layer;
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
pub mod cli;
#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(feature = "gateway")]
#[doc(hidden)]
pub mod internals;

pub use config::Config;
#[cfg(feature = "gateway")]
pub use gateway::Gateway;
pub use layer::RateLimitLayer;
pub use metrics::Metrics;
pub use rate_limiter::RateLimiter;
pub use store::Store;

#[cfg(test)]
#[path = "../tests/it/support/wire/mod.rs"]
mod wire;
