//! `tidegate diff`: its output and its exit codes.

use crate::support::process::{RuleFile, output};

const RULES: &str = "
listen: 127.0.0.1:8080
upstreams: { api: { targets: ['builtin:echo'] } }
routes:
  - name: all
    match: { path: /** }
    upstream: api
    limits: [{ name: total, mode: OVERALL, rate: 5, interval: 1m }]
";

/// Returns the exit code, standard output and standard error of `tidegate diff`.
fn diff(old: &RuleFile, new: &RuleFile, more: &[&str]) -> (i32, String, String) {
    let output = output(&[&["diff", old.path(), new.path()], more].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("an exit code"), text(output.stdout), text(output.stderr))
}

#[test]
fn exit_code_is_one_if_a_reload_changes_something() {
    let old = RuleFile::new("diff-old", RULES);
    let new = RuleFile::new("diff-new", &RULES.replace("rate: 5", "rate: 7"));
    assert_eq!(diff(&old, &old, &[]), (0, "no changes\n".to_owned(), String::new()));
    let line = "limit all/total: changed (rate), 5 per 1m (token_bucket) -> 7 per 1m (token_bucket), permits in use \
                are kept\n";
    assert_eq!(diff(&old, &new, &[]), (1, line.to_owned(), String::new()));
}

#[test]
fn json_has_the_rates_and_the_permits_in_use() {
    let old = RuleFile::new("diff-json-old", RULES);
    let new = RuleFile::new("diff-json-new", &RULES.replace("OVERALL", "PER_CLIENT, client: ip"));
    let (code, json, _) = diff(&old, &new, &["--json"]);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(code, 1);
    assert_eq!(value["limits"][0]["new"]["rate"], 5);
    assert_eq!(value["limits"][0]["permits"], "empty");
    assert_eq!(value["routes_reordered"], false);
    let (code, json, _) = diff(&old, &old, &["--json"]);
    assert_eq!(code, 0);
    assert!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON")["limits"].as_array().unwrap().is_empty());
}

#[test]
fn invalid_file_is_reported_with_its_line() {
    let old = RuleFile::new("diff-valid", RULES);
    let new = RuleFile::new("diff-invalid", &RULES.replace("rate: 5", "rate: 0"));
    let (code, out, errors) = diff(&old, &new, &[]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(errors.starts_with(&format!("{}:8:", new.path())) && errors.contains("rate"), "{errors}");
}
