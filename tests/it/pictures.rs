//! The pictures of `docs/algorithms.md` are what the algorithms decide today.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tidegate::Config;
use tidegate::limit::Algorithm;
use tidegate::limit::leaky_bucket::Queue;
use tidegate::rule::{Limit, WaitPolicy};

#[path = "../../examples/pictures/draw/mod.rs"]
mod draw;

#[test]
fn the_pictures_in_the_repository_are_what_is_drawn_now() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    let pictures = draw::pictures().expect("pictures");
    for (name, picture) in &pictures {
        let kept = fs::read_to_string(folder.join(name)).expect("a picture that is kept");
        assert!(kept == *picture, "{name} is stale: `cargo run --example pictures` draws it anew");
    }
    let kept = fs::read_dir(folder).expect("docs/pictures").map(|entry| entry.expect("a file").file_name());
    // Those of the benchmarks are drawn of what was measured.
    let kept = kept.filter(|name| !name.to_string_lossy().starts_with("benchmarks-"));
    assert_eq!(kept.count(), pictures.len(), "a picture that nothing draws");
}

#[test]
fn each_algorithm_of_rule_files_has_its_picture_on_its_page() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/algorithms.md")).expect("the page");
    for (name, _) in draw::pictures().expect("pictures") {
        assert!(page.contains(&format!("(pictures/{name})")), "{name} is not on the page");
    }
}

#[test]
fn the_rules_on_the_page_have_no_mistakes() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/algorithms.md")).expect("the page");
    let rules = page.lines().filter(|line| line.starts_with("- { name:"));
    let limits: Vec<_> = rules.map(|rule| format!("      {rule}\n")).collect();
    assert_eq!(limits.len(), 5, "a rule for each algorithm");
    limits_of(&limits.concat());
}

#[test]
fn what_may_wait_unless_the_rule_says_otherwise_is_what_the_page_says() {
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
    config.rules.routes.iter().flat_map(|route| route.limits.clone()).collect()
}
