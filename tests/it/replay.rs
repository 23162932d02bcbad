//! `tidegate replay` and `tidegate suggest`: logs from files and standard input, their output, and their exit codes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use crate::support::process::{RuleFile, output, tidegate};

const RULES: &str = "
routes:
  - name: login
    match: { path: /login }
    limits: [{ name: per-ip, mode: PER_CLIENT, client: ip, rate: 3, interval: 1m }]
  - name: rest
    match: { path: /api/** }
    limits: [{ name: per-key, mode: PER_CLIENT, client: 'header:X-Key', rate: 1, interval: 1m }]
";

/// A log file. Dropping it removes the file.
struct LogFile(PathBuf);

impl LogFile {
    /// Writes a log. No other test may use `name`.
    fn new(name: &str, lines: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("replay-{name}-{}.log", std::process::id()));
        std::fs::write(&path, lines).expect("written");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// Returns a line in the Combined format, at this second of an hour.
fn line(second: u32, client: &str, path: &str) -> String {
    let (minute, second) = (second / 60, second % 60);
    let time = format!("24/Nov/2026:12:{minute:02}:{second:02} +0000");
    format!("{client} - - [{time}] \"GET {path} HTTP/1.1\" 200 512 \"-\" \"curl/8.5.0\"\n")
}

fn lines(requests: &[(u32, &str, &str)]) -> String {
    requests.iter().map(|(second, client, path)| line(*second, client, path)).collect()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[track_caller]
fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn replay(rules: &RuleFile, arguments: &[&str]) -> Output {
    output(&[&["replay", "-c", rules.path()], arguments].concat())
}

#[test]
fn replay_counts_the_decisions_of_each_limit() {
    let rules = RuleFile::new("replay-counts", RULES);
    let mut requests = vec![(0, "192.0.2.1", "/login"); 5];
    requests.extend([(1, "192.0.2.2", "/login"), (2, "192.0.2.2", "/none"), (3, "192.0.2.3", "/api/a")]);
    requests.extend([(61, "192.0.2.1", "/login"), (62, "192.0.2.1", "/%zz")]);
    let log = LogFile::new("counts", &lines(&requests));
    let report = json(&replay(&rules, &[log.path(), "--json"]));
    let totals = ["requests", "allowed", "rejected", "unmatched", "invalid", "unparsed"].map(|key| &report[key]);
    assert_eq!(totals, [10, 6, 2, 1, 1, 0]);
    let limit = &report["limits"]["login/per-ip"];
    assert_eq!([&limit["allowed"], &limit["rejected"], &limit["clients"], &limit["affected"]], [5, 2, 2, 1]);
    assert_eq!(limit["peak"], 1.0);
    assert_eq!((&limit["series"]["step"], &limit["series"]["requests"][0]), (&1_000.into(), &5.into()));
    let top = &limit["top"][0];
    assert_eq!((&top["client"], &top["count"]), (&"192.0.2.1".into(), &2.into()));
    assert_eq!(top["first"], "2026-11-24T12:00:00.000Z");
    assert_eq!(report["limits"]["rest/per-key"]["unknown"], 1);
    let notes = report["notes"].to_string();
    let note = "limit rest/per-key does not count 1 request: the log lacks the client, `header:x-key`";
    assert!(notes.contains(note), "{notes}");

    let table = replay(&rules, &[log.path()]);
    let table = text(&table.stdout);
    assert!(table.contains("10 requests: 6 allowed, 2 rejected, 1 match no route, 1 invalid"), "{table}");
    assert!(table.contains("1 of 2 (50%)") && table.contains("rejected most by login/per-ip"), "{table}");
}

/// Regression test: such a request also counted as a request without the client of an earlier limit.
#[test]
fn invalid_request_counts_for_no_limit() {
    let by_query = "{ name: per-k, mode: PER_CLIENT, client: 'query:k', rate: 1, interval: 1m }";
    let rules = RuleFile::new("replay-invalid", &format!("{}, {by_query}]\n", RULES.trim_end().trim_end_matches(']')));
    let log = LogFile::new("invalid", &lines(&[(0, "192.0.2.1", "/api/a?k=1"), (1, "192.0.2.1", "/api/a?k=1&k=2")]));
    let report = json(&replay(&rules, &[log.path(), "--json"]));
    assert_eq!([&report["allowed"], &report["invalid"], &report["limits"]["rest/per-key"]["unknown"]], [1, 1, 1]);
}

#[test]
fn logs_are_merged_by_time() {
    let rules = RuleFile::new("replay-merged", RULES);
    let odd = LogFile::new("odd", &lines(&[(1, "192.0.2.1", "/login"), (61, "192.0.2.1", "/login")]));
    let even = [(0, "192.0.2.1", "/login"), (3, "192.0.2.1", "/login"), (2, "192.0.2.1", "/login")];
    let even = LogFile::new("even", &lines(&even));
    for logs in [[odd.path(), even.path()], [even.path(), odd.path()]] {
        let report = json(&replay(&rules, &[logs[0], logs[1], "--json"]));
        assert_eq!([&report["allowed"], &report["rejected"], &report["late"]], [4, 1, 0]);
        assert_eq!(report["limits"]["login/per-ip"]["top"][0]["last"], "2026-11-24T12:00:03.000Z");
    }
}

#[test]
fn standard_input_is_a_log() {
    let rules = RuleFile::new("replay-stdin", RULES);
    let mut command = tidegate(&["replay", "-c", rules.path(), "--json", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("tidegate runs");
    let lines = lines(&[(0, "192.0.2.1", "/login"); 4]);
    child.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("written");
    let report = json(&child.wait_with_output().expect("output"));
    assert_eq!([&report["allowed"], &report["rejected"]], [3, 1]);
}

/// Runs a replay with a terminal as standard error. Returns its output, and the text that the terminal receives.
fn replay_on_terminal(rules: &RuleFile, arguments: &[&str]) -> (Output, String) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&terminal).expect("access to the terminal");
    unlockpt(&terminal).expect("an unlocked terminal");
    let name = ptsname(&terminal, Vec::new()).expect("a name");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let errors = rustix::fs::open(&name, flags, Mode::empty()).expect("the other end of the terminal");
    let mut command = tidegate(&[&["replay", "-c", rules.path()], arguments].concat());
    command.env("TERM", "xterm").stdout(Stdio::piped()).stderr(errors);
    let child = command.spawn().expect("tidegate runs");
    drop(command); // It holds the other end of the terminal.
    let mut shown = Vec::new();
    // The error at the end is usual: reading fails when the other end is closed.
    _ = File::from(terminal).read_to_end(&mut shown);
    let output = child.wait_with_output().expect("output");
    (output, text(&shown).to_owned())
}

#[test]
fn progress_is_shown_only_on_terminals() {
    let rules = RuleFile::new("replay-progress", RULES);
    let log = LogFile::new("progress", &lines(&[(0, "192.0.2.1", "/login"); 4]));
    let (output, shown) = replay_on_terminal(&rules, &[log.path(), "--json"]);
    assert_eq!(json(&output)["requests"], 4);
    let size = std::fs::metadata(log.path()).expect("a log").len();
    assert!(shown.contains(&format!("{size} B of {size} B")) && shown.contains("k lines/s"), "{shown:?}");
    // The last line is removed, so that output starts in an empty line.
    let (_, last) = shown.rsplit_once('\r').expect("a line that is drawn again");
    assert_eq!(last, "\x1b[2K", "{shown:?}");

    let (failed, shown) = replay_on_terminal(&rules, &["/nonexistent/access.log"]);
    assert_eq!((failed.status.code(), shown.starts_with("tidegate: cannot read")), (Some(2), true), "{shown:?}");
    let piped = replay(&rules, &[log.path()]);
    assert!(piped.status.success() && piped.stderr.is_empty(), "{}", text(&piped.stderr));
}

/// Each port that the Internet reaches gets such bytes: 4 % of these lines.
#[test]
fn scanner_noise_is_counted_as_invalid_requests() {
    let rules = RuleFile::new("replay-noise", RULES);
    let noise = |request: &str, status: u16| {
        format!("203.0.113.9 - - [24/Nov/2026:12:00:01 +0000] \"{request}\" {status} 157 \"-\" \"-\"\n")
    };
    let noise = [noise("- -", 400), noise(r"\x16\x03\x01", 400), noise("-", 408), noise("SSH-2.0-Go", 400)].concat();
    let log = LogFile::new("noise", &(noise + &lines(&[(2, "192.0.2.1", "/login"); 96])));
    let report = json(&replay(&rules, &[log.path(), "--json"]));
    let totals = ["requests", "allowed", "rejected", "invalid", "unparsed"].map(|key| &report[key]);
    assert_eq!(totals, [100, 3, 93, 4, 0]);
}

#[test]
fn text_logs_of_other_products_are_replayed() {
    let rules = RuleFile::new("replay-text", RULES);
    let iis = "#Software: Microsoft Internet Information Services 10.0\n#Fields: date time s-ip cs-method cs-uri-stem \
               cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status\n";
    let line = "2026-11-24 12:00:00 10.0.0.9 GET /login - 443 - 192.0.2.1 curl/8 - 200 0 0 15\n";
    let log = LogFile::new("iis", &format!("{iis}{}", line.repeat(5)));
    let format = "text:$date $time $server $request_method $uri $args $port $user $remote_addr $http_user_agent \
                  $http_referer $status $rest";
    let report = json(&replay(&rules, &["--format", format, log.path(), "--json"]));
    let totals = ["requests", "allowed", "rejected", "unparsed"].map(|key| &report[key]);
    assert_eq!(totals, [5, 3, 2, 0]);
    assert_eq!(report["first"], "2026-11-24T12:00:00.000Z");
    let failed = replay(&rules, &["--format", "text:$remote_addr $request", log.path()]);
    let message = text(&failed.stderr);
    assert_eq!((failed.status.code(), message.contains("the format has no time: add `$time_local`")), (Some(2), true));
}

#[test]
fn many_unparsed_lines_are_an_error() {
    let rules = RuleFile::new("replay-unparsed", RULES);
    let mut text_of_log = lines(&[(0, "192.0.2.1", "/login"); 97]);
    text_of_log.push_str("no\x1b[31m request\n");
    let few = LogFile::new("few", &text_of_log.repeat(2));
    let failed = replay(&rules, &[few.path()]);
    assert_eq!(failed.status.code(), Some(2));
    let message = text(&failed.stderr);
    assert!(message.contains("2 of 196 lines cannot be parsed"), "{message}");
    assert!(message.contains(&format!("{}:98: no\\x1b[31m request", few.path())), "{message}");
    let report = json(&replay(&rules, &[few.path(), "--lenient", "--json"]));
    assert_eq!([&report["unparsed"], &report["first_unparsed"]["line"]], [2, 98]);
    text_of_log.push_str(&lines(&[(0, "192.0.2.1", "/login"); 2]));
    let one = LogFile::new("one", &text_of_log);
    assert_eq!(json(&replay(&rules, &[one.path(), "--json"]))["unparsed"], 1);
}

#[test]
fn other_files_than_logs_are_errors() {
    let rules = RuleFile::new("replay-no-log", RULES);
    let missing = replay(&rules, &["/nonexistent/access.log"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("cannot read /nonexistent/access.log"));
    let prose = LogFile::new("prose", "This is a text.\nIt has two lines.\n");
    let unknown = replay(&rules, &[prose.path()]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("the format of"), "{}", text(&unknown.stderr));
    let empty = LogFile::new("empty", "");
    assert_eq!(json(&replay(&rules, &[empty.path(), "--json"]))["requests"], 0);
}

#[test]
fn against_counts_newly_rejected_and_newly_allowed_requests() {
    let rules = RuleFile::new("replay-first", RULES);
    let strict = RuleFile::new("replay-strict", &RULES.replace("rate: 3", "rate: 1"));
    let log = LogFile::new("against", &lines(&[(0, "192.0.2.1", "/login"); 5]));
    for (first, other, rejected, allowed) in [(&rules, &strict, 2, 0), (&strict, &rules, 0, 2)] {
        let report = json(&replay(first, &[log.path(), "--json", "--against", other.path()]));
        let against = &report["against"];
        assert_eq!([&against["newly_rejected"], &against["newly_allowed"]], [rejected, allowed]);
        assert_eq!(against["routes"]["login"]["newly_rejected"], rejected);
        assert_eq!(against["file"], other.path());
    }
    let table = replay(&rules, &[log.path(), "--against", strict.path()]);
    assert!(text(&table.stdout).contains("2 requests newly rejected, 0 newly allowed"));
}

/// 10,000 clients send two requests each, and three send two requests a second for some minutes.
fn abused_log() -> String {
    let mut requests: Vec<(u32, String)> = Vec::new();
    for client in 0..10_000_u32 {
        let address = format!("10.0.{}.{}", client / 250, client % 250 + 1);
        let second = client * 7_919 % 3_500;
        requests.push((second, address.clone()));
        requests.push((second + client % 97, address));
    }
    for (abuser, start) in [(1, 300), (2, 900), (3, 2_000)] {
        requests.extend((0..600).map(|request| (start + request / 2, format!("192.0.2.{abuser}"))));
    }
    requests.sort();
    let mut log = String::new();
    for (second, client) in &requests {
        _ = write!(log, "{}", line(*second, client, "/login"));
    }
    log
}

#[test]
fn three_abusers_among_10_000_clients_are_found() {
    let rules = RuleFile::new("replay-abusers", &RULES.replace("rate: 3", "rate: 30"));
    let log = LogFile::new("abusers", &abused_log());
    let abusers = BTreeSet::from(["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
    let names = |top: &Value| -> Vec<String> {
        top.as_array().expect("clients").iter().map(|one| one["client"].as_str().expect("text").to_owned()).collect()
    };

    let report = json(&replay(&rules, &[log.path(), "--json"]));
    let limit = &report["limits"]["login/per-ip"];
    assert_eq!(names(&limit["top"]).iter().map(String::as_str).collect::<BTreeSet<_>>(), abusers);
    assert_eq!(limit["clients"], 10_003);

    let suggest = ["suggest", "-c", rules.path(), "--limit", "login/per-ip", "--json", log.path()];
    let suggestion = json(&output(&suggest));
    let proposed = &suggestion["proposed"];
    let number = |key: &str| proposed[key].as_u64().expect("a number");
    assert_eq!(number("abusers"), 3);
    assert!(names(&suggestion["top"]).iter().take(3).all(|name| abusers.contains(name.as_str())), "{suggestion}");
    assert!(number("clients") - 3 <= 10, "{proposed}");
    assert!(number("requests") > 1_000, "{proposed}");

    // The snippet is valid, and its limit rejects the abusers.
    let snippet = suggestion["snippet"].as_str().expect("text");
    let limits = format!("routes:\n  - name: login\n    match: {{ path: /login }}\n    limits:\n      {snippet}\n");
    let proposed_rules = RuleFile::new("replay-proposed", &limits);
    let report = json(&replay(&proposed_rules, &[log.path(), "--json"]));
    let limit = &report["limits"]["login/per-ip"];
    assert_eq!(
        (limit["rejected"].as_u64(), limit["affected"].as_u64()),
        (proposed["requests"].as_u64(), proposed["clients"].as_u64())
    );
}

#[test]
fn suggestion_has_a_snippet_for_the_rule_file() {
    let rules = RuleFile::new("suggest-text", RULES);
    let mut requests: Vec<_> = (0..20).map(|second| (second, "192.0.2.1", "/login")).collect();
    requests.extend([(30, "192.0.2.2", "/login"), (40, "192.0.2.3", "/login"), (50, "192.0.2.4", "/login")]);
    let log = LogFile::new("suggest-text", &lines(&requests));
    let suggestion = output(&["suggest", "-c", rules.path(), "--limit", "login/per-ip", log.path()]);
    let suggestion = text(&suggestion.stdout);
    assert!(suggestion.contains("one of them is an abuser: 1 by demand"), "{suggestion}");
    let proposal = "proposed: 1 per 10s. It rejects 1 of 1 abusers and 0 other clients";
    assert!(suggestion.contains(proposal), "{suggestion}");
    let snippet = "- { name: per-ip, mode: PER_CLIENT, client: ip, rate: 1, interval: 10s }";
    assert!(suggestion.ends_with(&format!("{snippet}\n")), "{suggestion}");
}

#[test]
fn suggest_needs_a_known_limit_with_requests() {
    let rules = RuleFile::new("suggest-limit", RULES);
    let log = LogFile::new("suggest-limit", &lines(&[(0, "192.0.2.1", "/login")]));
    let suggest = |limit: &str| output(&["suggest", "-c", rules.path(), "--limit", limit, log.path()]);
    let unknown = suggest("login/other");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("the limits are login/per-ip, rest/per-key"));
    let unused = suggest("rest/per-key");
    assert_eq!(unused.status.code(), Some(2));
    assert!(text(&unused.stderr).contains("no request of the logs is counted by `rest/per-key`"));
    let stdin = output(&["suggest", "-c", rules.path(), "--limit", "login/per-ip", "-"]);
    assert_eq!(stdin.status.code(), Some(2));
}

/// The entry is in an included file, and its placeholder stays.
#[test]
fn suggestion_keeps_the_entry_of_an_included_file() {
    let limit = "{ name: per-ip, mode: PER_CLIENT, client: ip, rate: 3, interval: 1m, algorithm: sliding_window, \
                 segments: 6, on_store_failure: \"${MODE:-allow}\" }";
    let included = format!("routes:\n  - name: login\n    match: {{ path: /login }}\n    limits:\n      - {limit}\n");
    let included = RuleFile::new("suggest-included", &included);
    let rules = RuleFile::new("suggest-including", &format!("include: [{}]\nroutes: []\n", included.path()));
    let log = LogFile::new("suggest-included", &lines(&[(0, "192.0.2.1", "/login"), (9, "192.0.2.2", "/login")]));
    let suggestion = json(&output(&["suggest", "-c", rules.path(), "--limit", "login/per-ip", "--json", log.path()]));
    let expected = format!("- {}", limit.replace("rate: 3", "rate: 1"));
    assert_eq!(suggestion["snippet"], expected, "{suggestion}");
    assert!(
        suggestion["candidates"]
            .as_array()
            .is_some_and(|all| all.iter().all(|one| one["algorithm"] == "sliding_window"))
    );
}

#[test]
fn invalid_options_of_suggest_are_errors() {
    let rules = RuleFile::new("suggest-options", RULES);
    let log = LogFile::new("suggest-options", &lines(&[(0, "192.0.2.1", "/login")]));
    let suggest = |option: &str, value: &str| {
        let failed = output(&["suggest", "-c", rules.path(), "--limit", "login/per-ip", option, value, log.path()]);
        (failed.status.code(), text(&failed.stderr).to_owned())
    };
    for (option, value, message) in [
        ("--group", "10.0.0.0/8", "is not a network with a number of people"),
        ("--group", "10.0.0.0/8=0", "is not a network with a number of people"),
        ("--group", "ten=5", "`ten` is not an address or a network"),
        ("--exclude", "10.0.0.0/99", "is not an address or a network"),
        ("--failures", "999", "`999` is not a status"),
        ("--tier", "pro", "has no tier `pro`; it has no tiers"),
        ("--host", "a b", "is not a host"),
    ] {
        let (code, errors) = suggest(option, value);
        assert!(code == Some(2) && errors.contains(message), "{option} {value}: {errors}");
    }
}

#[test]
fn host_of_a_log_without_hosts_is_an_option() {
    let with_host = RULES.replace("path: /login }", "path: /login, host: [www.example.com, example.com] }");
    let rules = RuleFile::new("replay-host", &with_host);
    let log = LogFile::new("host", &lines(&[(0, "192.0.2.1", "/login"); 5]));
    let report = json(&replay(&rules, &[log.path(), "--json"]));
    assert_eq!([&report["unmatched"], &report["allowed"]], [5, 0]);
    let note = "5 requests of the log have no host, which route `login` matches: set it with --host";
    assert!(report["notes"].as_array().is_some_and(|notes| notes.contains(&note.into())), "{report}");
    for (host, unmatched) in [("www.example.com", 0), ("WWW.example.com:443", 0), ("other.example.com", 5)] {
        let report = json(&replay(&rules, &[log.path(), "--json", "--host", host]));
        assert_eq!((&report["unmatched"], report["notes"].to_string().contains("--host")), (&unmatched.into(), false));
    }
    let suggest = ["suggest", "-c", rules.path(), "--limit", "login/per-ip", log.path()];
    let failed = output(&suggest);
    assert!(failed.status.code() == Some(2) && text(&failed.stderr).contains(note), "{}", text(&failed.stderr));
    assert!(output(&[&suggest[..], &["--host", "example.com"]].concat()).status.success());
}

#[test]
fn html_page_is_written_to_a_file() {
    let rules = RuleFile::new("replay-html", RULES);
    let log = LogFile::new("html", &(lines(&[(0, "192.0.2.1", "/login"); 5]) + "<script>\n"));
    let page = LogFile::new("html-page", "");
    let written = replay(&rules, &[log.path(), "--lenient", "--html", page.path()]);
    assert!(written.status.success() && text(&written.stdout).contains("login/per-ip"), "{}", text(&written.stderr));
    let html = std::fs::read_to_string(page.path()).expect("a page");
    assert!(html.starts_with("<!doctype html>") && html.contains("192.0.2.1") && html.contains("&lt;script&gt;"));
    let failed = replay(&rules, &[log.path(), "--lenient", "--html", "/nowhere/page.html"]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(text(&failed.stderr).contains("/nowhere/page.html"), "{}", text(&failed.stderr));
}
