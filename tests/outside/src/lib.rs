//! Tidegate as a crate outside uses it: the layer over services of one's own, and limiters for anything else.
//!
//! Everything here is written by what the documentation says, with nothing of Tidegate but its public names and without
//! its gateway. The code in README and in docs/guide.md is taken from here.

pub mod limiters;
pub mod web;

#[cfg(test)]
mod grpc;
#[cfg(test)]
mod plain;

/// Why a service does not start.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
