//! Checks the tables of `docs/operations.md` against the metrics and the endpoints.

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
fn operations_page_lists_exactly_the_metrics() {
    let files = ["src/metrics/mod.rs", "src/metrics/upstream.rs", "src/metrics/nodes.rs"];
    let registered = texts(&files, "registry.register(");
    assert!(registered.len() > 20, "{registered:?}");
    let listed = rows("Metrics");
    let bare = |name: &String| {
        let name = name.strip_prefix("tidegate_").expect("a metric");
        name.strip_suffix("_total").unwrap_or(name).to_owned()
    };
    assert_eq!(listed.iter().map(bare).collect::<BTreeSet<_>>(), registered);
    // Exactly the names of counters end in `_total`.
    for kind in tidegate::Metrics::new().render().lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = kind.split_once(' ').expect("a kind");
        let shown = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        assert!(listed.contains(&shown), "{shown}");
    }
}

#[test]
fn operations_page_lists_exactly_the_endpoints() {
    let served = texts(&["src/admin/mod.rs"], ".route(");
    let listed = rows("Endpoints");
    assert_eq!(listed.iter().map(|path| path.replace("/api/v1", "")).collect::<BTreeSet<_>>(), served);
}
