//! `tidegate record` and `GET /api/v1/record`: a recording has no client values, and a replay of it decides as the
//! gateway did.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate::ListenAddress;
use tidegate::internals::replay_logs;

use crate::admin_api::{Admin, TOKEN};
use crate::handover::Socket;
use crate::replay_recorded::decisions;
use crate::support::process::{Program, RuleFile, output, tidegate};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::{soon, until};

pub const RULES: &str = "upstreams: { echo: { targets: ['builtin:echo'] } }
routes:
  - name: header
    match: { path: /header }
    upstream: echo
    limits:
      - { name: own, mode: PER_CLIENT, client: 'header:x-api-key', on_missing_client: ip, rate: 2, interval: 1h }
      - { name: cost, mode: OVERALL, permits: { header: x-cost, default: 1, max: 9 }, rate: 1000, interval: 1h }
  - name: cookie
    match: { path: /cookie }
    upstream: echo
    limits: [{ name: own, mode: PER_CLIENT, client: 'cookie:session', rate: 1, interval: 50ms, algorithm: sliding_window }]
  - name: query
    match: { path: '/query/{id}', query: { plan: [gold, free] } }
    upstream: echo
    limits: [{ name: own, mode: PER_CLIENT, client: ['query:user', path], rate: 2, interval: 1h }]
";

/// A file in the temporary folder of the tests. Dropping it removes the file.
pub struct Recorded(pub PathBuf);

impl Recorded {
    pub fn new(name: &str) -> Self {
        let name = format!("record-{name}-{}.jsonl", std::process::id());
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }

    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default()
    }

    /// Returns the requests.
    pub fn requests(&self) -> Vec<Value> {
        requests(&self.text())
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// Returns the requests of a recording. Each line is complete.
fn requests(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.is_empty());
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("a whole line"));
    lines.filter(|line| line["time"].is_u64()).collect()
}

/// Returns the mark in the last line with one.
pub fn last_mark(text: &str) -> Value {
    let mut lines = text.lines().rev().filter(|line| !line.is_empty());
    let mark = lines.find_map(|line| serde_json::from_str::<Value>(line).expect("JSON").get("recording").cloned());
    mark.expect("a mark")
}

/// Starts a recording by the program. Returns it when the gateway records.
pub async fn start(admin: &Admin, file: &Recorded, more: &[&str]) -> Program {
    start_at(&admin.gateway().admin_address().expect("an address").to_string(), file, more).await
}

pub async fn start_at(admin: &str, file: &Recorded, more: &[&str]) -> Program {
    let arguments = [&["record", "--admin", admin, "-o", file.path()], more].concat();
    let program = Program::start(tidegate(&arguments).env("TIDEGATE_TOKEN", TOKEN));
    until(|| file.text().ends_with('\n')).await;
    program
}

/// A stream of the API.
struct Stream {
    client: Raw,
    text: String,
}

impl Stream {
    async fn start(admin: &Admin, query: &str) -> Self {
        let mut client = connect(admin).await;
        client.send(request(query, &format!("Authorization: Bearer {TOKEN}\r\n"))).await;
        let head = soon(client.head()).await.expect("a response");
        assert_eq!((head.status(), head.field("content-type").as_deref()), (200, Some("application/x-ndjson")));
        let mut stream = Self { client, text: String::new() };
        stream.until(|text| text.contains("\"recording\"")).await;
        stream
    }

    /// Reads until the condition holds, or the stream ends.
    async fn until(&mut self, condition: impl Fn(&str) -> bool) {
        while !condition(&self.text) {
            let chunk = soon(self.client.chunk()).await.expect("a chunk");
            if chunk.is_empty() {
                return;
            }
            self.text.push_str(std::str::from_utf8(&chunk).expect("text"));
        }
    }
}

async fn connect(admin: &Admin) -> Raw {
    Raw::connect(admin.gateway().admin_address().and_then(ListenAddress::tcp).expect("an address")).await
}

fn request(query: &str, fields: &str) -> String {
    format!("GET /api/v1/record?{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n{fields}\r\n")
}

async fn ask(admin: &Admin, query: &str, fields: &str) -> Message {
    connect(admin).await.ask(request(query, fields)).await
}

/// Sends requests of several clients, in several spellings. Returns the number of requests.
async fn send_load(admin: &Admin) -> usize {
    let connections = (0..6).map(async |number: usize| {
        let address = admin.gateway().addresses()[0].tcp().expect("an address");
        let mut client = Raw::connect(address).await;
        for round in 0..20 {
            let secret = format!("secret-{}", (round + number) % 7);
            let (target, fields) = match round % 5 {
                0 => ("/header".to_owned(), format!("X-Api-Key: {secret}\r\nX-Cost: 1\r\nX-Other: secret-other\r\n")),
                1 => ("/header?token=secret-query".to_owned(), "Authorization: Bearer secret-token\r\n".to_owned()),
                2 | 3 => ("/cookie".to_owned(), format!("Cookie: other=secret-cookie; Session=\"{secret}\"\r\n")),
                _ => (format!("/query/%61?user={secret}&plan=gold&more=secret-more"), String::new()),
            };
            let request = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n");
            assert!([200, 429].contains(&client.ask(request).await.status()), "{target} {fields}");
        }
    });
    futures_util::future::join_all(connections).await;
    6 * 20
}

/// Returns how many decisions the replay counts for a limit.
fn replayed(report: &Value, limit: &str) -> [u64; 2] {
    ["allowed", "rejected"].map(|key| report["limits"][limit][key].as_u64().expect("a number"))
}

async fn replay_decides_as_the_gateway(name: &str, more: &str) {
    let admin = Admin::with_tokens(more);
    admin.reload(RULES);
    let file = Recorded::new(name);
    let program = start(&admin, &file, &[]).await;
    let sent = send_load(&admin).await;
    until(|| file.requests().len() == sent).await;
    program.signal("TERM");
    let (status, summary) = program.wait_for_exit();
    assert!(status.success() && summary.starts_with(&format!("recorded {sent} requests")), "{summary}");

    let text = file.text();
    assert!(text.ends_with('\n') && !text.contains("secret") && !text.contains("127.0.0.1"), "{text}");
    for replayed in replay_logs(RULES, std::slice::from_ref(&file.0)).expect("a replay") {
        let line = text.lines().nth(usize::try_from(replayed.line).expect("a number")).expect("a line");
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(replayed.admitted, line["status"] == 200, "{line}");
    }
    let rules = RuleFile::new(&format!("record-{name}"), RULES);
    let replay = output(&["replay", "-c", rules.path(), "--json", file.path()]);
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    let report: Value = serde_json::from_slice(&replay.stdout).expect("JSON");
    assert_eq!((&report["unparsed"], &report["requests"], &report["notes"]), (&json!(0), &json!(sent), &json!([])));
    let metrics = admin.metrics().await;
    for route in ["header", "cookie", "query"] {
        let [allowed, limited] = ["allowed", "limited"].map(|outcome| decisions(&metrics, route, outcome));
        // On a busy machine, the cookies are not sent fast enough.
        assert!(allowed > 0 && (limited > 0 || route == "cookie"), "{route}: {allowed} {limited}");
        assert_eq!(replayed(&report, &format!("{route}/own")), [allowed, limited], "{route}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_of_a_recording_decides_as_the_gateway_in_memory() {
    replay_decides_as_the_gateway("memory", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_of_a_recording_decides_as_the_gateway_in_redis() {
    let Some(redis) = RedisServer::start() else { return };
    replay_decides_as_the_gateway("redis", &format!("store: {}\n", redis.rule())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_needs_a_token_and_valid_parameters() {
    let admin = Admin::with_tokens("");
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(ask(&admin, "", "").await.status(), 401);
    assert_eq!(ask(&admin, "", "Authorization: Bearer 0123456789abcdef0123456789abcdeF\r\n").await.status(), 401);
    assert_eq!(ask(&admin, "", &format!("{token}Origin: http://evil.example\r\n")).await.status(), 403);
    for query in [
        "samples=1",
        "sample=0",
        "sample=-1",
        "sample=1.1",
        "sample=NaN",
        "sample=x",
        "sample=1&sample=1",
        "for=0s",
        "for=2d",
        "for=x",
        "client=ip",
        "client=header:",
        "client=header:a%20b",
        "client=cookie:%0a",
        "client=jwt:",
        &"client=query:a&".repeat(9),
    ] {
        let response = ask(&admin, query, &token).await;
        assert_eq!(response.status(), 400, "{query}: {}", response.text());
    }
    let streams = [Stream::start(&admin, "").await, Stream::start(&admin, "sample=0.5&for=1h").await];
    let more = [Stream::start(&admin, "client=header:x").await, Stream::start(&admin, "").await];
    assert_eq!(ask(&admin, "", &token).await.status(), 503);
    drop(more);
    // The gateway notices the closed connections.
    soon(async { while ask(&admin, "for=1ms", &token).await.status() != 200 {} }).await;
    let audit = admin.api("GET", "audit", "").await.1;
    let entries = audit.as_array().expect("a list");
    let id = last_mark(&streams[1].text)["id"].as_str().expect("an id").to_owned();
    let target = format!("{id}: 0.5 of the clients for 1h");
    let first = entries.iter().find(|entry| entry["target"] == *target).expect("an entry");
    assert_eq!(
        (&first["operator"], &first["action"], &first["outcome"]),
        (&json!("ann"), &json!("record"), &json!("done"))
    );
    drop(streams);
}

#[tokio::test]
async fn recording_over_tcp_is_forbidden_without_tokens() {
    let admin = Admin::start("127.0.0.1:0", "");
    assert_eq!(ask(&admin, "", &format!("Authorization: Bearer {TOKEN}\r\n")).await.status(), 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reader_delays_no_request_and_loses_lines() {
    let admin = Admin::with_tokens("");
    admin.reload(RULES);
    let mut stream = Stream::start(&admin, "").await;
    let mut client = Raw::connect(admin.gateway().addresses()[0].tcp().expect("an address")).await;
    // More than the queue and the buffers of the connection, and no more than a busy machine serves in 15 s: then the stream
    // of a client that reads nothing ends.
    let (sent, batch, long) = (1_000, 100, "a".repeat(8_000));
    let request = format!("GET /query/{long}?user=1 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    for _ in 0..sent / batch {
        client.send(request.repeat(batch)).await;
        client.responses(batch).await;
    }
    let dropped = |text: &str| text.rsplit("\"dropped\":").next()?.split(',').next()?.parse::<usize>().ok();
    let count = |text: &str| text.matches("{\"time\":").count() + dropped(text).expect("a number");
    // The gateway sends the number of dropped lines every five seconds.
    stream.until(|text| text.ends_with('\n') && count(text) >= sent).await;
    assert!(!requests(&stream.text).is_empty() && last_mark(&stream.text)["dropped"].as_u64() > Some(0));
    assert_eq!(count(&stream.text), sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sample_has_all_requests_of_a_client_or_none() {
    let admin = Admin::with_tokens("");
    admin.reload(RULES);
    let mut stream = Stream::start(&admin, "sample=0.5").await;
    for _ in 0..3 {
        for client in 0..64 {
            admin.request("/header", &format!("X-Api-Key: k{client}\r\n")).await;
        }
    }
    drop(admin);
    stream.until(|text| text.contains("\"end\":true")).await;
    let mut clients: HashMap<String, usize> = HashMap::new();
    for request in requests(&stream.text) {
        *clients.entry(request["headers"]["x-api-key"].to_string()).or_default() += 1;
    }
    assert!((1..64).contains(&clients.len()) && clients.values().all(|count| *count == 3), "{clients:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_ends_at_its_size_and_at_its_time() {
    let admin = Admin::with_tokens("");
    admin.reload(RULES);
    let file = Recorded::new("size");
    let program = start(&admin, &file, &["--max-size", "2KiB"]).await;
    let mut client = Raw::connect(admin.gateway().addresses()[0].tcp().expect("an address")).await;
    for _ in 0..40 {
        client.ask("GET /header HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    }
    let (status, summary) = program.wait_for_exit();
    let (text, requests) = (file.text(), file.requests().len());
    assert!(status.success() && summary.contains("ended at --max-size"), "{summary}");
    assert!(summary.starts_with(&format!("recorded {requests} requests in {} bytes", text.len())), "{summary}");
    assert!((1..40).contains(&requests) && text.len() <= 2_048 && text.ends_with('\n'), "{text}");

    let file = Recorded::new("time");
    let program = start(&admin, &file, &["--for", "100ms", "--client", "header:x-org"]).await;
    let (status, summary) = program.wait_for_exit();
    assert!(status.success(), "{summary}");
    let (first, mark) = (last_mark(file.text().lines().next().expect("a line")), last_mark(&file.text()));
    assert_eq!((&first["by"], &mark["end"], &mark["by"]), (&json!("header:x-org"), &json!(true), &json!(null)));
    assert!(mark["early"].is_null(), "{mark}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_recording_leaves_the_file_alone() {
    let admin = Admin::with_tokens("");
    let file = Recorded::new("rejected");
    std::fs::write(file.path(), "before").expect("written");
    let (code, _, errors) = admin.run(&["record", "-o", file.path()], None).await;
    assert_eq!((code, file.text().as_str()), (1, "before"), "{errors}");
    assert!(errors.contains("needs a token"), "{errors}");
    for arguments in [["--sample", "0"], ["--sample", "2"], ["--for", "soon"], ["--max-size", "1"]] {
        let (code, _, errors) = admin.run(&["record", arguments[0], arguments[1]], None).await;
        assert!(code == 2 && errors.contains(arguments[1]), "{errors}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_continues_with_the_rules_of_a_reload() {
    let admin = Admin::with_tokens("");
    admin.reload(RULES);
    let mut stream = Stream::start(&admin, "").await;
    admin.request("/header", "X-Api-Key: secret\r\nX-Org: secret\r\n").await;
    stream.until(|text| requests(text).len() == 1).await;
    admin.reload(&RULES.replace("header:x-api-key", "header:x-org"));
    admin.request("/header", "X-Api-Key: secret\r\nX-Org: secret\r\n").await;
    stream.until(|text| requests(text).len() == 2).await;
    let [before, after] = &requests(&stream.text)[..] else { panic!("two requests") };
    assert!(before["headers"]["x-api-key"].is_array() && before["headers"]["x-org"].is_null(), "{before}");
    assert!(after["headers"]["x-org"].is_array() && after["headers"]["x-api-key"].is_null(), "{after}");
    assert!(!stream.text.contains("secret"));
    let fields = stream.text.lines().filter(|line| line.contains("\"fields\"")).count();
    assert_eq!(fields, 2, "{}", stream.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_ends_with_its_token_and_with_the_gateway() {
    let admin = Admin::with_tokens("");
    let mut stream = Stream::start(&admin, "for=1d").await;
    std::fs::write(admin.folder.join("tokens"), "bob:fedcba9876543210fedcba9876543210\n").expect("written");
    // The gateway checks the token every five seconds.
    stream.until(|text| text.contains("\"end\":true")).await;
    assert_eq!(last_mark(&stream.text)["early"], true);

    std::fs::write(admin.folder.join("tokens"), format!("ann:{TOKEN}\n")).expect("written");
    let file = Recorded::new("end");
    let program = start(&admin, &file, &["--for", "1d"]).await;
    drop(admin);
    ends_early(program, &file);
}

/// Checks that the program reports that the gateway has ended its recording.
fn ends_early(program: Program, file: &Recorded) {
    let (status, summary) = program.wait_for_exit();
    assert!(status.code() == Some(2) && summary.contains("ended the recording early"), "{summary}");
    let mark = last_mark(&file.text());
    assert_eq!((&mark["end"], &mark["early"]), (&json!(true), &json!(true)));
}

#[tokio::test]
async fn recording_does_not_delay_a_handover() {
    let (socket, tokens, file) = (Socket::new("record"), Recorded::new("tokens"), Recorded::new("handover"));
    std::fs::write(tokens.path(), format!("ann:{TOKEN}\n")).expect("written");
    let admin = format!("admin: {{ address: '127.0.0.1:0', tokens: {{ file: {} }} }}", tokens.path());
    let rules = RuleFile::new("record-handover", &format!("listen: 127.0.0.1:0\n{admin}\n{RULES}"));
    let more = ["--drain-timeout", "3600", "--handover", socket.path()];
    let (old, _, admin) = Program::run(&rules, &more);
    let program = start_at(&admin.to_string(), &file, &["--for", "1d"]).await;
    let (_new, ..) = Program::run(&rules, &more);
    let (status, log) = old.wait_for_exit();
    assert!(status.success(), "{log}");
    ends_early(program, &file);
}

#[test]
fn replay_notes_samples_and_dropped_requests() {
    let file = Recorded::new("notes");
    let line = "{\"time\":1795521600137,\"client\":\"1.2.3.4\",\"method\":\"GET\",\"path\":\"/header\",\"status\":200,\
                \"route\":\"header\",\"headers\":{\"x-api-key\":[\"h1\"]}}\n";
    let mark = |more: &str| format!("{{\"recording\":{{\"sample\":0.1,\"fields\":[\"x-api-key\"]{more}}}}}\n");
    let text =
        [&mark(""), line, &mark(",\"dropped\":3"), &mark(""), line, &mark(",\"dropped\":2,\"end\":true")].concat();
    std::fs::write(file.path(), text).expect("written");
    let rules = RuleFile::new("record-notes", RULES);
    let replay = |command: &[&str]| {
        let replay = output(&[command, &["-c", rules.path(), "--json", file.path()]].concat());
        assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
        serde_json::from_slice::<Value>(&replay.stdout).expect("JSON")
    };
    let report = replay(&["replay"]);
    assert_eq!(
        (&report["requests"], &report["unparsed"], &report["formats"]),
        (&json!(2), &json!(0), &json!(["tidegate"]))
    );
    let notes = report["notes"].to_string();
    let sample = "is a sample of 10 % of the clients; these limits count only a part of their requests: header/cost\"";
    assert!(notes.contains(sample) && notes.contains("lacks 5 requests"), "{notes}");
    let whole = replay(&["suggest", "--limit", "header/own"])["notes"].to_string();
    assert!(whole.contains("is a sample of 10 % of the clients\""), "{whole}");
    let partly = replay(&["suggest", "--limit", "header/cost"])["notes"].to_string();
    assert!(partly.contains("count only a part of their requests: header/cost"), "{partly}");
}
