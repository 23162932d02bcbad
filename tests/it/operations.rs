//! The tables of `docs/operations.md` have all that operators can ask for, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("text")
}

/// What stands in backticks at the beginning of each row of a section's tables.
fn rows(section: &str) -> BTreeSet<String> {
    let page = read("docs/operations.md");
    let (_, rest) = page.split_once(&format!("\n### {section}\n")).expect(section);
    let section = rest.split("\n#").next().expect("a section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).map(str::to_owned).collect()
}

/// The first text behind each of these words in the code of the program.
fn texts(files: &[&str], word: &str) -> BTreeSet<String> {
    let code: String = files.iter().map(|file| read(file)).collect();
    let first = |rest: &str| rest.trim_start().strip_prefix('"')?.split('"').next().map(str::to_owned);
    code.split(word).skip(1).filter_map(first).collect()
}

#[test]
fn every_metric_is_in_the_table_and_nothing_else_is() {
    let files = ["src/metrics/mod.rs", "src/metrics/upstream.rs", "src/metrics/nodes.rs"];
    let registered = texts(&files, "registry.register(");
    assert!(registered.len() > 20, "{registered:?}");
    let told = rows("Metrics");
    let bare = |name: &String| {
        let name = name.strip_prefix("tidegate_").expect("a metric");
        name.strip_suffix("_total").unwrap_or(name).to_owned()
    };
    assert_eq!(told.iter().map(bare).collect::<BTreeSet<_>>(), registered);
    // A counter, and nothing else, ends in `_total` where it is shown.
    for kind in tidegate::Metrics::new().render().lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = kind.split_once(' ').expect("a kind");
        let shown = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        assert!(told.contains(&shown), "{shown}");
    }
}

#[test]
fn every_endpoint_is_in_the_table_and_nothing_else_is() {
    let served = texts(&["src/admin/mod.rs"], ".route(");
    let told = rows("Endpoints");
    assert_eq!(told.iter().map(|path| path.replace("/api/v1", "")).collect::<BTreeSet<_>>(), served);
}
