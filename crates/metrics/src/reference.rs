//! Writes `docs/metrics.md` from the descriptions of the metrics.

use std::fmt::Write;

use prometheus_client::registry::Registry;

use super::Metrics;
use super::catalog::{Catalog, Label};

const INTRODUCTION: &str = "# Metrics

This page lists every metric of `/metrics` on the [admin listener](operations.md#health-checks-and-the-admin-listener).
It is generated from the descriptions in the code by `UPDATE_DOCS=1 cargo test --test it -- generated`.

* `/metrics` omits a series until it has counted something. Counters start at zero in each process.
* Labels are names from the rule file and fixed words, never client input. `route` is empty for requests that match no
  route. The series of a route, limit, upstream or target end with its rules.
* A gateway on Linux also has `process_cpu_seconds_total`, `process_start_time_seconds`, `process_resident_memory_bytes`,
  `process_virtual_memory_bytes`, `process_open_fds` and `process_max_fds`, as Prometheus's client libraries define them.
* A layer in your own program has only the first two sections, and `tidegate_rejected_total`.
* A histogram `NAME` has the series `NAME_bucket`, `NAME_sum` and `NAME_count`.
* Each request with a complete head counts once in `tidegate_responses_total` and once in
  `tidegate_request_duration_seconds`, rejections with 429 included. Responses sent before a request was read count in
  `tidegate_rejected_total`.
* [examples/observability](../examples/observability/README.md) has alert rules and a dashboard for these metrics.
";

/// Returns the text of `docs/metrics.md`.
pub fn reference() -> String {
    let mut registry = Registry::default();
    let mut catalog = Catalog::new(&mut registry);
    Metrics::of_gateway(&[]).describe(&mut catalog);
    let mut page = INTRODUCTION.to_owned();
    for section in catalog.sections {
        let head = "| metric | type, unit | labels | meaning | when it moves |\n|---|---|---|---|---|";
        _ = write!(page, "\n## {}\n\n{head}\n", section.title); // writing to a string cannot fail
        for (metric, kind) in section.metrics {
            let labels: Vec<String> = metric.labels.iter().map(describe_label).collect();
            let (name, kind, labels) = (metric.full_name(kind), kind.as_str(), labels.join("; "));
            _ = writeln!(
                page,
                "| `{name}` | {kind}, {} | {labels} | {} | {} |",
                metric.unit, metric.meaning, metric.action
            );
        }
    }
    page
}

fn describe_label(label: &Label) -> String {
    match label {
        Label::Open(name) => format!("`{name}`"),
        Label::Fixed(name, words) => {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            format!("`{name}`: {}", words.join(", "))
        }
    }
}
