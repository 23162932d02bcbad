//! Limits that read the JSON bodies of requests: as clients, conditions and costs.

use serde_json::{Value, json};

use crate::support::gateway::TestGateway;
use crate::support::process::{RuleFile, output};
use crate::support::wire::raw::Message;
use crate::support::wire::upstream::{Origin, OriginConnection};

/// An upstream that returns the body of each request.
async fn echo() -> Origin {
    Origin::start(|mut connection: OriginConnection| async move {
        while let Some(request) = connection.request().await {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len());
            connection.raw.send([head.as_bytes(), &request.body].concat()).await;
        }
    })
    .await
}

fn rules(target: &str, limits: &str) -> String {
    format!(
        "requests: {{ json_bytes: 1KiB }}
upstreams: {{ api: {{ targets: ['http://{target}'] }} }}
routes:
  - name: calls
    match: {{ path: /calls }}
    upstream: api
    limits:
{limits}
  - {{ name: rest, match: {{ path: /** }}, upstream: api }}"
    )
}

async fn gateway(origin: &Origin, limits: &str) -> TestGateway {
    TestGateway::start(&rules(&origin.address.to_string(), limits))
}

async fn send(gateway: &TestGateway, body: impl AsRef<[u8]>) -> Message {
    send_with(gateway, "", body).await
}

async fn send_with(gateway: &TestGateway, fields: &str, body: impl AsRef<[u8]>) -> Message {
    let body = body.as_ref();
    let head = format!("POST /calls HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n{fields}\r\n", body.len());
    gateway.client().await.ask([head.as_bytes(), body].concat()).await
}

async fn status(gateway: &TestGateway, body: Value) -> u16 {
    send(gateway, body.to_string()).await.status()
}

const MODEL: &str = "      - { name: model, mode: PER_CLIENT, client: [ip, \"json:/model\"], rate: 1, interval: 1h }";
const COST: &str =
    "      - { name: cost, mode: OVERALL, rate: 10, interval: 1h, permits: { json: /n, default: 2, max: 5 } }";
const TOKENS: &str = "      - { name: tokens, mode: OVERALL, rate: 99, interval: 1h, permits: { usage: openai, reserve: { output: 9 } } }";
const SEARCH: &str = "      - { name: search, mode: OVERALL, rate: 2, interval: 1h,
          when: { json: { /method: tools/call, /params/name: [search, { prefix: find- }] } } }";

#[tokio::test]
async fn member_of_the_body_identifies_clients() {
    let origin = echo().await;
    let gateway = gateway(&origin, MODEL).await;
    let body = r#"{ "messages": ["long"], "model": "small" }"#;
    let response = send(&gateway, body).await;
    assert_eq!((response.status(), response.text()), (200, body.to_owned()), "the body is forwarded unchanged");
    assert_eq!(send(&gateway, r#"{"\u006dodel":"sm\u0061ll"}"#).await.status(), 429);
    assert_eq!(status(&gateway, json!({ "model": "large" })).await, 200);
    assert_eq!(status(&gateway, json!({ "model": 7 })).await, 200);
    assert_eq!(send(&gateway, "{\"model\":7.0}").await.status(), 429);
    assert_eq!(status(&gateway, json!({ "model": "7" })).await, 429);
    for missing in [json!({}), json!({ "model": null }), json!({ "model": "" }), json!([])] {
        let response = send(&gateway, missing.to_string()).await;
        assert_eq!(response.status(), 400);
        assert!(response.text().contains("clients of `model` is missing"), "{}", response.text());
    }
    assert_eq!(status(&gateway, json!({ "model": ["small"] })).await, 400);
    assert_eq!(status(&gateway, json!({ "model": "m".repeat(1_100) })).await, 413);
}

#[tokio::test]
async fn member_of_the_body_is_the_cost() {
    let origin = echo().await;
    let gateway = gateway(&origin, COST).await;
    assert_eq!(status(&gateway, json!({ "n": 5 })).await, 200);
    assert_eq!(status(&gateway, json!({})).await, 200);
    assert_eq!(status(&gateway, json!({ "n": 4 })).await, 429);
    assert_eq!(status(&gateway, json!({ "n": 3 })).await, 200);
    for invalid in [json!({ "n": 6 }), json!({ "n": -1 }), json!({ "n": 0.5 }), json!({ "n": "1" })] {
        let response = send(&gateway, invalid.to_string()).await;
        assert_eq!(response.status(), 400, "{invalid}");
        assert!(response.text().contains("the cost of the request for `cost`"), "{}", response.text());
    }
}

#[tokio::test]
async fn condition_on_the_body_selects_calls() {
    let origin = echo().await;
    let gateway = gateway(&origin, SEARCH).await;
    let call = |name: &str| json!({ "method": "tools/call", "params": { "name": name } });
    for other in [call("read"), json!({ "method": "tools/list" }), json!({}), json!([1])] {
        assert_eq!(status(&gateway, other).await, 200);
    }
    assert_eq!(status(&gateway, call("search")).await, 200);
    assert_eq!(status(&gateway, call("find-all")).await, 200);
    assert_eq!(status(&gateway, call("search")).await, 429);
    // Some upstreams convert such values.
    assert_eq!(status(&gateway, json!({ "method": ["tools/call"], "params": { "name": "search" } })).await, 429);
    assert_eq!(status(&gateway, call("read")).await, 200);
}

#[tokio::test]
async fn condition_tests_whether_the_body_has_a_value() {
    let origin = echo().await;
    let limits =
        "      - { name: anonymous, mode: OVERALL, rate: 1, interval: 1h, when: { json: { /user: absent, /n: 7 } } }";
    let gateway = gateway(&origin, limits).await;
    assert_eq!(status(&gateway, json!({ "n": 7, "user": "a" })).await, 200);
    assert_eq!(status(&gateway, json!({ "n": 8 })).await, 200);
    assert_eq!(status(&gateway, json!({ "n": 7 })).await, 200);
    assert_eq!(status(&gateway, json!({ "n": "7" })).await, 429);
    assert_eq!(status(&gateway, json!({ "n": 7, "user": "a" })).await, 200);
}

#[tokio::test]
async fn body_with_two_readings_is_rejected_with_its_reason() {
    let origin = echo().await;
    let gateway = gateway(&origin, COST).await;
    for (body, reason) in [
        (&br#"{"n":1,"n":5}"#[..], "the body has `/n` twice"),
        (br#"{"N":5}"#, "only in upper and lower case"),
        (br#"{"n":1e999}"#, "`/n` of the body is a number that parsers read in different ways"),
        (b"{\"x\":\"\xff\"}", "the body is not JSON"),
        (b"n=1", "the body is not JSON"),
    ] {
        let response = send(&gateway, body).await;
        assert_eq!(response.status(), 400);
        assert!(response.text().contains(reason), "{}", response.text());
    }
    let encoded = send_with(&gateway, "Content-Encoding: gzip\r\n", "{}").await;
    assert_eq!(encoded.status(), 415, "{}", encoded.text());
    assert_eq!(origin.requests().len(), 0);
}

#[tokio::test]
async fn body_of_another_route_is_not_read() {
    let origin = echo().await;
    let gateway = gateway(&origin, COST).await;
    let body = "x".repeat(5_000);
    let request = format!("POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    assert_eq!(gateway.client().await.ask(request).await.text(), body);
    assert_eq!(send(&gateway, &body).await.status(), 413);
}

#[tokio::test]
async fn calls_of_a_batch_are_charged_together_or_not() {
    let origin = echo().await;
    let gateway = gateway(&origin, &[MODEL, COST].join("\n")).await;
    let call = |model: &str, n: u64| json!({ "model": model, "n": n });
    assert_eq!(status(&gateway, json!([call("a", 5), call("b", 5), call("c", 1)])).await, 429);
    assert_eq!(status(&gateway, json!([call("a", 1), call("a", 1)])).await, 429, "one bucket counts both calls");
    let granted = send(&gateway, json!([call("a", 5), call("b", 4)]).to_string()).await;
    assert_eq!(granted.status(), 200);
    let fields = granted.field("ratelimit").expect("rate limit fields");
    assert_eq!(fields.matches("\"model\"").count(), 1, "{fields}");
    assert_eq!(status(&gateway, call("a", 0)).await, 429);
    assert_eq!(status(&gateway, call("c", 1)).await, 200);
    assert_eq!(status(&gateway, json!([call("d", 0), {}])).await, 400, "each call needs its client");
    let many: Vec<_> = (0..101).map(|_| json!(0)).collect();
    let response = send(&gateway, json!(many).to_string()).await;
    assert!(response.text().contains("the body has more than 100 calls"), "{}", response.text());
}

#[test]
fn explain_reads_the_body() {
    let limits = [MODEL, COST, SEARCH].join("\n");
    let file = RuleFile::new("explain-body", &format!("listen: 127.0.0.1:0\n{}", rules("127.0.0.1:9000", &limits)));
    let explain = |arguments: &[&str]| {
        let output = output(&[&["explain", "-c", file.path(), "POST", "http://a/calls"], arguments].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = explain(&["-d", r#"{"model":"m","n":3,"method":"tools/list"}"#]);
    assert!(text.contains("3 permits (from json:/n)"), "{text}");
    assert!(text.contains("because json /method does not match"), "{text}");
    let text = explain(&[]);
    assert!(text.contains("body  unknown, so limits find no values in it: add it with -d"), "{text}");
    assert!(text.contains("client `[ip, json:/model]` is missing"), "{text}");
    assert!(text.contains("2 permits (default, without json:/n)"), "{text}");
    assert!(explain(&["-d", "{"]).contains("the body is not JSON"));
    assert!(explain(&["-d", r#"[{"model":"m"},{"model":"n"}]"#]).contains("a batch of 2 calls"));
}

#[test]
fn replay_reports_limits_that_read_bodies() {
    let limits = [MODEL, COST, TOKENS].join("\n");
    let file = RuleFile::new("replay-body", &format!("listen: 127.0.0.1:0\n{}", rules("127.0.0.1:9000", &limits)));
    let log = std::env::temp_dir().join(format!("tidegate-replay-body-{}.log", std::process::id()));
    let line = r#"192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] "POST /calls HTTP/1.1" 200 1"#;
    std::fs::write(&log, format!("{line}\n").repeat(6)).expect("should write");
    let output = output(&["replay", "-c", file.path(), log.to_str().expect("UTF-8")]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    std::fs::remove_file(&log).expect("should remove");
    for limit in ["model", "tokens"] {
        let note = format!("limit calls/{limit} does not count 6 requests: no log has bodies");
        assert!(text.contains(&note), "{text}");
    }
    assert!(
        text.contains("limit calls/cost counts each request with its default cost, 2: no log has bodies"),
        "{text}"
    );
}
