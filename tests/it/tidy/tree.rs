//! Reads the files of the source tree.

use std::fs;
use std::path::Path;

use super::Source;

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(super) fn rust() -> Vec<Source> {
    let sources = all(&["rs"]);
    assert!(
        sources.iter().any(|source| source.path == "src/lib.rs"),
        "src/lib.rs is missing: run the tests in the source tree"
    );
    sources
}

pub(super) fn read(path: &str) -> Source {
    let text = fs::read_to_string(root().join(path)).expect("text");
    Source { path: path.to_owned(), text }
}

/// Returns all files of the project with one of these extensions.
pub(super) fn all(endings: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    for folder in ["", "src", "crates", "tests", "examples", "benches", "docs", "lua", "config"] {
        walk(folder, !folder.is_empty(), &mut found);
    }
    found.retain(|path| path.rsplit_once('.').is_some_and(|(_, ending)| endings.contains(&ending)));
    found.sort();
    found.iter().map(|path| read(path)).collect()
}

fn walk(folder: &str, deep: bool, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(root().join(folder)) else { return }; // the published crate has fewer folders
    for entry in entries {
        let entry = entry.expect("a file");
        let path = format!("{folder}/{}", entry.file_name().display()).trim_start_matches('/').to_owned();
        match entry.file_type().expect("a kind").is_dir() {
            false => found.push(path),
            true if deep && path != "tests/outside/target" => walk(&path, deep, found),
            true => {}
        }
    }
}
