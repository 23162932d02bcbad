//! `tidegate diff`: its output and its exit codes.

use std::fs;
use std::path::Path;

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

#[test]
fn copies_of_a_folder_are_equal() {
    let rules = "
listen: [{ address: 127.0.0.1:8080, tls: { certificates: [{ cert: a.pem, key: a.key }], client_auth: { ca: ca.pem } } }]
access_log: logs/access.log
admin: { address: 127.0.0.1:9901, tokens: { file: tokens.txt } }
store: { url: 'rediss://db', tls: { ca: redis.pem }, password_file: redis.password }
identities: { keys: { header: X-Api-Key, file: keys.yaml }, basic: { file: users } }
include: { path: teams/a.yaml, upstreams: own }
upstreams: { api: { targets: ['https://a'], tls: { ca: b.pem } } }
routes: [{ name: all, match: { path: /x }, upstream: api }]
";
    let team = "upstreams: { own: { targets: ['https://a'], tls: { ca: own.pem } } }
routes: [{ name: all, match: { path: /team }, upstream: own }]\n";
    let write = |name: &str, rules: &str| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("diff-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("teams")).expect("a folder");
        fs::write(folder.join("teams/a.yaml"), team).expect("written");
        fs::write(folder.join("rules.yaml"), rules).expect("written");
        folder
    };
    let compare = |old: &Path, new: &Path| {
        let paths = [old, new].map(|folder| folder.join("rules.yaml").to_str().expect("UTF-8").to_owned());
        let output = output(&["diff", &paths[0], &paths[1]]);
        String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8")
    };
    let blue = write("blue", rules);
    // An absolute path in its own folder is the same file.
    let green = write("green", rules);
    let absolute = format!("'{}'", green.join("b.pem").display());
    write("green", &rules.replace("b.pem", &absolute));
    assert_eq!(compare(&blue, &green), "no changes\n");
    let other = write("other", &rules.replace("b.pem", "/etc/b.pem").replace("tokens.txt", "more.txt"));
    assert_eq!(compare(&blue, &other), "upstream api: changed (tls)\nsetting admin.tokens: changed\n");
    for folder in [blue, green, other] {
        fs::remove_dir_all(folder).expect("removed");
    }
}
