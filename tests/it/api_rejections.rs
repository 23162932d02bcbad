//! Rejections and rate limit fields in the forms of other APIs: OpenAI, Anthropic and JSON-RPC.

use serde_json::{Value, json};

use crate::support::gateway::TestGateway;
use crate::support::wire::raw::Message;
use crate::support::wire::upstream::Origin;

async fn gateway(route: &str) -> TestGateway {
    let origin = Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    TestGateway::start(&format!(
        "requests: {{ request_id: true }}
upstreams: {{ api: {{ targets: ['http://{}'] }} }}
routes:
  - name: calls
    match: {{ path: /** }}
    upstream: api
{route}",
        origin.address
    ))
}

async fn post(gateway: &TestGateway, body: &Value) -> Message {
    let body = body.to_string();
    let head = format!("POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    gateway.client().await.ask(format!("{head}{body}")).await
}

fn parsed(message: &Message) -> Value {
    serde_json::from_str(&message.text()).unwrap_or_else(|error| panic!("{error}: {}", message.text()))
}

#[tokio::test]
async fn mcp_calls_over_a_limit_get_json_rpc_errors() {
    let gateway = gateway(
        "    reject: jsonrpc
    limits:
      - { name: search, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h,
          when: { json: { /method: tools/call, /params/name: search } } }",
    )
    .await;
    let call = |id: Value, name: &str| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name } });
    assert_eq!(post(&gateway, &json!([call(json!(1), "search"), call(json!(2), "search")])).await.text(), "");
    let rejected = post(&gateway, &call(json!(7), "search")).await;
    assert_eq!(rejected.status(), 200);
    assert_eq!(rejected.field("content-type").as_deref(), Some("application/json"));
    let body = parsed(&rejected);
    assert_eq!((&body["jsonrpc"], &body["id"], &body["error"]["code"]), (&json!("2.0"), &json!(7), &json!(-32_029)));
    assert_eq!(body["error"]["data"]["limits"], json!(["search"]));
    assert!(body["error"]["data"]["retry_after"].as_u64().is_some_and(|seconds| seconds > 3_590), "{body}");
    // A batch is one decision: the errors are for all of its calls.
    let batch = json!([call(json!("a"), "read"), call(json!("b"), "search"), { "method": "notifications/progress" }]);
    let errors = parsed(&post(&gateway, &batch).await);
    let ids: Vec<_> = errors.as_array().expect("errors").iter().map(|error| error["id"].clone()).collect();
    assert_eq!(ids, [json!("a"), json!("b")]);
    let notification = json!({ "method": "tools/call", "params": { "name": "search" } });
    assert_eq!(post(&gateway, &notification).await.status(), 429);
    assert_eq!(post(&gateway, &call(json!(8), "read")).await.text(), "");
}

#[tokio::test]
async fn openai_clients_get_their_errors_and_fields() {
    let limits = "    reject: openai
    headers: [openai]
    limits: [{ name: calls, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h }]";
    let gateway = gateway(limits).await;
    let granted = post(&gateway, &json!({})).await;
    assert_eq!(granted.field("x-ratelimit-limit-requests").as_deref(), Some("1"));
    assert_eq!(granted.field("x-ratelimit-remaining-requests").as_deref(), Some("0"));
    assert_eq!(granted.field("x-ratelimit-reset-requests").as_deref(), Some("1h0m0s"));
    assert_eq!((granted.field("x-ratelimit-limit-tokens"), granted.field("ratelimit")), (None, None));
    let rejected = post(&gateway, &json!({})).await;
    let error = parsed(&rejected)["error"].clone();
    assert_eq!((rejected.status(), &error["code"]), (429, &json!("rate_limit_exceeded")));
    assert_eq!((&error["type"], rejected.field("x-should-retry")), (&json!("requests"), None));
}

#[tokio::test]
async fn anthropic_clients_get_their_errors_and_fields() {
    let limits = "    reject: anthropic
    headers: [ietf, anthropic]
    limits: [{ name: calls, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h }]";
    let gateway = gateway(limits).await;
    let granted = post(&gateway, &json!({})).await;
    assert_eq!(granted.field("anthropic-ratelimit-requests-remaining").as_deref(), Some("0"));
    let reset = granted.field("anthropic-ratelimit-requests-reset").expect("a reset");
    assert!(reset.len() >= 20 && reset.ends_with('Z'), "{reset}");
    assert!(granted.field("ratelimit").is_some());
    let rejected = post(&gateway, &json!({})).await;
    let body = parsed(&rejected);
    assert_eq!((rejected.status(), &body["error"]["type"]), (429, &json!("rate_limit_error")));
    assert_eq!(body["request_id"].as_str().map(str::to_owned), rejected.field("x-request-id"));
    let millis = rejected.field("retry-after-ms").and_then(|millis| millis.parse::<u64>().ok());
    assert!(millis.is_some_and(|millis| millis <= 3_600_000), "{millis:?}");
    assert!(rejected.field("retry-after").is_some());
}
