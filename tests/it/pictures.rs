//! Checks the pictures and rules of `docs/algorithms.md` against the algorithms.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tidegate::Config;
use tidegate::internals::ConfigInternals;
use tidegate_limit::algorithm::leaky_bucket::Queue;
use tidegate_limit::{Algorithm, AlgorithmName};
use tidegate_rules::limits::rule::{Limit, WaitPolicy};

#[path = "../../examples/pictures/draw/mod.rs"]
mod draw;

#[test]
fn committed_pictures_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    let pictures = draw::pictures().expect("pictures");
    for (name, picture) in &pictures {
        let kept = fs::read_to_string(folder.join(name)).expect("a committed picture");
        assert!(kept == *picture, "{name} is stale: run `cargo run --example pictures`");
    }
    let kept = fs::read_dir(folder).expect("docs/pictures").map(|entry| entry.expect("a file").file_name());
    // The pictures of benchmarks are drawn from measurements.
    let kept = kept.filter(|name| !name.to_string_lossy().starts_with("benchmarks-"));
    assert_eq!(
        kept.count(),
        pictures.len(),
        "docs/pictures contains a picture that `cargo run --example pictures` does not draw"
    );
}

#[test]
fn algorithms_page_shows_all_pictures() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/algorithms.md")).expect("the page");
    for (name, _) in draw::pictures().expect("pictures") {
        assert!(page.contains(&format!("(pictures/{name})")), "docs/algorithms.md does not show {name}");
    }
}

#[test]
fn rules_on_the_algorithms_page_are_valid() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/algorithms.md")).expect("the page");
    let rules = page.lines().filter(|line| line.starts_with("- { name:"));
    let limits: Vec<_> = rules.map(|rule| format!("      {rule}\n")).collect();
    assert_eq!(limits.len(), AlgorithmName::ALL.len(), "a rule for each algorithm");
    limits_of(&limits.concat());
}

#[test]
fn waiting_defaults_match_the_algorithms_page() {
    let leaky = "      - { name: a, mode: OVERALL, rate: 7, interval: 9s, algorithm: leaky_bucket }\n";
    let waits = "      - { name: b, mode: OVERALL, rate: 7, interval: 9s, max_wait: 2s }\n";
    let limits = limits_of(&[leaky, waits].concat());
    let queue = Queue { length: 7, max_wait: 9_000 };
    assert_eq!(limits[0].limiter.quota.algorithm(), Algorithm::LeakyBucket(queue));
    assert_eq!(limits[1].wait_policy, Some(WaitPolicy { max_wait: Duration::from_secs(2), queue: 100 }));
}

fn limits_of(rules: &str) -> Vec<Limit> {
    let file = format!("routes:\n  - name: r\n    match: {{ path: /** }}\n    limits:\n{rules}");
    let config = Config::parse(&file).unwrap_or_else(|problems| panic!("{problems}"));
    config.rules().routes.iter().flat_map(|route| route.limits.clone()).collect()
}
