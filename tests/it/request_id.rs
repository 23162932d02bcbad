//! `X-Request-Id` in requests, responses and the access log, and trace context.

use crate::support::gateway::{TestGateway, get};
use crate::support::process::{Program, RuleFile};
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::upstream::Origin;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Request-Id: own\r\n\r\n";

/// The address of the trusted proxy.
const PROXY: &str = "127.0.0.2";

fn rules(target: &str, request_id: bool) -> String {
    format!(
        "access_log: stdout
requests: {{ request_id: {request_id}, strip: [default, 'X-Request-*'] }}
clients: {{ trusted_proxies: [{PROXY}] }}
upstreams: {{ api: {{ targets: ['{target}'] }}, gone: {{ targets: ['http://127.0.0.1:1'] }} }}
routes:
  - {{ name: limited, match: {{ path: /limited }}, upstream: api, limits: [{{ name: l, mode: OVERALL, rate: 1, interval: 1h }}] }}
  - {{ name: gone, match: {{ path: /gone }}, upstream: gone }}
  - {{ name: all, match: {{ path: '/o/**' }}, upstream: api }}
"
    )
}

fn id(message: &Message) -> String {
    message.field("x-request-id").expect("an id")
}

fn is_new(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[tokio::test]
async fn new_id_is_forwarded_and_returned() {
    let origin = Origin::with_response(OK).await;
    let gateway = TestGateway::start(&rules(&format!("http://{}", origin.address), true));
    let forged = format!("X-Request-Id: forged\r\nX-Request-Id: {}\r\nX_Request_Id: forged\r\n", "x".repeat(5000));
    let mut ids = Vec::new();
    for fields in ["", "X-Request-Id: forged\r\n", &forged] {
        let response = gateway.get("/o/a", fields).await;
        let request = origin.last_request();
        assert_eq!((response.status(), id(&response)), (200, id(&request)));
        assert!(is_new(&id(&response)) && request.field("x_request_id").is_none(), "{request:?}");
        ids.push(id(&response));
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn only_valid_ids_of_proxies_are_kept() {
    let origin = Origin::with_response(OK).await;
    let gateway = TestGateway::start(&rules(&format!("http://{}", origin.address), true));
    let mut proxy = Raw::connect_from(PROXY, gateway.address).await;
    let longest = "x".repeat(128);
    for good in ["req-1", "\"a\\b\"{}", &longest] {
        let response = get(&mut proxy, "/o/a", &format!("X-Request-Id: {good}\r\n")).await;
        assert_eq!((id(&response), id(&origin.last_request())), (good.to_owned(), good.to_owned()));
    }
    let too_long = format!("X-Request-Id: {}\r\n", "x".repeat(129));
    let bad = ["X-Request-Id:\r\n", "X-Request-Id: a b\r\n", "X-Request-Id: \u{e4}\r\n", &too_long];
    for fields in bad.into_iter().chain(["X-Request-Id: a\r\nX-Request-Id: a\r\n"]) {
        let response = get(&mut proxy, "/o/a", fields).await;
        assert_eq!(id(&response), id(&origin.last_request()));
        assert!(is_new(&id(&response)), "{fields}: {response:?}");
    }
    // A line break ends the field, and the rest is no field.
    proxy.send("GET /o/a HTTP/1.1\r\nHost: a\r\nX-Request-Id: a\nb\r\n\r\n").await;
    assert_eq!(proxy.response(false).await.status(), 400);
}

#[tokio::test]
async fn local_responses_and_log_lines_have_the_id() {
    let rules = rules("builtin:echo", true).replace("strip:", "underscores: reject, strip:");
    let file = RuleFile::new("request-id", &format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{rules}"));
    let (program, address, _admin) = Program::run(&file, &["--log-format", "json", "--workers", "1"]);
    let mut client = Raw::connect(address).await;
    let mut returned = Vec::new();
    for (path, status) in [("/limited", 200), ("/limited", 429), ("/gone", 502), ("/none", 404), ("/o/%00", 400)] {
        let response = get(&mut client, path, "").await;
        assert_eq!(response.status(), status, "{path}");
        returned.push(id(&response));
    }
    let response = get(&mut client, "/o/a", "X_Bad: 1\r\n").await;
    assert_eq!(response.status(), 400);
    returned.push(id(&response));
    drop(client);
    program.signal("TERM");
    let (_, log) = program.wait_for_exit();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let logged: Vec<_> = lines.filter_map(|line| line["request_id"].as_str().map(str::to_owned)).collect();
    assert_eq!(logged, returned, "{log}");
    assert!(returned.iter().all(|id| is_new(id)));
}

#[tokio::test]
async fn ids_are_untouched_unless_enabled() {
    let origin = Origin::with_response(OK).await;
    let rules = rules(&format!("http://{}", origin.address), false).replace(", 'X-Request-*'", "");
    let gateway = TestGateway::start(&rules);
    let response = gateway.get("/o/a", "X-Request-Id: a b\r\nX-Request-Id: c\r\n").await;
    assert_eq!(id(&response), "own");
    assert_eq!(id(&origin.last_request()), "a b | c");
    assert_eq!(gateway.get("/none", "").await.field("x-request-id"), None);
}

#[tokio::test]
async fn trace_context_is_forwarded_unchanged() {
    let origin = Origin::with_response(OK).await;
    let gateway = TestGateway::start(&rules(&format!("http://{}", origin.address), true));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let fields = format!("Traceparent: {parent}\r\ntracestate: a=1\r\nTracestate: b=2,c=3\r\n");
    gateway.get("/o/a", &fields).await;
    let request = origin.last_request();
    assert_eq!(request.field("traceparent").as_deref(), Some(parent));
    assert_eq!(request.field("tracestate").as_deref(), Some("a=1 | b=2,c=3"));
    gateway.get("/o/a", &format!("traceparent: {parent}\r\ntraceparent: x\r\n")).await;
    assert_eq!(origin.last_request().field("traceparent"), Some(format!("{parent} | x")));
}
