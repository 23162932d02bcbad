//! Tidegate, an HTTP reverse proxy with exact distributed rate limits.
//!
//! The crate [`tidegate_layer`] has the library for services: a Tower layer, and a limiter for any action. This crate
//! re-exports it. A service depends on `tidegate-layer` alone, which builds a third of the crates.
//!
//! [`Gateway`] is the reverse proxy of the program `tidegate`: it listens, limits, and forwards requests to upstreams.
//!
//! ```
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
//! | feature | adds |
//! |---|---|
//! | `otlp` | the gateway exports OpenTelemetry traces over OTLP, if `OTEL_EXPORTER_OTLP_ENDPOINT` is set |
//! | `tonic` | the layer reads the peer address from `TcpConnectInfo` of tonic 0.14 |
//!
//! # Documentation
//!
//! The folder `docs/` of this package has a guide, the reference of all rule-file keys (`docs/rules.md`), and more about the
//! library (`docs/library.md`).
#![cfg_attr(docsrs, feature(doc_cfg))]
// The types of nested futures are deep.
#![recursion_limit = "256"]

mod admin;
mod authorization;
mod cli;
mod credentials;
mod gateway;
#[doc(hidden)]
pub mod internals;
mod service;

pub use gateway::{Gateway, GatewayStartError, ReloadError, ReloadReport};
pub use tidegate_config::ListenAddress;
pub use tidegate_layer::{
    Admission, CheckError, ClientKey, ClientKeys, Clock, Config, ConfigLoadError, LayerError, Limited, Limiter,
    ManualClock, MemoryStoreBuilder, Metrics, NotSent, OverTls, Peer, Problem, Problems, RateLimitLayer,
    RateLimitLayerBuilder, RateLimited, RateLimitedBody, Redirection, RedisStoreBuilder, Rejection, ReportHandle,
    RequestOutcome, RequestReport, RulesChange, Store, StoreError, StoreOpenError, Timestamp, TlsPeer, Unmatched,
    build, redisson,
};

#[cfg(test)]
#[path = "../crates/store/src/testing.rs"]
mod testing;
#[cfg(test)]
#[path = "../tests/it/support/wire/mod.rs"]
mod wire;
