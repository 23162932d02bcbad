//! Checks the table of endpoints in `docs/operations.md` against the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("text")
}

/// Returns the first name in backticks of each table row in a section.
fn rows(section: &str) -> BTreeSet<String> {
    let page = read("docs/operations.md");
    let (_, rest) = page.split_once(&format!("\n### {section}\n")).expect(section);
    let section = rest.split("\n#").next().expect("a section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).map(str::to_owned).collect()
}

/// Returns the string literal after each occurrence of `word` in the code.
fn texts(files: &[&str], word: &str) -> BTreeSet<String> {
    let code: String = files.iter().map(|file| read(file)).collect();
    let first = |rest: &str| rest.trim_start().strip_prefix('"')?.split('"').next().map(str::to_owned);
    code.split(word).skip(1).filter_map(first).collect()
}

#[test]
fn operations_page_lists_exactly_the_endpoints() {
    let mut served = texts(&["src/admin/health.rs"], "path = ");
    served.extend(texts(&["src/admin/openapi.rs", "src/admin/dashboard/mod.rs"], ".route("));
    served.retain(|path| !path.contains('{')); // the files of the dashboard
    served.insert("/api/v1/...".to_owned()); // the OpenAPI document lists these
    assert_eq!(rows("Endpoints"), served);
}
