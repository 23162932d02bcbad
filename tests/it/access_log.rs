//! Access log lines and counters of requests: complete, aborted, rejected and malformed ones.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use deadpool_redis::redis::Commands;
use http::Request;
use http_body_util::Empty;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::gateway::get;
use crate::support::process::{Program, RuleFile};
use crate::support::redis::RedisServer;
use crate::support::wire::frames::{
    DATA, END_HEADERS, END_STREAM, Frames, HEADERS, PROTOCOL_ERROR, fields, request_fields,
};
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;
use crate::support::wire::upstream::{Origin, OriginConnection};

/// A gateway whose log is read after its exit.
pub(crate) struct Logged {
    pub(crate) program: Program,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    _file: RuleFile,
}

impl Logged {
    /// Starts a gateway in front of this origin, with these limits.
    fn start(name: &str, target: &str, limits: &str) -> Self {
        Self::listening(name, "listen: 127.0.0.1:0", target, limits)
    }

    fn listening(name: &str, listen: &str, target: &str, limits: &str) -> Self {
        let file = RuleFile::new(
            name,
            &format!(
                "{listen}
admin: 127.0.0.1:0
access_log: stdout
upstreams: {{ origin: {{ targets: ['{target}'] }} }}
routes:
  - {{ name: all, match: {{ path: /** }}, upstream: origin, limits: [{limits}] }}\n"
            ),
        );
        Self::run(file)
    }

    /// Starts a gateway with this rule file.
    pub(crate) fn run(file: RuleFile) -> Self {
        let (program, address, admin) = Program::run(&file, &["--log-format", "json"]);
        Self { program, address, admin, _file: file }
    }

    pub(crate) async fn client(&self) -> Raw {
        Raw::connect(self.address).await
    }

    /// Waits until a series of the metrics has this value.
    #[track_caller]
    fn wait_for_count(&self, series: &str, value: u64) -> impl Future<Output = ()> {
        let line = format!("{series} {value}");
        soon(async move {
            let mut admin = Raw::connect(self.admin).await;
            while !get(&mut admin, "/metrics", "").await.text().lines().any(|other| other == line) {}
        })
    }

    /// Terminates the gateway. Returns the lines of its access log.
    pub(crate) async fn lines(self) -> Vec<Value> {
        self.program.signal("TERM");
        let ended = tokio::task::spawn_blocking(|| self.program.wait_for_exit()); // clients close while it drains
        let (status, log) = ended.await.expect("an end");
        assert!(status.success(), "{log}");
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["limits"].is_string()).collect()
    }
}

/// Returns the line with this message. Lines may be out of order: a line may be written after the client's next
/// request.
pub(crate) fn line<'l>(lines: &'l [Value], message: &str) -> &'l Value {
    lines.iter().find(|line| line["message"] == message).unwrap_or_else(|| panic!("no {message} in {lines:?}"))
}

/// An origin that never responds, and sends a message for each request.
async fn silent_origin() -> (Origin, UnboundedReceiver<()>) {
    let (arrived, arrival) = unbounded_channel();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let arrived = arrived.clone();
        async move {
            conn.request().await;
            arrived.send(()).expect("a receiver");
            _ = conn.raw.closed().await;
        }
    })
    .await;
    (origin, arrival)
}

const LIMIT: &str = "{ name: l, mode: OVERALL, rate: 3, interval: 1h }";
const ABANDONED: &str = r#"tidegate_request_duration_seconds_count{route="all",status="499"}"#;
const CLIENT_GONE: &str = r#"tidegate_rejected_total{cause="client_gone"}"#;

#[tokio::test]
async fn aborted_request_is_logged_and_counted() {
    let (origin, mut arrival) = silent_origin().await;
    let gateway = Logged::start("abandoned", &format!("http://{}", origin.address), LIMIT);
    let mut client = gateway.client().await;
    client.send("GET /slow?token=CANARY HTTP/1.1\r\nHost: a\r\n\r\n").await;
    soon(arrival.recv()).await.expect("a request at the origin");
    drop(client);
    gateway.wait_for_count(ABANDONED, 1).await;
    gateway.wait_for_count(CLIENT_GONE, 1).await;
    gateway.wait_for_count(r#"tidegate_decisions_total{route="all",limit="l",outcome="allowed"}"#, 1).await;
    let lines = gateway.lines().await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = &lines[0];
    assert_eq!((&line["message"], &line["status"]), (&"GET /slow".into(), &499.into()), "{line}");
    assert_eq!((&line["reason"], &line["limits"]), (&"client_gone".into(), &"allowed".into()), "{line}");
    assert!(line["at"].is_u64() && line["ms"].is_f64() && line["head_ms"].is_null(), "{line}");
}

#[tokio::test]
async fn reset_http2_stream_is_logged_and_counted() {
    let (origin, mut arrival) = silent_origin().await;
    let gateway = Logged::start("reset", &format!("http://{}", origin.address), LIMIT);
    let stream = tokio::net::TcpStream::connect(gateway.address).await.expect("a connection");
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.expect("a handshake");
    tokio::spawn(connection);
    let request = Request::get("http://a/reset").body(Empty::<Bytes>::new()).expect("a request");
    let response = sender.send_request(request);
    tokio::select! {
        _ = response => panic!("a response of a silent origin"),
        arrived = soon(arrival.recv()) => arrived.expect("a request at the origin"),
    }
    gateway.wait_for_count(ABANDONED, 1).await;
    gateway.wait_for_count(CLIENT_GONE, 1).await;
    let lines = gateway.lines().await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!((&lines[0]["message"], &lines[0]["status"]), (&"GET /reset".into(), &499.into()));
}

#[tokio::test]
async fn request_aborted_while_it_waits_for_permits_is_logged() {
    let limit = "{ name: l, mode: OVERALL, rate: 1, interval: 50s, max_wait: 1m }";
    let gateway = Logged::start("left-waiting", "builtin:echo", limit);
    assert_eq!(get(&mut gateway.client().await, "/first", "").await.status(), 200);
    let mut client = gateway.client().await;
    client.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n").await;
    drop(client);
    gateway.wait_for_count(ABANDONED, 1).await;
    let lines = gateway.lines().await;
    let line = line(&lines, "GET /second");
    assert_eq!((&line["status"], &line["limits"]), (&499.into(), &"undecided".into()), "{line}");
    assert!(line["at"].is_null(), "{line}");
}

#[tokio::test]
async fn truncated_response_has_a_reason_in_its_line() {
    let received = Arc::new(Notify::new());
    let client_received = Arc::clone(&received);
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let received = Arc::clone(&received);
        async move {
            let request = conn.request().await.expect("a request");
            conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhello").await;
            match request.start.starts_with("GET /origin") {
                true => received.notified().await,
                false => _ = conn.raw.closed().await,
            }
        }
    })
    .await;
    let gateway = Logged::start("cut", &format!("http://{}", origin.address), "");
    for path in ["/origin", "/client"] {
        let mut client = gateway.client().await;
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(client.head().await.expect("a head").status(), 200);
        client.exactly(5).await.expect("the beginning");
        if path == "/origin" {
            client_received.notify_one();
            client.rest().await.expect_err("a reset");
        }
    }
    gateway.wait_for_count(r#"tidegate_upstream_requests_total{upstream="origin",outcome="answered"}"#, 2).await;
    let lines = gateway.lines().await;
    for (message, reason) in [("GET /origin", "broken_off"), ("GET /client", "client_gone")] {
        let line = line(&lines, message);
        assert_eq!((&line["reason"], &line["bytes"]), (&reason.into(), &5.into()), "{line}");
    }
}

#[tokio::test]
async fn complete_response_has_bytes_and_times_in_its_line() {
    let gateway = Logged::start("whole", "builtin:echo", "");
    let mut client = gateway.client().await;
    let echo = client.ask("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello").await;
    assert_eq!(echo.text(), "hello");
    client.ask("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let lines = gateway.lines().await;
    assert_eq!((&lines[0]["bytes"], &lines[0]["reason"]), (&5.into(), &Value::Null), "{lines:?}");
    assert_eq!((&lines[1]["bytes"], &lines[1]["reason"]), (&0.into(), &Value::Null), "{lines:?}");
    for field in ["ms", "head_ms"] {
        let text = lines[0][field].to_string();
        assert!(text.split_once('.').is_some_and(|(_, digits)| digits.len() <= 3), "{text}");
    }
}

#[tokio::test]
async fn rejected_request_head_is_logged_and_counted() {
    let gateway = Logged::start("refused", "builtin:echo", "");
    let long = "x".repeat(9 * 1024);
    let cases = [
        ("GET / HTTP/1.1\r\nHost: a\r\nbad field: 1\r\n\r\n".to_owned(), 400, "malformed", "- -"),
        ("GET / HTTP/9.9\r\nHost: a\r\n\r\n".to_owned(), 505, "version", "- -"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".to_owned(), 501, "coding", "- -"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "a: b\r\n".repeat(200)), 431, "max_fields", "- -"),
        (format!("GET /f HTTP/1.1\r\nHost: a\r\nx: {long}\r\ny: {long}\r\n\r\n"), 431, "max_fields", "GET /f"),
    ];
    for (request, status, cause, _) in &cases {
        assert_eq!(gateway.client().await.ask(request).await.status(), *status, "{cause}");
    }
    let target = format!("/{long}");
    assert_eq!(get(&mut gateway.client().await, &target, "").await.status(), 414);
    gateway.wait_for_count(r#"tidegate_rejected_total{cause="max_fields"}"#, 2).await;
    for cause in ["malformed", "version", "coding", "max_target"] {
        gateway.wait_for_count(&format!("tidegate_rejected_total{{cause=\"{cause}\"}}"), 1).await;
    }
    let lines = gateway.lines().await;
    assert_eq!(lines.len(), 6, "{lines:?}");
    for (line, (_, status, cause, message)) in lines.iter().zip(&cases) {
        assert_eq!((&line["status"], &line["reason"]), (&(*status).into(), &(*cause).into()), "{line}");
        assert_eq!((&line["message"], &line["peer"]), (&(*message).into(), &"127.0.0.1".into()), "{line}");
    }
    assert_eq!((&lines[5]["status"], &lines[5]["message"]), (&414.into(), &format!("GET {target}").into()));
}

#[tokio::test]
async fn malformed_http2_head_is_logged_and_counted() {
    let gateway = Logged::start("h2-head", "builtin:echo", "");
    let mut client = Frames::connect(gateway.address, &[]).await;
    let [method, scheme, authority, _] = request_fields("GET", "/");
    for (stream, fields) in [
        (1, fields([method, scheme, authority, (":path", "/?\"")])),
        (3, fields([method, scheme, authority])),
        (5, fields(request_fields("GET", "/v").into_iter().chain([("x", " y")]))),
    ] {
        client.frame(HEADERS, END_STREAM | END_HEADERS, stream, &fields).await;
        assert_eq!(client.reset_code(stream).await, PROTOCOL_ERROR);
    }
    client.get(7, "/a").await;
    assert_eq!(client.status(7).await, 200);
    // The head is valid, so the request has its own line.
    client.open(9, "POST", "/b", &[("content-length", "3")], false).await;
    client.frame(DATA, END_STREAM, 9, b"four").await;
    assert_eq!(client.reset_code(9).await, PROTOCOL_ERROR);
    gateway.wait_for_count(r#"tidegate_rejected_total{cause="malformed"}"#, 3).await;
    let lines = gateway.lines().await;
    let shown = |line: &Value| (line["message"].clone(), line["status"].clone(), line["reason"].clone());
    let malformed = |message: &str| (message.into(), 400.into(), "malformed".into());
    let expected: [(Value, Value, Value); 3] = [malformed("- -"), malformed("- -"), malformed("GET /v")];
    assert_eq!(lines[..3].iter().map(shown).collect::<Vec<_>>(), expected);
    let rest: Vec<_> = lines[3..].iter().map(|line| line["message"].as_str().unwrap_or_default()).collect();
    assert_eq!(rest, ["GET /a", "POST /b"], "{lines:?}");
}

#[tokio::test]
async fn connection_above_the_cap_is_logged_and_counted() {
    let limited = "listen: [{ address: '127.0.0.1:0', max_connections: 1 }]";
    let gateway = Logged::listening("full", limited, "builtin:echo", "");
    let mut first = gateway.client().await;
    assert_eq!(get(&mut first, "/", "").await.status(), 200);
    assert_eq!(gateway.client().await.response(false).await.status(), 503);
    gateway.wait_for_count(r#"tidegate_rejected_total{cause="listener_connections"}"#, 1).await;
    let lines = gateway.lines().await;
    let line = line(&lines, "- -");
    assert_eq!((&line["status"], &line["reason"]), (&503.into(), &"listener_connections".into()), "{line}");
}

#[tokio::test]
async fn ipv4_peer_of_an_ipv6_listener_is_logged_as_ipv4() {
    let gateway = Logged::listening("mapped", "listen: '[::]:0'", "builtin:echo", "");
    let address = SocketAddr::from(([127, 0, 0, 1], gateway.address.port()));
    assert_eq!(get(&mut Raw::connect(address).await, "/", "").await.status(), 200);
    let lines = gateway.lines().await;
    assert_eq!(lines[0]["peer"], "127.0.0.1", "{lines:?}");
}

#[tokio::test]
async fn client_is_logged_by_address_and_store_key() {
    let Some(redis) = RedisServer::start() else { return };
    let more = format!("listen: 127.0.0.1:0\nstore: {}\nclients: {{ trusted_proxies: [127.0.0.0/8] }}", redis.rule());
    let limit = "{ name: l, mode: PER_CLIENT, client: 'header:x-api-key', rate: 3, interval: 1h }";
    let gateway = Logged::listening("client", &more, "builtin:echo", limit);
    let fields = "X-Forwarded-For: 192.0.2.7\r\nX-Api-Key: CANARY\r\n";
    assert_eq!(get(&mut gateway.client().await, "/", fields).await.status(), 200);
    let keys: Vec<String> = redis.connection().keys("{tidegate:*}:l:*").expect("keys");
    let lines = gateway.lines().await;
    let line = line(&lines, "GET /");
    assert_eq!((&line["client"], &line["peer"]), (&"192.0.2.7".into(), &"127.0.0.1".into()), "{line}");
    let key = line["client_key"].as_str().expect("a key");
    assert!(keys.len() == 1 && keys[0].ends_with(&format!(":{key}")) && key.len() == 32, "{keys:?} {key}");
    assert!(!line.to_string().contains("CANARY"), "{line}");
}

#[tokio::test]
async fn json_lines_have_a_field_for_each_part() {
    let limits =
        "{ name: wide, mode: OVERALL, rate: 9, interval: 1h }, { name: narrow, mode: OVERALL, rate: 1, interval: 1h }";
    let gateway = Logged::start("fields", "builtin:echo", limits);
    let mut client = gateway.client().await;
    for status in [200, 429] {
        let request = "POST /a/b?q=CANARY HTTP/1.1\r\nHost: API.example:80\r\nUser-Agent: x\" 1\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(client.ask(request).await.status(), status);
    }
    let lines = gateway.lines().await;
    for line in &lines {
        let parts = json!([line["method"], line["path"], line["host"], line["user_agent"], line["route"]]);
        assert_eq!(parts, json!(["POST", "/a/b", "API.example:80", "x\" 1", "all"]), "{line}");
    }
    let parts = |line: &Value| json!([line["limit"], line["upstream"], line["target"], line["bytes_in"]]);
    assert_eq!(parts(&lines[0]), json!([null, "origin", "builtin:echo", 5]), "{lines:?}");
    assert_eq!(parts(&lines[1]), json!(["narrow", null, null, 0]), "{lines:?}");
}

#[tokio::test]
async fn human_log_lines_quote_client_input() {
    let file = RuleFile::new(
        "human",
        "listen: 127.0.0.1:0
admin: 127.0.0.1:0
access_log: stdout
upstreams: { echo: { targets: [builtin:echo] } }
routes: [{ name: all, match: {}, upstream: echo }]\n",
    );
    let (program, address, _) = Program::run(&file, &[]);
    let fields = "User-Agent: x status=500 at=1\r\n";
    assert_eq!(get(&mut Raw::connect(address).await, "/a", fields).await.status(), 200);
    let bad = "GET /b HTTP/1.1\r\nHost: x status=500\r\n\r\n";
    assert_eq!(Raw::connect(address).await.ask(bad).await.status(), 400);
    program.signal("TERM");
    let (_, log) = tokio::task::spawn_blocking(|| program.wait_for_exit()).await.expect("an end");
    let line = log.lines().find(|line| line.contains(" GET /a ")).expect("a line");
    assert!(line.contains(r#" GET /a status=200 route="all" limits="unlimited" upstream="echo" "#), "{line}");
    assert!(line.ends_with(r#" host="test.example""#) && !line.contains("method="), "{line}");
    assert!(!log.contains("status=500"), "{log}");
}

#[tokio::test]
async fn denial_by_a_failed_store_has_its_reason() {
    let Some(redis) = RedisServer::start() else { return };
    let more = format!("listen: 127.0.0.1:0\nstore: {}", redis.rule());
    drop(redis);
    let limits = "{ name: first, mode: OVERALL, rate: 9, interval: 1h, on_store_failure: allow }, \
                  { name: strict, mode: OVERALL, rate: 9, interval: 1h, on_store_failure: deny }";
    let gateway = Logged::listening("denied", &more, "builtin:echo", limits);
    assert_eq!(get(&mut gateway.client().await, "/", "").await.status(), 503);
    let lines = gateway.lines().await;
    let line = line(&lines, "GET /");
    let parts = json!([line["reason"], line["limits"], line["limit"], line["target"]]);
    assert_eq!(parts, json!(["store_failed", "store_failed", "strict", null]), "{line}");
}

#[tokio::test]
async fn rejections_are_counted_by_their_exact_code() {
    let limit = "{ name: l, mode: OVERALL, rate: 1, interval: 1h }";
    let gateway = Logged::start("codes", "builtin:echo", limit);
    let mut client = gateway.client().await;
    for status in [200, 429, 429] {
        assert_eq!(get(&mut client, "/", "").await.status(), status);
    }
    gateway.wait_for_count(r#"tidegate_responses_total{route="all",code="200"}"#, 1).await;
    gateway.wait_for_count(r#"tidegate_responses_total{route="all",code="429"}"#, 2).await;
}

#[tokio::test]
async fn grpc_status_of_fields_and_trailers_is_logged() {
    let response = concat!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/grpc\r\n\r\n",
        "2\r\nok\r\n0\r\ngrpc-status: 5\r\n\r\n"
    );
    let origin = Origin::with_response(response).await;
    let limit = "{ name: l, mode: OVERALL, rate: 1, interval: 1h }";
    let gateway = Logged::start("grpc", &format!("http://{}", origin.address), limit);
    let mut client = gateway.client().await;
    for _ in 0..2 {
        let call = "POST /a.B/C HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(client.ask(call).await.status(), 200);
    }
    let lines = gateway.lines().await;
    let fields = lines.iter().map(|line| json!([line["status"], line["grpc_status"], line["limits"]]));
    assert_eq!(fields.collect::<Vec<_>>(), [json!([200, 5, "allowed"]), json!([200, 8, "limited"])]);
}
