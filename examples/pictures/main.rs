//! Draws what each algorithm says to the same requests: `cargo run --example pictures` writes `docs/pictures/*.svg`.
//!
//! The decisions are those of the embedded store, on a clock that is moved by hand, so every run draws the same bytes;
//! a test holds the pictures in the repository to that.

#![allow(unreachable_pub, reason = "nothing outside a program sees what is in it")]

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
