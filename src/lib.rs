//! placeholder
pub mod admission;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
mod facts;
mod headers;
pub mod layer;
pub mod limit;
pub mod metrics;
pub mod path;
mod refusal;
pub mod route;
pub mod rule;
mod ruleset;
pub mod store;
pub mod upstream;
