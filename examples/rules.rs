//! Writes `docs/rules.md`, the reference of the rule file, from the descriptions of the keys: `cargo run --example
//! rules`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules.md");
    std::fs::write(page, tidegate::internals::config::reference())
}
