//! The benchmark's section of `docs/benchmarks.md`: what stands between its two markers. Other programs own the others,
//! by the same rule; what is outside of all markers is written by people, and holds no numbers.

use std::fs;
use std::path::Path;

use super::Result;
use super::chart;
use super::measured::Measured;
use super::page::Page;

const BEGIN: &str = "<!-- store -->";
const END: &str = "<!-- /store -->";
const PICTURE: &str = "pictures/benchmarks-store.svg";

/// Writes the section, at the end of the page if it is not there, and the picture.
pub fn write(page: &Page<'_>, measured: &Measured) -> Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    fs::create_dir_all(docs.join("pictures"))?;
    fs::write(docs.join(PICTURE), chart::draw(measured))?;
    let file = docs.join("benchmarks.md");
    let old = if file.exists() { fs::read_to_string(&file)? } else { "# Benchmarks\n".to_owned() };
    let picture = format!("![Decisions through one Redis at rising concurrency]({PICTURE})");
    let section = format!("{BEGIN}\n## Decisions through one Redis\n\n{page}\n\n{picture}\n{END}");
    Ok(fs::write(file, replaced(&old, &section))?)
}

fn replaced(old: &str, section: &str) -> String {
    match old.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1))) {
        Some((before, after)) => format!("{before}{section}{after}"),
        None => format!("{}\n\n{section}\n", old.trim_end()).trim_start().to_owned(),
    }
}
