//! What is done with the fuzzer's bytes, and what must hold of it: a target panics when it does not.
//!
//! The test suite runs the same functions over all corpora (`tests/it/corpora.rs`), so that what was found stays mended
//! where nobody has a fuzzer.

mod address;
mod bucket;
mod client;
mod messages;
mod paths;
mod proxy;

pub use address::address;
pub use bucket::bucket;
pub use client::client;
pub use messages::{answer, chunks, request};
pub use paths::path;
pub use proxy::proxy;

/// A target, by its name.
pub type Target = fn(&[u8]);

/// All of them.
pub const TARGETS: [(&str, Target); 9] = [
    ("request", request),
    ("answer", answer),
    ("chunks", chunks),
    ("path", path),
    ("address", address),
    ("client", client),
    ("proxy", proxy),
    ("rules", rules),
    ("bucket", bucket),
];

/// A rule file: it is read to its end or its mistakes are told, and neither takes long.
pub fn rules(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match tidegate::Config::parse_for_gateway(text) {
        // What is good for a gateway is good for a layer.
        Ok(_) => assert!(tidegate::Config::parse(text).is_ok(), "mistakes where there were none"),
        Err(problems) => assert!(!problems.to_string().is_empty(), "mistakes that nobody is told of"),
    }
}
