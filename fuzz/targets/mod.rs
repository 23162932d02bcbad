//! The fuzz targets. A target panics if a property does not hold for its input.
//!
//! The test suite runs the same functions over all corpora (`tests/it/corpora.rs`), as regression tests without a
//! fuzzer.

mod address;
mod bodies;
mod bucket;
mod call;
mod client;
mod convert;
mod messages;
mod paths;
mod proxy;
#[path = "../../crates/usage/src/reader/tests/reference.rs"]
mod reference;
mod take;
mod usage;

use tidegate_usage::{Api, Usage};

pub use address::address;
pub use bodies::bodies;
pub use bucket::bucket;
pub use call::call;
pub use client::client;
pub use convert::convert;
pub use messages::{chunks, request, response};
pub use paths::path;
pub use proxy::proxy;
pub use take::take;
pub use usage::usage;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: [(&str, Target); 14] = [
    ("request", request),
    ("response", response),
    ("chunks", chunks),
    ("path", path),
    ("address", address),
    ("client", client),
    ("proxy", proxy),
    ("call", call),
    ("take", take),
    ("bodies", bodies),
    ("usage", usage),
    ("rules", rules),
    ("convert", convert),
    ("bucket", bucket),
];

/// Fuzzes rule files: parsing is quick, and either succeeds or reports errors.
pub fn rules(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match tidegate::Gateway::parse_config(text) {
        // A valid rule file for a gateway is also valid for a layer.
        Ok(_) => assert!(tidegate::Config::parse(text).is_ok(), "valid for a gateway, but not for a layer"),
        Err(problems) => assert!(!problems.to_string().is_empty(), "rejected without an error message"),
    }
}
