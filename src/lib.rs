//! placeholder
pub mod admission;
pub mod client;
pub mod clock;
pub mod config;
pub mod facts;
pub mod forward;
pub mod limit;
pub mod metrics;
pub mod path;
pub mod refusal;
pub mod route;
pub mod rule;
pub mod server;
pub mod store;
pub mod upstream;

#[cfg(test)]
#[path = "../tests/it/support/mod.rs"]
mod support;
