//! A crate that uses the public API of Tidegate: the layer around its own services, and limiters.
//!
//! It depends on `tidegate-layer` alone, and uses only documented names. A test compares the code in README.md,
//! docs/guide.md and docs/library.md with this crate.

pub mod limiters;
pub mod web;

#[cfg(test)]
mod grpc;
#[cfg(test)]
mod plain;

/// The error of a service or a limiter.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
