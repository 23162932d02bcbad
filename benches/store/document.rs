//! Writes the benchmark's section of `docs/benchmarks.md`, between two markers. Other programs write other sections in
//! the same way. The text outside of all markers is written by hand, and contains no figures.

use std::fs;
use std::path::Path;

use super::Result;
use super::chart;
use super::measured::Measured;
use super::page::Page;

const BEGIN: &str = "<!-- store -->";
const END: &str = "<!-- /store -->";
const PICTURE: &str = "pictures/benchmarks-store.svg";

/// Writes the picture and the section. Appends the section if the page has none.
pub fn write(page: &Page<'_>, measured: &Measured) -> Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    fs::create_dir_all(docs.join("pictures"))?;
    fs::write(docs.join(PICTURE), chart::draw(measured))?;
    let file = docs.join("benchmarks.md");
    let old = if file.exists() { fs::read_to_string(&file)? } else { "# Benchmarks\n".to_owned() };
    let picture = format!("![Decisions through one Redis at rising concurrency]({PICTURE})");
    let section = format!("{BEGIN}\n## Decisions through one Redis\n\n{page}\n\n{picture}\n{END}");
    Ok(fs::write(file, replace_section(&old, &section))?)
}

fn replace_section(old: &str, section: &str) -> String {
    match old.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1))) {
        Some((before, after)) => format!("{before}{section}{after}"),
        None => format!("{}\n\n{section}\n", old.trim_end()).trim_start().to_owned(),
    }
}
