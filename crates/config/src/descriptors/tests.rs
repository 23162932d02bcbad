//! The files of envoyproxy/ratelimit, and their errors.

use tidegate_limit::Algorithm;
use tidegate_limit::calendar::{Calendar, Unit};

use super::*;
use tidegate_service::{Call, Descriptor, Entry};

const FILE: &str = "
# Placeholders of rule files have no meaning here.
domain: edge
descriptors:
  - key: user
    shadow_mode: yes
    rate_limit: { unit: Minute, requests_per_unit: 100, name: per-user }
  - key: user
    value: ${HOME}
    rate_limit: { unlimited: true, replaces: [{ name: per-user }] }
  - key: path
    value: /v1/*
    share_threshold: true
    descriptors:
      - { key: code, value: 404, rate_limit: { unit: hour, requests_per_unit: 5 } }
";

fn read(texts: &[&str], window: Window) -> Result<DescriptorFiles, String> {
    let files: Vec<_> =
        (1..).zip(texts).map(|(number, text)| (format!("{number}.yaml").into(), text.as_bytes().to_vec())).collect();
    let read = read_descriptors(&files, window, &BucketNames::default());
    read.map_err(|problems| problems.in_file(Path::new("-")).to_string())
}

/// Returns the messages of all errors, each with its position.
fn errors(texts: &[&str]) -> Vec<String> {
    let errors = read(texts, Window::TokenBucket).expect_err("errors");
    errors.lines().filter(|line| line.contains(".yaml:")).map(|line| line.trim().to_owned()).collect()
}

fn warnings(text: &str, window: Window) -> Vec<String> {
    let files = read(&[text], window).expect("a valid file");
    files.warnings.iter().map(|problem| format!("{}: {}", problem.line().unwrap_or(0), problem.message())).collect()
}

#[test]
fn file_becomes_a_domain() {
    let files = read(&[FILE], Window::FixedWindow).expect("a valid file");
    assert!(files.warnings.is_empty(), "{:?}", files.warnings);
    let domain = files.domains.get("edge").expect("a domain");
    let limits: Vec<_> = domain.limits().iter().take(2).collect();
    assert_eq!(limits[0].limiter.name, "{tidegate:/edge}:user");
    assert_eq!(limits[1].limiter.name, "{tidegate:/edge}:path=/v1/*.code=404");
    assert_eq!((limits[0].shadow, limits[1].shadow), (true, false));
    assert_eq!(limits[0].location.to_string(), "1.yaml:7");
    assert_eq!(limits[1].limiter.quota.algorithm(), Algorithm::FixedWindow(Calendar::utc(Unit::Hour)));
    let entry = |key, value| Descriptor { entries: vec![Entry { key, value }], ..Descriptor::default() };
    let call = Call { domain: "edge", descriptors: vec![entry("user", "a"), entry("user", "${HOME}")], hits_addend: 0 };
    assert!(domain.charges(&call).charges.is_empty(), "the unlimited rule replaces the other");
}

#[test]
fn errors_of_all_files_are_reported_together() {
    let first = "domain: a
descriptors:
  - value: x
  - key: k
    ratelimit: {}
  - { key: k, rate_limit: { unit: fortnight, requests_per_unit: -1 } }
  - { key: l, rate_limit: { unlimited: true, unit: day, replaces: [{}, { name: n }], name: n } }
  - { key: m, rate_limit: { requests_per_unit: 1 } }
  - { key: n, share_threshold: true, quota_mode: true }
  - { key: o, descriptors: [x], shadow_mode: maybe }
  - { key: o, value: [] }
";
    let messages = errors(&[first, "domain: a\n", "# nothing\n---\n", "descriptors: {}\n"]);
    let expected = [
        "1.yaml:3:5: `key` is missing",
        "1.yaml:5:5: unknown key `ratelimit`",
        "1.yaml:6:35: `fortnight` is not a unit",
        "1.yaml:6:65: `requests_per_unit` is a whole number from 0 to 4294967295, not `-1`",
        "1.yaml:7:52: `unlimited` has no `unit`",
        "1.yaml:7:68: an entry of `replaces` has no `name`",
        "1.yaml:7:80: a limit cannot replace itself",
        "1.yaml:8:27: `unit` is missing",
        "1.yaml:9:12: `share_threshold` needs a wildcard",
        "1.yaml:9:50: `quota_mode` is not supported yet",
        "1.yaml:10:29: a descriptor is a map, not the text `x`",
        "1.yaml:10:46: `shadow_mode` is `true` or `false`, not the text `maybe`",
        "1.yaml:11:22: `value` is a text, not a list",
        "2.yaml:1:9: domain `a` is already on line 1 of `1.yaml`",
        "3.yaml:1:1: the file is empty",
        "4.yaml:1:1: `domain` is missing",
        "4.yaml:1:14: `descriptors` is a list, not a map",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn equal_descriptors_are_an_error() {
    let text = "domain: a\ndescriptors:\n  - { key: k, value: v }\n  - { key: k_v }\n  - { key: k, value: v }\n";
    assert_eq!(errors(&[text]), ["1.yaml:5:5: a descriptor with the key `k` and the value `v` is already on line 3"]);
}

#[test]
fn values_without_an_effect_are_warnings() {
    let text = "domain: a
unit: day
descriptors:
  - { key: k, detailed_metric: true, value_to_metric: false, metadata: { anything: [1] } }
  - { key: l, rate_limit: { unit: week } }
";
    let expected = [
        "2: warning: `unit` has no effect in a file",
        "4: warning: `detailed_metric` has no effect",
        "4: warning: `metadata` has no effect",
        "5: warning: without `requests_per_unit`, the limit rejects all requests",
    ];
    assert_eq!(warnings(text, Window::TokenBucket), expected);
    let windows = "5: warning: envoyproxy/ratelimit has other windows of a week";
    assert!(warnings(text, Window::FixedWindow).contains(&windows.to_owned()));
}
