//! The dashboard over real sockets: its files, its events, and the bounds of its viewers.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::{Config, Gateway, ListenAddress};

use crate::support::gateway::TestGateway;
use crate::support::process::RuleFile;
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::soon;

const RULES: &str = "upstreams: { echo: { targets: ['builtin:echo'] } }
routes:
  - name: shop
    match: { path: /shop }
    upstream: echo
    limits:
      - { name: all, mode: OVERALL, rate: 4, interval: 1h }
      - { name: own, mode: PER_CLIENT, client: ip, rate: 9, interval: 1h }
";

/// The highest number of viewers.
const MAX_VIEWERS: usize = 32;

async fn ask(admin: SocketAddr, path: &str, fields: &str) -> Message {
    Raw::connect(admin).await.ask(format!("GET {path} HTTP/1.1\r\n{fields}\r\n")).await
}

const LOCAL: &str = "Host: 127.0.0.1:9901\r\n";

/// Opens a stream of events. Returns the head of the response.
async fn view(admin: SocketAddr) -> (Raw, Message) {
    let mut client = Raw::connect(admin).await;
    client.send(format!("GET /api/v1/events HTTP/1.1\r\n{LOCAL}\r\n")).await;
    let head = soon(client.head()).await.expect("a response");
    (client, head)
}

/// Reads an event. Returns its kind and its data.
async fn event(client: &mut Raw) -> (String, Value) {
    let chunk = soon(client.chunk()).await.expect("an event");
    let text = String::from_utf8(chunk).expect("text");
    let (kind, data) = text.strip_prefix("event: ").and_then(|rest| rest.split_once("\ndata: ")).expect("an event");
    (kind.to_owned(), serde_json::from_str(data.trim_end()).expect("JSON"))
}

/// Returns the rules with this setting of the dashboard.
fn config(mode: &str) -> Config {
    let text = format!("listen: 127.0.0.1:0\nadmin: {{ address: '127.0.0.1:0', dashboard: {mode} }}\n{RULES}");
    Gateway::parse_config(&text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Starts a gateway with this setting of the dashboard.
fn start(mode: &str) -> (Gateway, SocketAddr) {
    let gateway = Gateway::start(config(mode), 1).expect("a gateway");
    let admin = gateway.admin_address().and_then(ListenAddress::tcp).expect("an address");
    (gateway, admin)
}

async fn drain(gateway: Gateway) {
    let drain = move || gateway.drain(Duration::from_millis(10)).expect("drained");
    tokio::task::spawn_blocking(drain).await.expect("joined");
}

/// Returns the texts between quotes that begin with a prefix.
fn quoted<'t>(text: &'t str, quote: char, prefix: &str) -> Vec<&'t str> {
    text.split(quote).filter(|part| part.starts_with(prefix) && !part.contains(char::is_whitespace)).collect()
}

#[tokio::test]
async fn page_and_its_files_have_a_strict_policy() {
    let gateway = TestGateway::start(RULES);
    let page = ask(gateway.admin, "/", LOCAL).await;
    let mut files = quoted(&page.text(), '"', "/dashboard/").into_iter().map(str::to_owned).collect::<Vec<_>>();
    let script = ask(gateway.admin, "/dashboard/main.js", LOCAL).await.text();
    files.extend(quoted(&script, '\'', "./").iter().map(|name| format!("/dashboard/{}", &name[2..])));
    assert!(files.len() >= 7, "{files:?}");
    for path in files.iter().map(String::as_str).chain(["/"]) {
        let file = ask(gateway.admin, path, LOCAL).await;
        assert_eq!(file.status(), 200, "{path}");
        let policy = file.field("content-security-policy").expect("a policy");
        for rule in ["default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'"] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(file.field("x-content-type-options").as_deref(), Some("nosniff"), "{path}");
        let text = file.text();
        let is_external =
            |url: &&str| !url.starts_with("http://www.w3.org/") && !url.starts_with("http://api.example/");
        let urls = text
            .match_indices("://")
            .map(|(at, _)| &text[text[..at].rfind(['\'', '"', '`', '(', ' ']).unwrap_or(0) + 1..]);
        assert_eq!(
            urls.filter(is_external).map(|url| &url[..url.len().min(60)]).collect::<Vec<_>>(),
            Vec::<&str>::new(),
            "{path}"
        );
    }
    assert_eq!(ask(gateway.admin, "/dashboard/other.js", LOCAL).await.status(), 404);
}

/// A page elsewhere can let its own name resolve to the address of the gateway.
#[tokio::test]
async fn dashboard_rejects_other_names_and_sites() {
    let gateway = TestGateway::start(RULES);
    for path in ["/", "/dashboard/main.js", "/api/v1/events"] {
        assert_eq!(ask(gateway.admin, path, "Host: evil.example\r\n").await.status(), 403, "{path}");
    }
    for field in ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"] {
        let response = ask(gateway.admin, "/api/v1/events", &format!("{LOCAL}{field}\r\n")).await;
        assert_eq!(response.status(), 403, "{field}");
    }
}

#[tokio::test]
async fn first_event_has_the_history_and_later_events_one_second() {
    let gateway = TestGateway::start(RULES);
    for _ in 0..6 {
        gateway.get("/shop", "").await;
    }
    let (mut client, head) = view(gateway.admin).await;
    assert_eq!((head.status(), head.field("content-type").as_deref()), (200, Some("text/event-stream")));
    assert_eq!(
        (head.field("cache-control").as_deref(), head.field("x-accel-buffering").as_deref()),
        (Some("no-store"), Some("no"))
    );
    assert_eq!(event(&mut client).await.0, "history");
    // A new viewer gets at once what this one has.
    let limits = loop {
        let (kind, data) = event(&mut client).await;
        assert_eq!(kind, "second");
        if data["limits"].as_array().is_some_and(|limits| limits.len() == 2) {
            assert_eq!(data["total"]["total"], json!([4, 0, 2, 0, 0]), "{data}");
            assert_eq!(data["gateway"]["changes"], "no_tokens");
            break data["limits"].clone();
        }
    };
    assert_eq!((&limits[0]["limit"], &limits[0]["total"]), (&json!("all"), &json!([4, 2, 0, 0])), "{limits}");
    let (mut late, _) = view(gateway.admin).await;
    let (kind, data) = event(&mut late).await;
    assert_eq!((kind.as_str(), &data["routes"][0]["name"]), ("history", &json!("shop")));
    let sum = |list: &Value| list.as_array().expect("a list").iter().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!((sum(&data["routes"][0]["recent"][0]), sum(&data["routes"][0]["recent"][2])), (4, 2), "{data}");

    let limits = "GET /api/v1/limits HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let limits: Value =
        serde_json::from_str(&Raw::connect(gateway.admin).await.ask(limits).await.text()).expect("JSON");
    let expected = json!({ "allowed": 4, "limited": 2, "shadow_limited": 0, "store_failed": 0 });
    assert_eq!((&limits[0]["last_minute"], &limits[0]["permits"]), (&expected, &json!({ "used": 4, "remaining": 0 })));
    assert_eq!(limits[1]["permits"], Value::Null);
}

#[tokio::test]
async fn routes_have_their_latency() {
    let gateway = TestGateway::start(RULES);
    let routes = async || -> Value {
        serde_json::from_str(&ask(gateway.admin, "/api/v1/routes", LOCAL).await.text()).expect("JSON")
    };
    let shop = &routes().await[0];
    assert_eq!((&shop["route"], &shop["upstream"], &shop["p50_ms"]), (&json!("shop"), &json!("echo"), &Value::Null));
    for _ in 0..6 {
        gateway.get("/shop", "").await;
    }
    let counted = json!({ "successful": 4, "client_errors": 0, "rejected": 2, "server_errors": 0, "client_gone": 0 });
    let list = soon(async {
        loop {
            let list = routes().await;
            if list[0]["last_minute"] == counted {
                break list;
            }
        }
    })
    .await;
    let [p50, p99] = ["p50_ms", "p99_ms"].map(|key| list[0][key].as_f64().expect("a latency"));
    assert!(p50 > 0.0 && p50 <= p99, "{list}");
    let (mut client, _) = view(gateway.admin).await;
    let (_, data) = event(&mut client).await;
    let latency = &data["routes"][0]["latency"];
    assert!(latency["p50"].as_u64() > Some(0) && latency["p50"].as_u64() <= latency["p99"].as_u64(), "{data}");
}

/// The page searches all routes.
#[tokio::test]
async fn events_have_more_routes_than_those_with_a_long_history() {
    let route =
        |number: u32| format!("  - {{ name: r{number}, match: {{ path: /{number} }}, respond: {{ status: 204 }} }}\n");
    let text: String = (0..70).map(route).collect();
    let gateway = TestGateway::start(&format!("routes:\n{text}"));
    for number in 0..70 {
        assert_eq!(gateway.get(&format!("/{number}"), "").await.status(), 204);
    }
    let (mut client, _) = view(gateway.admin).await;
    let routes = soon(async {
        loop {
            let (_, mut data) = event(&mut client).await;
            if data["routes"].as_array().is_some_and(|routes| routes.len() == 70) {
                assert_eq!(data["truncated"], true);
                break data["routes"].take();
            }
        }
    })
    .await;
    let spans = routes.as_array().expect("a list").iter().map(|route| route["span"].as_u64());
    assert_eq!(spans.filter(|span| *span == Some(60)).count(), 6);
}

#[tokio::test]
async fn viewers_are_bounded() {
    let gateway = TestGateway::start(RULES);
    let mut viewers = Vec::new();
    for _ in 0..MAX_VIEWERS {
        let (client, head) = view(gateway.admin).await;
        assert_eq!(head.status(), 200);
        viewers.push(client);
    }
    let refused = ask(gateway.admin, "/api/v1/events", LOCAL).await;
    assert_eq!(refused.field("content-type").as_deref(), Some("application/problem+json"));
    assert_eq!((refused.status(), refused.text().contains("32 viewers")), (503, true), "{}", refused.text());
    assert_eq!(ask(gateway.admin, "/healthz", LOCAL).await.status(), 200);
    viewers.pop();
    soon(async { while view(gateway.admin).await.1.status() != 200 {} }).await;
}

#[tokio::test]
async fn streams_end_with_the_gateway() {
    let (gateway, admin) = start("'on'");
    let (mut client, _) = view(admin).await;
    event(&mut client).await;
    drain(gateway).await;
    soon(async { while client.chunk().await.is_ok_and(|chunk| !chunk.is_empty()) {} }).await;
}

#[tokio::test]
async fn streams_end_when_a_reload_turns_the_dashboard_off() {
    let (gateway, admin) = start("'on'");
    let (mut client, _) = view(admin).await;
    event(&mut client).await;
    drop(gateway.reload(config("'off'")).expect("a reload"));
    soon(async { while client.chunk().await.is_ok_and(|chunk| !chunk.is_empty()) {} }).await;
    assert_eq!(view(admin).await.1.status(), 404);
    drop(gateway.reload(config("read_only")).expect("a reload"));
    let (mut client, _) = view(admin).await;
    assert_eq!(event(&mut client).await.0, "history");
    drain(gateway).await;
}

/// Secrets are masked in the API, but names cannot be secret.
#[tokio::test]
async fn limits_with_the_name_of_a_secret_have_figures() {
    let secret = RuleFile::new("dashboard-secret", "shop\n");
    let matcher = format!("path: /shop, headers: {{ x-secret: '${{file:{}}}' }}", secret.path());
    let gateway = TestGateway::start(&RULES.replace("path: /shop", &matcher));
    assert_eq!(gateway.get("/shop", "X-Secret: shop\r\n").await.status(), 200);
    let figures = async {
        loop {
            let limits: Value =
                serde_json::from_str(&ask(gateway.admin, "/api/v1/limits", LOCAL).await.text()).expect("JSON");
            assert_eq!(limits[0]["route"], "shop", "{limits}");
            if limits[0]["last_minute"]["allowed"] == 1 {
                break;
            }
        }
    };
    soon(figures).await;
}

#[tokio::test]
async fn dashboard_can_be_read_only_or_off() {
    let (gateway, admin) = start("read_only");
    let (mut client, _) = view(admin).await;
    assert_eq!(event(&mut client).await.1["gateway"]["changes"], "off");
    drain(gateway).await;
    let (gateway, admin) = start("'off'");
    for path in ["/", "/dashboard/main.js", "/api/v1/events"] {
        assert_eq!(ask(admin, path, LOCAL).await.status(), 404, "{path}");
    }
    assert_eq!(ask(admin, "/api/v1/limits", LOCAL).await.status(), 200);
    drain(gateway).await;
}
