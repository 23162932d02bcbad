//! Exact distributed rate limits: as a [Tower layer](#limit-a-service), and as a [limiter for any action](#limit-any-action).
//! The crate `tidegate` is the HTTP reverse proxy around this layer.
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
//! use tidegate_layer::RateLimitLayer;
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
//! [`build`] has builders for rules, and [`RateLimitLayer::limit`] needs only one limit. Limits with `client: ip` need
//! the peer address of each request: see [`Peer`]. [`RateLimitLayer::builder`] sets a [`Store`], your own responses,
//! and the treatment of requests that match no route. [`ReportHandle`] returns the result of a request for your access
//! log.
//!
//! # Limit any action
//!
//! [`Limiter`] limits the actions of each key, such as the mails of a user, with every algorithm.
//!
//! ```
//! use std::time::Duration;
//!
//! use tidegate_layer::build::Quota;
//! use tidegate_layer::{Limiter, Store};
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
//! # Features
//!
//! | feature | adds | public items that need it |
//! |---|---|---|
//! | `redis` (default) | the store in Redis. Without it, `store: redis://...` fails with [`StoreOpenError`] | `Store::redis`, `Store::redis_builder`, `RedisStoreBuilder` |
//! | `tls` | `redis`, and TLS to Redis with rustls and ring. Without it, `rediss://` fails with [`StoreOpenError`], or as a rule file error | none |
//! | `axum` | the layer reads the peer address from `ConnectInfo` of axum 0.8. Without it, insert a [`Peer`] | none |
//! | `tonic` | the layer reads the peer address from `TcpConnectInfo` of tonic 0.14. Without it, insert a [`Peer`] | none |
//! | `otlp` | the time of each step, for the traces of the gateway | none |
//!
//! # Documentation
//!
//! The package `tidegate` has a guide, the reference of all rule-file keys (`docs/rules.md`), and more about the library
//! (`docs/library.md`). Items that the documentation hides are for the gateway: they change without notice.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The types of nested futures are deep.
#![recursion_limit = "256"]

#[doc(hidden)]
pub mod admission;
#[doc(hidden)]
pub mod authorization;
pub mod build;
mod domains;
#[doc(hidden)]
pub mod headers;
#[doc(hidden)]
pub mod layer;
mod limit_counters;
mod limit_names;
mod limiter;
#[doc(hidden)]
pub mod local_response;
#[doc(hidden)]
pub mod metering;
#[doc(hidden)]
pub mod overrides;
#[doc(hidden)]
pub mod recording;
pub mod redisson;
#[doc(hidden)]
pub mod rejected;
#[doc(hidden)]
pub mod ruleset;
#[doc(hidden)]
pub use layer::{
    Admission, CheckError, LayerError, Limited, NotSent, OverTls, Peer, RateLimitLayer, RateLimitLayerBuilder,
    RateLimited, RateLimitedBody, Rejection, ReportHandle, RequestOutcome, RequestReport, RulesChange, TlsPeer,
    Unmatched,
};
pub use limiter::Limiter;
pub use tidegate_config::{Config, ConfigLoadError, Problem, Problems};
pub use tidegate_limit::clock::{Clock, ManualClock, Timestamp};
pub use tidegate_metrics::Metrics;
pub use tidegate_rules::request::identity::{ClientKey, ClientKeys};
#[cfg(feature = "redis")]
pub use tidegate_store::RedisStoreBuilder;
pub use tidegate_store::{MemoryStoreBuilder, Redirection, Store, StoreError, StoreOpenError};

#[cfg(test)]
#[path = "../../store/src/testing.rs"]
mod testing;
