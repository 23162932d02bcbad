//! Draws how each algorithm decides about the same requests: `cargo run --example pictures` writes
//! `docs/pictures/*.svg`.
//!
//! The embedded store decides, with a manual clock, so every run writes the same bytes. A test compares them with the
//! pictures in the repository.

#![allow(unreachable_pub, reason = "the modules of a program have no users outside it")]

mod draw;

use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    fs::create_dir_all(&folder)?;
    for (name, picture) in draw::pictures()? {
        fs::write(folder.join(name), picture)?;
    }
    Ok(())
}
