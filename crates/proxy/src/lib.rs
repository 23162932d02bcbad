//! The connections of the gateway: servers that read the requests of clients, and the upstreams to which the gateway
//! forwards these requests.
//!
//! A [`server`] reads requests and calls a service. [`forward::Forward`] is the last service: it rewrites the head, and sends
//! the request to a target of its [`upstream`]. Both sides use the formats of [`http`] on the byte streams of [`transport`].
//! Between the two are the [`access`] log and the rate limits; [`service`] joins them to the service of the gateway.
//!
//! Never depends on the start and the reload of a gateway, the admin listener or the commands.
//!
//! A part of Tidegate, whose items change with each release: programs use the crates `tidegate-layer` and `tidegate`.

// The types of nested futures are deep.
#![recursion_limit = "256"]

pub mod access;
pub mod forward;
pub mod http;
#[doc(hidden)]
pub mod internals;
pub mod server;
pub mod service;
pub mod talkers;
pub mod transport;
pub mod upstream;

#[cfg(test)]
#[path = "../../store/src/testing.rs"]
mod testing;
#[cfg(test)]
#[path = "../../../tests/it/support/wire/mod.rs"]
mod wire;
