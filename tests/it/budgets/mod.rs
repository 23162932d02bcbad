//! Limits of the tokens that responses of a language model report.

mod checked;
mod forms;
mod kills;
mod late_charges;
mod leaving;
mod local;
mod midnight;
mod model;
mod operators;
mod outages;
mod prices;
mod reload;
mod top_up;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use serde_json::{Value, json};

use self::model::{INPUT, Model};
use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Message;
use crate::support::wire::{eventually, soon, until};

/// A gateway with a budget of tokens in a day.
fn gateway(model: &Model, store: &str, tokens: u64, permits: &str) -> TestGateway {
    TestGateway::start(&format!(
        "store: {store}
upstreams: {{ llm: {{ targets: ['http://{}'] }} }}
routes:
  - name: chat
    match: {{ path: /chat }}
    upstream: llm
    limits:
      - {{ name: tokens, mode: PER_CLIENT, client: ip, rate: {tokens}, interval: 1d, permits: {{ usage: openai, {permits} }} }}
  - {{ name: rest, match: {{ path: /** }}, upstream: llm }}",
        model.origin.address
    ))
}

fn request(fields: &str, body: &str) -> String {
    format!("POST /chat HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
}

async fn ask(gateway: &TestGateway, body: &Value) -> Message {
    gateway.client().await.ask(request("", &body.to_string())).await
}

async fn remaining(gateway: &TestGateway) -> u64 {
    // On a busy machine, the call to the store may end by its timeout.
    let text = soon(async {
        loop {
            let response = gateway.api_get("limits/chat/tokens/client?address=127.0.0.1").await;
            if response.status() != 503 {
                return response.text();
            }
        }
    })
    .await;
    let state: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    state["remaining"].as_u64().unwrap_or_else(|| panic!("{text}"))
}

/// The store of a rule file. On a busy machine, a call must not end by its timeout: the share of a gateway would decide.
fn patient(redis: &RedisServer) -> String {
    format!("{{ url: '{}', timeout: 10s }}", redis.url())
}

/// Waits until the budget has this many permits. A client can have the whole response before the gateway has settled it.
async fn until_remaining(gateway: &TestGateway, permits: u64) {
    eventually(async || remaining(gateway).await == permits).await;
}

const RESERVE: &str = "reserve: { output: 50 }";

#[tokio::test]
async fn usage_of_a_response_is_charged() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 1_000, RESERVE);
    let response = ask(&gateway, &json!({ "messages": [], "tokens": 20 })).await;
    assert_eq!(response.status(), 200, "{}", response.text());
    until_remaining(&gateway, 1_000 - INPUT - 20).await;
    assert_eq!(model.last_body()["max_completion_tokens"], 50, "a request without a bound gets one");
    assert_eq!(model.origin.last_request().field("accept-encoding").as_deref(), Some("identity"));
    ask(&gateway, &json!({ "messages": [], "tokens": 20, "max_tokens": 30 })).await;
    assert_eq!(model.last_body()["max_completion_tokens"], Value::Null);
    until_remaining(&gateway, 1_000 - 2 * (INPUT + 20)).await;
}

#[tokio::test]
async fn weights_make_output_dearer() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 1_000, "weights: { input: 0.5, output: 4 }, reserve: { output: 50 }");
    ask(&gateway, &json!({ "messages": [], "tokens": 20 })).await;
    until_remaining(&gateway, 1_000 - INPUT / 2 - 80).await;
}

#[tokio::test]
async fn stream_keeps_its_usage_event_only_if_the_client_asks() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 1_000, RESERVE);
    let body = json!({ "messages": [], "tokens": 3, "stream": true });
    let text = ask(&gateway, &body).await.text();
    assert!(!text.contains("prompt_tokens") && text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(model.last_body()["stream_options"], json!({ "include_usage": true }));
    until_remaining(&gateway, 1_000 - INPUT - 3).await;
    let mut asking = body;
    asking["stream_options"] = json!({ "include_usage": true });
    assert!(ask(&gateway, &asking).await.text().contains("prompt_tokens"));
    until_remaining(&gateway, 1_000 - 2 * (INPUT + 3)).await;
}

#[tokio::test]
async fn request_above_the_budget_is_rejected_at_the_door() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 200, RESERVE);
    let bound = |tokens: u64| json!({ "messages": [], "max_tokens": tokens });
    let rejected = ask(&gateway, &bound(190)).await;
    assert_eq!(rejected.status(), 429, "{}", rejected.text());
    assert!(rejected.field("retry-after").is_none(), "waiting cannot help");
    assert_eq!(model.sent(), 0);
    assert_eq!(ask(&gateway, &bound(100)).await.status(), 200);
    until_remaining(&gateway, 200 - INPUT - 20).await;
}

#[tokio::test]
async fn absent_usage_costs_the_reservation() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 1_000, RESERVE);
    let body = json!({ "messages": [], "max_tokens": 50, "silent": true });
    let mut left = 1_000;
    for stream in [false, true] {
        let mut body = body.clone();
        body["stream"] = stream.into();
        ask(&gateway, &body).await;
        left -= 50 + body.to_string().len() as u64;
        until_remaining(&gateway, left).await;
    }
}

#[tokio::test]
async fn errors_of_the_upstream_cost_nothing() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 1_000, RESERVE);
    for status in [400, 429, 500] {
        assert_eq!(ask(&gateway, &json!({ "messages": [], "status": status })).await.status(), status);
    }
    until_remaining(&gateway, 1_000).await;
}

#[tokio::test]
async fn unreachable_upstream_costs_nothing() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 1_000, RESERVE);
    drop(gateway.reload(&format!(
        "upstreams: {{ llm: {{ targets: ['http://{}'] }} }}
routes:
  - name: chat
    match: {{ path: /chat }}
    upstream: llm
    limits: [{{ name: tokens, mode: PER_CLIENT, client: ip, rate: 1000, interval: 1d, permits: {{ usage: openai, {RESERVE} }} }}]",
        crate::support::wire::upstream::Origin::closed_port()
    )));
    assert_eq!(ask(&gateway, &json!({ "messages": [] })).await.status(), 502);
    until_remaining(&gateway, 1_000).await;
}

/// The gateway reads the rest of the response.
#[tokio::test]
async fn client_that_leaves_pays_for_the_whole_response() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 1_000, RESERVE);
    let body = json!({ "messages": [], "tokens": 30, "stream": true, "held": true }).to_string();
    let mut client = gateway.client().await;
    client.send(request("", &body)).await;
    client.head().await.expect("a head");
    drop(client);
    model.release(30);
    until_remaining(&gateway, 1_000 - INPUT - 30).await;
    assert_eq!(model.sent(), INPUT + 30);
}

/// Regression test: a runtime that ends drops the task that reads the rest, which gave the rest to the runtime again, without end.
#[tokio::test]
async fn gateway_ends_during_streams_of_a_budget() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 1_000, RESERVE);
    let body = json!({ "messages": [], "tokens": 30, "stream": true, "held": true });
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = gateway.client().await;
        client.send(request("", &body.to_string())).await;
        assert_eq!(client.head().await.expect("a head").status(), 200);
        clients.push(client);
    }
    clients.truncate(2);
    drop(gateway);
}

#[tokio::test]
async fn client_that_leaves_pays_its_reservation_with_cancel() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 1_000, "reserve: { output: 50 }, on_disconnect: cancel");
    let body = json!({ "messages": [], "tokens": 1_000, "stream": true, "held": true, "max_tokens": 50 }).to_string();
    let mut client = gateway.client().await;
    client.send(request("", &body)).await;
    client.head().await.expect("a head");
    drop(client);
    let reserved = 50 + body.len() as u64;
    until_remaining(&gateway, 1_000 - reserved).await;
}

/// The law of budgets: requests in flight together never cost more than the budget.
#[tokio::test]
async fn concurrent_streams_stay_within_the_budget() {
    let redis = RedisServer::start();
    let stores = ["memory".to_owned()].into_iter().chain(redis.as_ref().map(patient));
    for store in stores {
        let model = Model::start().await;
        let gateway = gateway(&model, &store, 10_000, RESERVE);
        let rejected = AtomicU64::new(0);
        let ask = async |number: u64| {
            let tokens = 20 + number % 30;
            let body = json!({ "messages": [], "tokens": tokens, "max_tokens": 200, "stream": true, "held": true });
            let status = ask(&gateway, &body).await.status();
            assert!(matches!(status, 200 | 429), "{status}");
            rejected.fetch_add(u64::from(status == 429), Ordering::SeqCst);
        };
        for round in 1..=4 {
            // All streams are open at once.
            let all_are_decided = until(|| model.streams() + rejected.load(Ordering::SeqCst) == round * 200);
            let release = async {
                all_are_decided.await;
                model.release(50 * 200);
            };
            tokio::join!(join_all((0..200).map(ask)), release);
            model.hold();
            assert!(model.sent() <= 10_000, "{} tokens", model.sent());
        }
        assert!(model.streams() > 40, "{store}: {} requests", model.streams());
        until_remaining(&gateway, 10_000 - model.sent()).await;
    }
}

#[tokio::test]
async fn cost_above_the_bound_is_debt() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 200, RESERVE);
    ask(&gateway, &json!({ "messages": [], "tokens": 500, "max_tokens": 50 })).await;
    until_remaining(&gateway, 0).await;
    assert_eq!(ask(&gateway, &json!({ "messages": [], "max_tokens": 1 })).await.status(), 429);
}

#[tokio::test]
async fn body_without_a_single_meaning_is_rejected() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 1_000, RESERVE);
    let reject = async |fields: &str, body: &str| {
        let response = gateway.client().await.ask(request(fields, body)).await;
        let problem: Value = serde_json::from_str(&response.text()).expect("a problem");
        (response.status(), problem["detail"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(
        reject("", r#"{"max_tokens":1,"max_tokens":9}"#).await,
        (400, "the body has `/max_tokens` twice".to_owned())
    );
    assert_eq!(reject("", "hello").await.0, 400);
    assert_eq!(reject("Content-Encoding: gzip\r\n", "{}").await.0, 415);
    let signed = reject("Authorization: AWS4-HMAC-SHA256 Credential=a\r\n", r#"{"messages":[]}"#).await;
    assert_eq!(signed, (400, "the body is signed and has no bound of its output".to_owned()));
    let (status, detail) = reject("", r#"{"messages":[],"web_search_options":{}}"#).await;
    assert_eq!((status, detail.contains("`/web_search_options`")), (400, true), "{detail}");
    assert_eq!(reject("", &format!("[{}]", "1,".repeat(600_000))).await.0, 413);
    assert_eq!((model.sent(), remaining(&gateway).await), (0, 1_000));
}

#[tokio::test]
async fn request_without_a_slot_reserves_nothing() {
    let redis = RedisServer::start();
    for store in ["memory".to_owned()].into_iter().chain(redis.as_ref().map(patient)) {
        let model = Model::start().await;
        let gateway = TestGateway::start(&format!(
            "store: {store}
upstreams: {{ llm: {{ targets: ['http://{}'] }} }}
routes:
  - name: chat
    match: {{ path: /chat }}
    upstream: llm
    concurrency: {{ max: 1 }}
    limits: [{{ name: tokens, mode: PER_CLIENT, client: ip, rate: 1000, interval: 1d, permits: {{ usage: openai, {RESERVE} }} }}]",
            model.origin.address
        ));
        let slow = json!({ "messages": [], "tokens": 20, "stream": true, "held": true });
        let long = async { ask(&gateway, &slow).await.status() };
        let busy = async {
            until(|| model.streams() > 0).await;
            let status = ask(&gateway, &slow).await.status();
            model.release(20);
            status
        };
        assert_eq!(tokio::join!(long, busy), (200, 503), "{store}");
        until_remaining(&gateway, 1_000 - INPUT - 20).await;
    }
}

#[tokio::test]
async fn gateways_share_a_budget_through_redis() {
    let Some(redis) = RedisServer::start() else { return };
    let model = Arc::new(Model::start().await);
    let [first, second] = [(); 2].map(|()| gateway(&model, &patient(&redis), 300, RESERVE));
    let slow = json!({ "messages": [], "tokens": 20, "max_tokens": 150, "stream": true, "held": true });
    let long = async { ask(&first, &slow).await.status() };
    let refused = async {
        until(|| model.streams() > 0).await;
        let refused = ask(&second, &slow).await;
        model.release(20);
        refused
    };
    let (long, refused) = tokio::join!(long, refused);
    assert_eq!((long, refused.status()), (200, 429), "the reservation of one gateway counts at the other");
    assert_eq!(refused.field("retry-after").as_deref(), Some("1"));
    until_remaining(&second, 300 - INPUT - 20).await;
    assert_eq!(ask(&second, &json!({ "messages": [] })).await.status(), 200);
}
