//! Exact distributed rate limits: as a [Tower layer](#limit-a-service), as a [limiter for any action](#limit-any-action),
//! and as an [HTTP reverse proxy](#run-the-gateway).
//!
//! A limit grants at most `rate` permits in any window of one `interval`, in milliseconds of the store's clock. This holds
//! for all processes that share a [`Store`] in Redis, while Redis answers. [`Store::memory`] keeps the permits of one process.
//! The other algorithms of the rule file provide bursts, time slots and calendar windows.
//!
//! # Limit a service
//!
//! [`RateLimitLayer`] enforces the limits of a rule file on any Tower service, for example on an `axum` router. It answers
//! rejected requests with 429, an exact `Retry-After`, and `RateLimit` fields.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use tidegate::RateLimitLayer;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layer = RateLimitLayer::from_yaml("
//! routes:
//!   - name: reports
//!     match: { path: /reports/** }
//!     limits:
//!       - { name: total, mode: OVERALL, rate: 1, interval: 1m }
//! ")?;
//! let handler = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new("a report".to_owned())) });
//! let service = layer.layer(handler);
//!
//! let first = service.clone().oneshot(Request::get("/reports/1").body(())?).await?;
//! assert_eq!(first.status(), 200);
//! let second = service.oneshot(Request::get("/reports/2").body(())?).await?;
//! assert_eq!(second.status(), 429);
//! assert_eq!(second.headers()["retry-after"], "60");
//! # Ok(())
//! # }
//! ```
//!
//! [`build`] has builders for rules, and [`RateLimitLayer::limit`] needs only one limit. Limits with `client: ip` need the peer address of each request: see [`Peer`]. [`RateLimitLayer::builder`] sets a
//! [`Store`], your own responses, and the treatment of requests that match no route. [`ReportHandle`] returns the result
//! of a request for your access log.
//!
//! # Limit any action
//!
//! [`Limiter`] limits the actions of each key, such as the mails of a user, with every algorithm.
//!
//! ```
//! use std::time::Duration;
//!
//! use tidegate::build::Quota;
//! use tidegate::{Limiter, Store};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::memory(); // or Store::redis("redis://127.0.0.1:6379")?
//! let mails = Limiter::new(store, "mails", Quota::per_second(10))?;
//!
//! mails.check_n("ada", 10).await?;
//! let refused = mails.check("ada").await.expect_err("ten mails in a second");
//! assert_eq!(refused.wait(), Some(Duration::from_secs(1)));
//! mails.until_ready("ada").await?; // waits until a permit is available
//! # Ok(())
//! # }
//! ```
//!
//! [`redisson::RateLimiter`] has the operations and the data of Redisson's `RRateLimiter`, so that Java services can share a
//! limiter in Redis.
//!
//! # Run the gateway
//!
//! [`Gateway`] is the reverse proxy of the program `tidegate`: it listens, limits, and forwards requests to upstreams.
//!
#![cfg_attr(feature = "gateway", doc = "```")]
#![cfg_attr(not(feature = "gateway"), doc = "```ignore")]
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//! use std::time::Duration;
//!
//! use tidegate::Gateway;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Gateway::parse_config("
//! listen: 127.0.0.1:0         # the system selects a port
//! admin: off
//! store: memory               # or redis://127.0.0.1:6379, shared by all gateways
//! upstreams:
//!   echo: { targets: [builtin:echo] }
//! routes:
//!   - name: all
//!     match: { path: /** }
//!     upstream: echo
//!     limits:
//!       - { name: per-ip, mode: PER_CLIENT, client: ip, rate: 1, interval: 1m }
//! ")?;
//! let gateway = Gateway::start(config, 2)?; // two worker threads
//! let address = gateway.addresses()[0].tcp().ok_or("not a TCP address")?;
//!
//! let status = || -> std::io::Result<String> {
//!     let mut connection = TcpStream::connect(address)?;
//!     connection.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
//!     let mut response = String::new();
//!     connection.read_to_string(&mut response)?;
//!     Ok(response.lines().next().unwrap_or_default().to_owned())
//! };
//! assert_eq!(status()?, "HTTP/1.1 200 OK");
//! assert_eq!(status()?, "HTTP/1.1 429 Too Many Requests");
//! gateway.drain(Duration::from_secs(5))?; // requests in flight have five seconds to finish
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | adds | public items that need it |
//! |---|---|---|
//! | `gateway` (default) | the reverse proxy and the program `tidegate`, which need the features `axum` and `tls` | [`Gateway`], [`GatewayStartError`], [`ListenAddress`], [`ReloadError`], [`ReloadReport`] |
//! | `redis` (default) | the store in Redis. Without it, `store: redis://...` fails with [`StoreOpenError`] | `Store::redis`, `Store::redis_builder`, [`RedisStoreBuilder`] |
//! | `otlp` | the gateway exports OpenTelemetry traces over OTLP, if `OTEL_EXPORTER_OTLP_ENDPOINT` is set | none |
//! | `tls` | `redis`, and TLS to Redis with rustls and ring. Without it, `rediss://` fails with [`StoreOpenError`], or as a rule file error | none |
//! | `axum` | the layer reads the peer address from `ConnectInfo` of axum 0.8. Without it, insert a [`Peer`] | none |
//! | `tonic` | the layer reads the peer address from `TcpConnectInfo` of tonic 0.14. Without it, insert a [`Peer`] | none |
//!
//! `default-features = false` leaves the layer, the limiter and the store in memory, and builds a third of the crates.
//!
//! # Documentation
//!
//! The folder `docs/` of this package has a guide, the reference of all rule-file keys (`docs/rules.md`), and more about the
//! library (`docs/library.md`).
// The types of nested futures are deep.
#![recursion_limit = "256"]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without the gateway, these names are not in the documentation.
#![cfg_attr(not(feature = "gateway"), doc = "")]
#![cfg_attr(not(feature = "gateway"), doc = "[`Gateway`]: #features")]
#![cfg_attr(not(feature = "gateway"), doc = "[`GatewayStartError`]: #features")]
#![cfg_attr(not(feature = "gateway"), doc = "[`ListenAddress`]: #features")]
#![cfg_attr(not(feature = "gateway"), doc = "[`ReloadError`]: #features")]
#![cfg_attr(not(feature = "gateway"), doc = "[`ReloadReport`]: #features")]
#![cfg_attr(not(feature = "redis"), doc = "")]
#![cfg_attr(not(feature = "redis"), doc = "[`RedisStoreBuilder`]: #features")]
// Without the gateway, some items of the shared modules are unused.
#![cfg_attr(not(feature = "gateway"), allow(dead_code, unreachable_pub, unused_imports))]

// 1 vocabulary
mod overrides;
// 2 machinery
#[cfg(feature = "gateway")]
mod http1;
#[cfg(feature = "gateway")]
mod http2;
#[cfg(feature = "gateway")]
mod http_client;
#[cfg(feature = "gateway")]
mod tls;
#[cfg(feature = "gateway")]
mod transport;
#[cfg(feature = "gateway")]
mod upstream;
// 3 meaning
mod admission;
pub mod build;
#[cfg(feature = "gateway")]
mod explain;
mod recording;
pub mod redisson;
mod rejected;
#[cfg(feature = "gateway")]
mod replay;
// 4 gateway
#[cfg(feature = "gateway")]
mod credentials;
#[cfg(feature = "gateway")]
mod forward;
mod headers;
mod layer;
mod limiter;
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
#[cfg(feature = "gateway")]
#[doc(hidden)]
pub mod internals;

use tidegate_config as config;
use tidegate_limit::{self as limit, boxed, clock, hex, random, timer};
use tidegate_metrics as metrics;
use tidegate_rules::{
    client, concurrency, condition, cost, evaluation, facts, identity, path, policy, rates, reason, route, rule, rules,
    sanitize, settings, template, upgrade, watch,
};
use tidegate_store as store;
#[cfg(feature = "tls")]
use tidegate_store::pem;

pub use clock::{Clock, ManualClock, Timestamp};
#[cfg(feature = "gateway")]
pub use config::ListenAddress;
pub use config::{Config, ConfigLoadError, Problem, Problems};
#[cfg(feature = "gateway")]
pub use gateway::{Gateway, GatewayStartError, ReloadError, ReloadReport};
pub use identity::{ClientKey, ClientKeys};
pub use layer::{
    Admission, CheckError, LayerError, Limited, NotSent, OverTls, Peer, RateLimitLayer, RateLimitLayerBuilder,
    RateLimited, RateLimitedBody, Rejection, ReportHandle, RequestOutcome, RequestReport, RulesChange, TlsPeer,
    Unmatched,
};
pub use limiter::Limiter;
pub use metrics::Metrics;
#[cfg(feature = "redis")]
pub use store::RedisStoreBuilder;
pub use store::{MemoryStoreBuilder, Redirection, Store, StoreError, StoreOpenError};

#[cfg(test)]
#[path = "../crates/store/src/testing.rs"]
mod testing;
#[cfg(test)]
#[path = "../tests/it/support/wire/mod.rs"]
mod wire;
