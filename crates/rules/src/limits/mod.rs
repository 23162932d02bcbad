//! A limit of the rule file: its rule, its rates, its cost, its policy and its concurrency.

pub mod budget;
pub mod concurrency;
pub mod cost;
mod cost_error;
pub mod policy;
pub mod rates;
pub mod rule;
pub mod status_range;
pub mod usage_source;
