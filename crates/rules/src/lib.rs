//! The rules: the facts about a request, the routes and limits that match them, and the order in which they are applied.
//! Pure: no sockets, no clocks, no stores.
//!
//! A part of Tidegate, whose items change with each release: programs use the crates `tidegate-layer` and `tidegate`.

pub mod client;
pub mod concurrency;
pub mod condition;
pub mod cost;
pub mod evaluation;
pub mod facts;
pub mod identity;
pub mod json;
pub mod path;
pub mod policy;
pub mod rates;
pub mod reason;
pub mod route;
pub mod rule;
pub mod rules;
pub mod sanitize;
pub mod settings;
pub mod status_range;
pub mod template;
pub mod upgrade;
pub mod watch;
