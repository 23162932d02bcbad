//! The values of a recording by name, and the notes of `tidegate record` and `tidegate replay` about other values.

use std::io::BufRead;

use serde_json::{Value, json};

use crate::admin_api::Admin;
use crate::record::{RULES, Recorded, last_mark, start};
use crate::support::process::{RuleFile, output};
use crate::support::wire::until;

/// Rules that read other values than [`RULES`].
const OTHER: &str = "upstreams: { echo: { targets: ['builtin:echo'] } }
routes:
  - name: near
    match: { path: /header, clients: [192.0.2.0/24], headers: { x-cost: '7' } }
    upstream: echo
    limits: [{ name: own, mode: PER_CLIENT, client: ['header:x-api-key', 'header:x-org'], rate: 2, interval: 1h }]
  - name: header
    match: { path: /header }
    upstream: echo
    limits:
      - { name: own, mode: PER_CLIENT, client: ['cookie:org', 'query:org'], rate: 2, interval: 1h }
      - { name: all, mode: OVERALL, rate: 9, interval: 1h }
";

/// Returns the report of a replay.
fn replay(rules: &RuleFile, file: &Recorded, more: &[&str]) -> Value {
    let replay = output(&[&["replay", "-c", rules.path(), "--json", file.path()], more].concat());
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    serde_json::from_slice(&replay.stdout).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_notes_what_a_recording_lacks_for_its_rules() {
    let admin = Admin::with_tokens("");
    admin.reload(RULES);
    let file = Recorded::new("lacks");
    let program = start(&admin, &file, &[]).await;
    admin.request("/header", "X-Api-Key: secret\r\nX-Org: secret\r\n").await;
    until(|| file.requests().len() == 1).await;
    program.signal("TERM");
    let (status, summary) = program.wait_for_exit();
    assert!(status.success() && !summary.contains("note"), "{summary}");

    let [same, other] = [("record-same", RULES), ("record-other", OTHER)].map(|(name, text)| RuleFile::new(name, text));
    let notes = [
        "the log has no field `x-org`, which the rules read".to_owned(),
        format!("{} lacks `cookie:org`, which the rules read", file.path()),
        format!("{} lacks `query:org`, which the rules read", file.path()),
        format!("{} lacks the addresses of a network, which the rules read", file.path()),
        format!("{} lacks values of conditions on `header:x-cost`, which the rules read", file.path()),
    ];
    assert_eq!(replay(&same, &file, &[])["notes"], json!([]));
    let of_other = replay(&other, &file, &[]);
    let shown: Vec<_> = of_other["notes"].as_array().expect("notes").iter().filter_map(Value::as_str).collect();
    assert!(notes.iter().all(|note| shown.contains(&&**note)), "{shown:#?}");
    assert_eq!(shown.iter().filter(|note| note.ends_with("which the rules read")).count(), notes.len(), "{shown:#?}");
    let against = replay(&same, &file, &["--against", other.path()]);
    assert_eq!((&against["notes"], &against["against"]["notes"]), (&json!([]), &of_other["notes"]));
    let text = output(&["replay", "-c", same.path(), "--against", other.path(), file.path()]);
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(notes.iter().all(|note| text.contains(&format!("note: {}: {note}\n", other.path()))), "{text}");
}

#[test]
fn replay_notes_a_sample_for_both_rule_files() {
    let file = Recorded::new("sampled");
    let line = "{\"time\":1795521600137,\"client\":\"1.2.3.4\",\"method\":\"GET\",\"path\":\"/header\",\"status\":200,\
                \"headers\":{\"x-api-key\":[\"h1\"]}}\n";
    let mark = |end: bool| format!("{{\"recording\":{{\"sample\":0.1,\"end\":{end}}}}}\n");
    std::fs::write(file.path(), [&mark(false), line, &mark(true)].concat()).expect("written");
    let [rules, other] =
        [("sample-first", RULES), ("sample-other", OTHER)].map(|(name, text)| RuleFile::new(name, text));
    let report = replay(&rules, &file, &["--against", other.path()]);
    let notes = |report: &Value| report["notes"].to_string();
    assert!(notes(&report).contains("a part of their requests: header/cost\""), "{report}");
    assert!(notes(&report["against"]).contains("a part of their requests: header/all\""), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_notes_at_its_start_what_it_lacks() {
    let admin = Admin::with_tokens("");
    let rules = RULES.replace("'header:x-api-key'", "'header:cookie'");
    admin.reload(&rules);
    let file = Recorded::new("start");
    let mut program = start(&admin, &file, &[]).await;
    let mut note = String::new();
    program.stderr.read_line(&mut note).expect("text");
    assert_eq!(note, "note: the recording lacks `header:cookie`, which the rules read\n");
    let lacks = file.text().lines().next().map(str::to_owned);
    assert_eq!(last_mark(&lacks.expect("a line"))["lacks"], json!(["`header:cookie`"]));
    program.signal("TERM");
    assert!(program.wait_for_exit().0.success());
    let rules = RuleFile::new("record-cookie", &rules);
    let notes = replay(&rules, &file, &[])["notes"].to_string();
    assert!(notes.contains("lacks `header:cookie`"), "{notes}");
}
