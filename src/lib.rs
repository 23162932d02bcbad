//! placeholder
pub mod admission;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod facts;
pub mod limit;
pub mod metrics;
pub mod path;
pub mod refusal;
pub mod route;
pub mod rule;
pub mod store;
pub mod upstream;
