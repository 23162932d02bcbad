//! A replay of recorded requests, in which hashes replace the values, decides as the gateway that received the values.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::admin_api::Admin;
use crate::support::process::{RuleFile, output};

const RULES: &str = "upstreams: { echo: { targets: ['builtin:echo'] } }
routes:
  - name: header
    match: { path: /header }
    upstream: echo
    limits: [{ name: own, mode: PER_CLIENT, client: 'header:X-Api-Key', rate: 2, interval: 1h }]
  - name: cookie
    match: { path: /cookie }
    upstream: echo
    limits: [{ name: own, mode: PER_CLIENT, client: 'cookie:session', rate: 2, interval: 1h }]
  - name: query
    match: { path: /query }
    upstream: echo
    limits: [{ name: own, mode: PER_CLIENT, client: 'query:user', rate: 2, interval: 1h }]
";
/// The time of all lines, in milliseconds.
const TIME: u64 = 1_795_521_600_137;
const ROUTES: [&str; 3] = ["header", "cookie", "query"];

/// A file of recorded requests. Dropping it removes the file.
struct Recording(PathBuf);

impl Drop for Recording {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// Returns the same text for the same value.
fn masked(value: &str) -> String {
    blake3::hash(value.as_bytes()).to_hex()[..16].to_owned()
}

/// Returns the target, the name and the value of the header field, for a client with this value.
fn request(route: &str, value: &str) -> (String, &'static str, String) {
    match route {
        "header" => ("/header".to_owned(), "x-api-key", value.to_owned()),
        "cookie" => ("/cookie".to_owned(), "cookie", format!("session={value}")),
        _ => (format!("/query?user={value}"), "accept", "*/*".to_owned()),
    }
}

/// Returns the line of a request.
fn line(route: &str, value: &str, status: u16) -> String {
    let (path, name, field) = request(route, &masked(value));
    let line = json!({
        "time": TIME, "client": "127.0.0.1", "method": "GET", "path": path, "host": "a.example", "status": status,
        "route": route, "headers": { name: field },
    });
    format!("{line}\n")
}

/// Returns how many decisions of the route's limit had this outcome.
pub fn decisions(metrics: &str, route: &str, outcome: &str) -> u64 {
    let labels = [format!("route=\"{route}\""), "limit=\"own\"".to_owned(), format!("outcome=\"{outcome}\"")];
    let mut lines = metrics.lines().filter(|line| line.starts_with("tidegate_decisions_total{"));
    let line = lines.find(|line| labels.iter().all(|label| line.contains(label.as_str()))).expect("a series");
    line.rsplit(' ').next().expect("a value").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_requests_are_decided_as_by_the_gateway() {
    let admin = Admin::with_tokens("");
    admin.reload(RULES);
    let mut lines = String::new();
    for route in ROUTES {
        for (value, count) in [("secret-1", 5), ("secret-2", 1), ("secret-3", 3)] {
            for _ in 0..count {
                let (target, name, field) = request(route, value);
                let status = admin.request(&target, &format!("{name}: {field}\r\n")).await.status();
                lines.push_str(&line(route, value, status));
            }
        }
    }
    assert!(!lines.contains("secret-"), "{lines}");
    let name = format!("recorded-{}.jsonl", std::process::id());
    let recording = Recording(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
    std::fs::write(&recording.0, &lines).expect("written");

    let rules = RuleFile::new("replay-recorded", RULES);
    let file = recording.0.to_str().expect("a path in UTF-8");
    let replayed = output(&["replay", "-c", rules.path(), "--json", file]);
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    let report: Value = serde_json::from_slice(&replayed.stdout).expect("JSON");
    assert_eq!((&report["formats"], &report["unparsed"]), (&json!(["tidegate"]), &json!(0)), "{report}");
    let metrics = admin.metrics().await;
    for route in ROUTES {
        let limit = &report["limits"][format!("{route}/own")];
        let [allowed, limited] = ["allowed", "limited"].map(|outcome| decisions(&metrics, route, outcome));
        assert_eq!((allowed, limited), (5, 4), "{route}");
        assert_eq!((&limit["allowed"], &limit["rejected"]), (&json!(allowed), &json!(limited)), "{limit}");
        assert_eq!((&limit["clients"], &limit["affected"]), (&json!(3), &json!(2)), "{limit}");
    }
}
