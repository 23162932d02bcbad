//! The rules: the facts about a request, the routes and limits that match them, and the order in which they are applied.
//! Pure: no sockets, no clocks, no stores.
//!
//! A part of Tidegate, whose items change with each release: programs use the crates `tidegate-layer` and `tidegate`.

pub mod charge;
pub mod client;
pub mod condition;
pub mod evaluation;
pub mod json;
pub mod limits;
pub mod request;
pub mod route;
pub mod rules;
pub mod settings;
pub mod template;
pub mod watch;
