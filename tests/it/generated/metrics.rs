//! `docs/metrics.md` is what the descriptions of the metrics say.

use std::collections::BTreeSet;

use super::assert_current;

#[test]
fn metrics_page_is_written_from_the_code() {
    assert_current("docs/metrics.md", &tidegate_metrics::reference());
}

/// Exactly the names of counters end in `_total`, and each name is on the page once.
#[test]
fn metrics_page_has_the_exported_names_and_types() {
    let page = tidegate_metrics::reference();
    let rows: Vec<(String, String)> = page.lines().filter_map(row).collect();
    let listed: BTreeSet<&(String, String)> = rows.iter().collect();
    assert!(rows.len() > 25 && listed.len() == rows.len(), "{rows:?}");
    let text = tidegate::Metrics::new().render();
    let exported: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    assert!(exported.len() > 5, "{text}");
    for (name, kind) in exported {
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let row = (format!("{name}{suffix}"), kind.to_owned());
        assert!(listed.contains(&row), "{row:?}");
    }
}

/// Returns the name and the type in a row of a table.
fn row(line: &str) -> Option<(String, String)> {
    let mut cells = line.strip_prefix("| `")?.split(" | ");
    let (name, kind) = (cells.next()?.trim_end_matches('`'), cells.next()?.split(',').next()?);
    Some((name.to_owned(), kind.to_owned()))
}
