//! The files of envoyproxy/ratelimit, and their errors.

use std::path::Path;
use std::sync::Arc;

use tidegate_limit::Algorithm;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_service::{Call, Descriptor, Domains, Entry};

use crate::{Config, IncludedText, Problem, Problems, Purpose, RuleTexts, Source, SourceFiles, load};

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

/// Reads a rule file with these files of `descriptors`.
fn load(texts: &[&str], algorithm: &str) -> Result<Config, Problems> {
    let files: Vec<_> = (1..=texts.len()).map(|number| format!("{number}.yaml")).collect();
    let main =
        format!("service: {{ grpc: 127.0.0.1:8081, algorithm: {algorithm}, descriptors: [{}] }}", files.join(", "));
    let included =
        |(file, text): (&String, &&str)| IncludedText { path: file.into(), team: None, text: Some((*text).into()) };
    let texts = RuleTexts::new(main.as_str().into(), files.iter().zip(texts).map(included).collect());
    let source = Source { texts: Some(&texts), name: Path::new("-"), ..Source::text(Purpose::Gateway) };
    load::run(main.into(), source, &mut SourceFiles::default())
}

fn domains(config: &Config) -> Arc<Domains> {
    Arc::clone(&config.service.as_ref().expect("a service").domains)
}

/// Returns the messages of all errors, each with its position.
fn errors(texts: &[&str]) -> Vec<String> {
    let errors = load(texts, "token_bucket").expect_err("errors").to_string();
    errors.lines().filter(|line| line.contains(".yaml:")).map(|line| line.trim().to_owned()).collect()
}

fn warnings(text: &str, algorithm: &str) -> Vec<String> {
    let config = load(&[text], algorithm).expect("a valid file");
    let shown = |problem: &Problem| format!("{}: {}", problem.line().unwrap_or(0), problem.message());
    config.warnings().iter().map(shown).collect()
}

#[test]
fn file_becomes_a_domain() {
    let config = load(&[FILE], "fixed_window").expect("a valid file");
    assert!(config.warnings().is_empty(), "{:?}", config.warnings());
    assert!(config.included.is_empty() && config.service.as_ref().is_some_and(|service| service.files == ["1.yaml"]));
    let domains = domains(&config);
    let domain = domains.get("edge").expect("a domain");
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
  - { key: n, share_threshold: true }
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
fn quota_mode_and_metadata_belong_to_the_limit() {
    let rate = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let text = |more: &str| format!("domain: a\ndescriptors: [{{ key: k, {rate}, {more} }}]\n");
    let config = load(&[&text("quota_mode: on, metadata: { a: [1, .5, x], b: { c: null } }")], "gcra").expect("valid");
    let domains = domains(&config);
    let rule = domains.get("a").expect("a domain").rule_limits().next().expect("a limit").rule.clone();
    let metadata = serde_json::json!({ "a": [1, 0.5, "x"], "b": { "c": null } });
    assert!(rule.quota_mode && rule.metadata.as_deref() == metadata.as_object(), "{rule:?}");
    let expected = ["1.yaml:2:86: `quota_mode` is `true` or `false`, not the text `maybe`"];
    assert_eq!(errors(&[&text("quota_mode: maybe")]), expected);
    assert_eq!(errors(&[&text("metadata: [1]")]), ["1.yaml:2:84: `metadata` is a map, not a list"]);
    assert_eq!(errors(&[&text("metadata: { a: .inf }")]), ["1.yaml:2:89: a number in `metadata` must be finite"]);
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
        "4: warning: `metadata` has no effect without `rate_limit`",
        "5: warning: without `requests_per_unit`, the limit rejects all requests",
    ];
    assert_eq!(warnings(text, "token_bucket"), expected);
    let windows = "5: warning: envoyproxy/ratelimit has other windows of a week";
    assert!(warnings(text, "fixed_window").contains(&windows.to_owned()));
}

#[test]
fn number_above_the_largest_rate_is_a_warning() {
    let text = |number: u64| {
        let rate = format!("{{ unit: day, requests_per_unit: {number} }}");
        format!("domain: a\ndescriptors: [{{ key: k, rate_limit: {rate} }}]\n")
    };
    let warning = "2: warning: `requests_per_unit` is above the largest rate: 2147483648 requests pass";
    assert_eq!(warnings(&text(u32::MAX.into()), "token_bucket"), [warning]);
    assert!(warnings(&text(1 << 31), "token_bucket").is_empty());
}

#[test]
fn longest_names_are_accepted() {
    let text = |length: usize| format!("domain: {}\n", "d".repeat(length));
    assert!(load(&[&text(1_024)], "gcra").is_ok());
    assert_eq!(errors(&[&text(1_025)]), ["1.yaml:1:9: the name of a domain has at most 1024 bytes"]);
}
