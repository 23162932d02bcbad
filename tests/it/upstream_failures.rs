//! Failing upstreams in the log of the process, the access log and the counters.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::support::gateway::get;
use crate::support::process::{Program, RuleFile};
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::soon;
use crate::support::wire::upstream::{Origin, OriginConnection};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A gateway as a process, with one upstream `api`.
struct Gateway {
    program: Program,
    address: SocketAddr,
    admin: SocketAddr,
    _file: RuleFile,
}

/// The lines of a gateway that has ended.
struct Log {
    access: Vec<Value>,
    process: Vec<Value>,
}

impl Gateway {
    fn start(name: &str, upstream: &str) -> Self {
        Self::start_with(name, upstream, "routes: [{ name: all, match: { path: /** }, upstream: api }]\n")
    }

    fn start_with(name: &str, upstream: &str, routes: &str) -> Self {
        let rules = format!(
            "listen: 127.0.0.1:0
admin: 127.0.0.1:0
access_log: stdout
upstreams: {{ api: {{ {upstream} }} }}
{routes}"
        );
        let file = RuleFile::new(name, &rules);
        let (program, address, admin) = Program::run(&file, &["--log-format", "json", "--workers", "2"]);
        Self { program, address, admin, _file: file }
    }

    async fn get(&self, path: &str) -> Message {
        get(&mut Raw::connect(self.address).await, path, "").await
    }

    async fn attempts(&self, target: &str, outcome: &str) -> u64 {
        let labels = format!("upstream=\"api\",target=\"{target}\",outcome=\"{outcome}\"");
        let series = format!("tidegate_upstream_attempts_total{{{labels}}} ");
        let page = get(&mut Raw::connect(self.admin).await, "/metrics", "").await.text();
        page.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap_or(0)
    }

    async fn end(self) -> Log {
        self.program.signal("TERM");
        let (status, text) = tokio::task::spawn_blocking(|| self.program.wait_for_exit()).await.expect("an end");
        assert!(status.success(), "{text}");
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let (access, process) = lines.partition(|line| line.get("method").is_some());
        Log { access, process }
    }
}

impl Log {
    /// Returns the lines of the process with this message.
    fn messages(&self, message: &str) -> Vec<&Value> {
        self.process.iter().filter(|line| line["message"] == message).collect()
    }
}

/// Asks an upstream once, which fails. Returns the response, the access line and the line of the process.
async fn fail_once(name: &str, target: &str, more: &str) -> (Message, Value, Value) {
    let gateway = Gateway::start(name, &format!("targets: ['{target}'], retry: off{more}"));
    let response = gateway.get("/").await;
    let log = gateway.end().await;
    let failures = log.messages("upstream target fails");
    assert_eq!((log.access.len(), failures.len()), (1, 1), "{:?} {:?}", log.access, log.process);
    let (access, failure) = (log.access[0].clone(), failures[0].clone());
    for line in [&access, &failure] {
        assert_eq!((&line["upstream"], &line["target"]), (&"api".into(), &target.into()), "{line}");
    }
    assert_eq!((&failure["level"], &failure["failures"]), (&"WARN".into(), &1.into()), "{failure}");
    (response, access, failure)
}

#[tokio::test]
async fn dead_target_is_logged_while_another_answers() {
    let (live, dead) = (Origin::with_response(OK).await, Origin::closed_port());
    let gateway = Gateway::start("one-dead", &format!("targets: ['http://{}', 'http://{dead}']", live.address));
    for _ in 0..200 {
        assert_eq!(gateway.get("/").await.status(), 200);
    }
    let (live, dead) = (format!("http://{}", live.address), format!("http://{dead}"));
    assert_eq!(gateway.attempts(&live, "ok").await, 200);
    let failed = gateway.attempts(&dead, "connect_failed").await;
    assert!((1..=2).contains(&failed), "{failed}"); // the target is ejected after two
    let log = gateway.end().await;
    let lines = log.messages("upstream target fails");
    assert_eq!(lines.len(), 1, "{:?}", log.process);
    assert_eq!((&lines[0]["target"], &lines[0]["phase"]), (&dead.as_str().into(), &"connect".into()));
    assert!(lines[0]["error"].as_str().is_some_and(|error| error.contains("refused")), "{:?}", lines[0]);
    assert!(log.access.iter().all(|line| line["target"] == live.as_str() && line["reason"].is_null()));
}

#[tokio::test]
async fn unresolvable_name_is_logged_at_warn() {
    let (response, access, failure) = fail_once("unresolvable", "http://nowhere.invalid:9000", "").await;
    assert_eq!((response.status(), &access["reason"]), (502, &"resolve_failed".into()), "{access}");
    assert_eq!(failure["phase"], "resolve", "{failure}");
    let error = failure["error"].as_str().expect("a text");
    assert_eq!(error, "no address of `nowhere.invalid:9000` is known");
}

#[tokio::test]
async fn timeout_of_an_upstream_is_logged() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        _ = conn.raw.closed().await;
    })
    .await;
    let target = format!("http://{}", origin.address);
    let (response, access, failure) = fail_once("times-out", &target, ", timeouts: { response: 50ms }").await;
    assert_eq!((response.status(), &access["reason"]), (504, &"timeout".into()), "{access}");
    assert_eq!((&failure["phase"], &failure["error"]), (&"response".into(), &"no response within 50ms".into()));
}

#[tokio::test]
async fn closed_and_invalid_responses_have_different_reasons() {
    let closed = Origin::start(|mut conn: OriginConnection| async move { _ = conn.request().await }).await;
    let (response, access, failure) = fail_once("closes", &format!("http://{}", closed.address), "").await;
    assert_eq!((response.status(), &access["reason"]), (502, &"closed".into()), "{access} {failure}");
    let invalid = Origin::with_response("no HTTP\r\n\r\n").await;
    let (response, access, failure) = fail_once("invalid", &format!("http://{}", invalid.address), "").await;
    assert_eq!((response.status(), &access["reason"]), (502, &"response_version".into()), "{access} {failure}");
    assert_eq!(failure["error"], "the response does not begin with HTTP/1.0 or HTTP/1.1");
}

/// Regression test: the cause was always `invalid_response`, and five such responses of one resource ejected the target for
/// all clients.
#[tokio::test]
async fn invalid_responses_name_their_cause_and_eject_no_target() {
    let fields = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-a: b\r\n".repeat(count));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
    let responses = Arc::new([
        ("ICY 200 OK\r\n\r\n".to_owned(), "response_version"),
        ("HTTP/1.1 200 OK\nContent-Length: 0\n\n".to_owned(), "response_line_feed"),
        (fields(101), "response_max_fields"),
        (format!("HTTP/1.1 200 OK\r\nx-a: {}", "x".repeat(70_000)), "response_max_field_bytes"),
        (format!("{chunked}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "response_framing"),
        (format!("{chunked}\r\nx\r\n"), "response_framing"),
        ("HTTP/1.1 200 OK\r\nno field\r\n\r\n".to_owned(), "invalid_response"),
    ]);
    let start = || {
        let responses = Arc::clone(&responses);
        Origin::start(move |mut conn: OriginConnection| {
            let responses = Arc::clone(&responses);
            async move {
                while let Some(request) = conn.request().await {
                    let number =
                        request.start.trim_start_matches("GET /").split(' ').next().and_then(|n| n.parse().ok());
                    let response = number.map_or(OK, |number: usize| &responses[number].0);
                    _ = conn.raw.stream.write_all(response.as_bytes()).await;
                }
            }
        })
    };
    let origins = [start().await, start().await];
    let targets = origins.each_ref().map(|origin| format!("http://{}", origin.address));
    let upstream =
        format!("targets: ['{}', '{}'], balance: round_robin, eject: {{ after: 1 }}", targets[0], targets[1]);
    let gateway = Gateway::start("invalid-responses", &upstream);
    for number in 0..responses.len() {
        assert_eq!(gateway.get(&format!("/{number}")).await.status(), 502, "{number}");
    }
    for _ in 0..8 {
        assert_eq!(gateway.get("/").await.status(), 200);
    }
    for target in &targets {
        assert!(gateway.attempts(target, "ok").await > 0, "{target} gets requests");
    }
    let framing = gateway.attempts(&targets[0], "response_framing").await;
    assert_eq!(framing + gateway.attempts(&targets[1], "response_framing").await, 2);
    let log = gateway.end().await;
    let reasons = log.access.iter().filter_map(|line| line["reason"].as_str()).collect::<Vec<_>>();
    assert_eq!(reasons, responses.each_ref().map(|(_, reason)| *reason));
}

#[tokio::test]
async fn failed_tls_handshake_is_logged() {
    let plaintext = Origin::with_response(OK).await;
    let target = format!("https://{}", plaintext.address);
    let (response, access, failure) = fail_once("no-tls", &target, ", tls: { verify: false }").await;
    assert_eq!((response.status(), &access["reason"]), (502, &"tls_failed".into()), "{access}");
    assert_eq!(failure["phase"], "tls", "{failure}");
}

/// Regression test: the line had neither, so the response seemed to come from the upstream.
#[tokio::test]
async fn response_without_usable_target_has_its_reason_and_upstream() {
    let closed = Origin::closed_port();
    let health = "health: { path: /, interval: 100ms, fall: 1, panic: 0% }";
    let gateway = Gateway::start("no-target", &format!("targets: ['http://{closed}'], {health}"));
    soon(async { while gateway.get("/").await.status() != 503 {} }).await;
    let log = gateway.end().await;
    let line = log.access.iter().find(|line| line["status"] == 503).expect("a line");
    assert_eq!(
        (&line["reason"], &line["upstream"], &line["target"]),
        (&"no_usable_target".into(), &"api".into(), &Value::Null),
        "{line}"
    );
}

/// The rule file chooses the status, so the line names it as the reason.
#[tokio::test]
async fn server_errors_of_the_rule_file_have_a_reason() {
    let routes = "routes:
  - { name: down, match: { path: /down }, respond: { status: 503 } }
  - name: rejected
    match: { path: /rejected }
    upstream: api
    reject: { status: 503, body: busy }
    limits: [{ name: l, mode: OVERALL, rate: 1, interval: 1h }]
  - name: busy
    match: { path: /busy }
    upstream: api
    concurrency: { max: 1 }\n";
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        while let Some(request) = conn.request().await {
            match request.start.contains("/busy") {
                true => _ = conn.raw.closed().await,
                false => conn.raw.send(OK).await,
            }
        }
    })
    .await;
    let gateway = Gateway::start_with("chosen", &format!("targets: ['http://{}']", origin.address), routes);
    assert_eq!(gateway.get("/down").await.status(), 503);
    assert_eq!([gateway.get("/rejected").await.status(), gateway.get("/rejected").await.status()], [200, 503]);
    let mut first = Raw::connect(gateway.address).await;
    first.send("GET /busy HTTP/1.1\r\nHost: a\r\n\r\n").await;
    soon(async {
        while !origin.requests().iter().any(|request| request.start.contains("/busy")) {
            yield_now().await;
        }
    })
    .await;
    let busy = gateway.get("/busy").await;
    let problem: Value = serde_json::from_str(&busy.text()).expect("JSON");
    assert_eq!((busy.status(), &problem["reason"], &problem["upstream"]), (503, &"concurrency".into(), &"api".into()));
    drop(first);
    let log = gateway.end().await;
    for (path, reason, upstream) in [
        ("/down", "respond", Value::Null),
        ("/rejected", "limited", Value::Null),
        ("/busy", "concurrency", "api".into()),
    ] {
        let line = log.access.iter().find(|line| line["status"] == 503 && line["path"] == path).expect("a line");
        assert_eq!((&line["reason"], &line["upstream"]), (&reason.into(), &upstream), "{line}");
    }
}

#[tokio::test]
async fn full_queue_is_logged_with_its_reason() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        _ = conn.raw.closed().await;
    })
    .await;
    let target = format!("http://{}", origin.address);
    // Each of two workers has one connection.
    let upstream = format!("targets: ['{target}'], max_connections: 2, queue: 0");
    let gateway = Gateway::start("queue-full", &upstream);
    let mut clients = Vec::new();
    let busy = async {
        loop {
            let mut client = Raw::connect(gateway.address).await;
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            clients.push(client);
            if gateway.attempts(&target, "queue_full").await > 0 {
                return;
            }
        }
    };
    soon(busy).await;
    drop(clients);
    let log = gateway.end().await;
    let full: Vec<_> = log.access.iter().filter(|line| line["status"] == 503).collect();
    assert!(!full.is_empty() && full.iter().all(|line| line["reason"] == "queue_full"), "{full:?}");
    let lines = log.messages("upstream target fails");
    assert!(lines.iter().any(|line| line["phase"] == "queue"), "{:?}", log.process);
}

#[tokio::test]
async fn recovery_of_a_target_is_logged() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        if conn.request().await.is_some() && conn.index >= 3 {
            conn.raw.send(OK).await;
            _ = conn.raw.closed().await;
        }
    })
    .await;
    let gateway = Gateway::start("recovers", &format!("targets: ['http://{}'], retry: off", origin.address));
    for status in [502, 502, 502, 200, 200] {
        assert_eq!(gateway.get("/").await.status(), status);
    }
    let log = gateway.end().await;
    let lines = log.messages("upstream target answers again");
    assert_eq!(lines.len(), 1, "{:?}", log.process);
    let line = lines[0];
    assert_eq!((&line["level"], &line["failures"]), (&"WARN".into(), &3.into()), "{line}");
    assert!(line["failing_ms"].is_u64() && line["last_error"].is_string() && line["error"].is_null(), "{line}");
}

#[tokio::test]
async fn broken_response_is_a_failure_of_its_target() {
    let head_arrived = Arc::new(Notify::new());
    let breaks = head_arrived.clone();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let breaks = breaks.clone();
        async move {
            conn.request().await;
            conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart").await;
            breaks.notified().await;
        }
    })
    .await;
    let target = format!("http://{}", origin.address);
    let gateway = Gateway::start("breaks-off", &format!("targets: ['{target}']"));
    let mut client = Raw::connect(gateway.address).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.head().await.expect("a head");
    head_arrived.notify_one();
    client.rest().await.expect_err("half a response");
    assert_eq!(gateway.attempts(&target, "ok").await, 1);
    let log = gateway.end().await;
    assert_eq!(log.access[0]["reason"], "broken_off", "{:?}", log.access);
    assert_eq!(log.messages("upstream target fails")[0]["phase"], "body", "{:?}", log.process);
}

#[tokio::test]
async fn attempt_whose_client_leaves_counts_as_canceled() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        _ = conn.raw.closed().await;
    })
    .await;
    let target = format!("http://{}", origin.address);
    let gateway = Gateway::start("canceled", &format!("targets: ['{target}']"));
    let mut client = Raw::connect(gateway.address).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    crate::support::wire::until(|| !origin.requests().is_empty()).await;
    drop(client);
    soon(async { while gateway.attempts(&target, "canceled").await == 0 {} }).await;
    let log = gateway.end().await;
    assert!(log.messages("upstream target fails").is_empty(), "{:?}", log.process);
    let line = &log.access[0];
    assert_eq!((&line["status"], &line["reason"]), (&499.into(), &"client_gone".into()), "{line}");
    assert_eq!(line["target"], target.as_str(), "{line}");
}
