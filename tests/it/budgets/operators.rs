//! The view of operators and clients on a budget.

use serde_json::{Value, json};

use super::model::{INPUT, Model};
use super::{RESERVE, ask, gateway, patient, until_remaining};
use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::wire::{eventually, until};

pub(super) async fn figures(gateway: &TestGateway) -> [u64; 4] {
    let text = gateway.api_get("limits/chat/tokens/client?address=127.0.0.1").await.text();
    let state: Value = serde_json::from_str(&text).expect("JSON");
    ["remaining", "used", "reserved", "debt"].map(|key| state[key].as_u64().unwrap_or_else(|| panic!("{key}: {text}")))
}

async fn counter(gateway: &TestGateway, name: &str, more: &str) -> u64 {
    gateway.counter(&format!("tidegate_budget_{name}_total{{route=\"chat\",limit=\"tokens\"{more}}} ")).await
}

#[tokio::test]
async fn figures_of_a_client_have_its_reservations_and_its_debt() {
    let redis = RedisServer::start();
    for store in ["memory".to_owned()].into_iter().chain(redis.as_ref().map(patient)) {
        let model = Model::start().await;
        let gateway = gateway(&model, &store, 1_000, RESERVE);
        let held = json!({ "messages": [], "tokens": 20, "max_tokens": 50, "stream": true, "held": true });
        let reserved = 50 + held.to_string().len() as u64;
        let read = async {
            until(|| model.streams() > 0).await;
            assert_eq!(figures(&gateway).await, [1_000 - reserved, 0, reserved, 0], "{store}");
            model.release(20);
        };
        tokio::join!(ask(&gateway, &held), read);
        until_remaining(&gateway, 1_000 - (INPUT + 20)).await;
        assert_eq!(figures(&gateway).await, [1_000 - (INPUT + 20), INPUT + 20, 0, 0], "{store}");
        ask(&gateway, &json!({ "messages": [], "tokens": 1_500, "max_tokens": 50 })).await;
        until_remaining(&gateway, 0).await;
        let spent = 2 * INPUT + 20 + 1_500;
        assert_eq!(figures(&gateway).await, [0, spent, 0, spent - 1_000], "{store}");
    }
}

#[tokio::test]
async fn metrics_count_costs_and_absent_usages() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 1_000, RESERVE);
    ask(&gateway, &json!({ "messages": [], "tokens": 20 })).await;
    until_remaining(&gateway, 1_000 - INPUT - 20).await;
    assert_eq!(counter(&gateway, "settled", "").await, INPUT + 20);
    let silent = json!({ "messages": [], "max_tokens": 50, "silent": true });
    let bound = 50 + silent.to_string().len() as u64;
    ask(&gateway, &silent).await;
    eventually(async || counter(&gateway, "usage_missing", "").await == 1).await;
    assert_eq!(counter(&gateway, "settled", "").await, INPUT + 20 + bound);
    let long = json!({ "messages": [], "tokens": 200, "max_tokens": 50 });
    let unreserved = INPUT + 200 - 50 - long.to_string().len() as u64;
    ask(&gateway, &long).await;
    eventually(async || counter(&gateway, "debt", "").await == unreserved).await;
}

/// Each share is passed once, by whichever gateway.
#[tokio::test]
async fn passing_of_a_share_is_counted_once() {
    let Some(redis) = RedisServer::start() else { return };
    let model = Model::start().await;
    let gateways = [(); 2].map(|()| gateway(&model, &patient(&redis), 300, RESERVE));
    let passed = async |percent: &str| {
        let [one, other] = &gateways;
        let more = format!(",percent=\"{percent}\"");
        counter(one, "passed", &more).await + counter(other, "passed", &more).await
    };
    for (request, tokens) in [100, 100, 50, 60, 100].into_iter().enumerate() {
        let used = [0, 100, 200, 250, 310][request];
        let expected = [u64::from(used >= 240), u64::from(used >= 300)];
        eventually(async || [passed("80").await, passed("100").await] == expected).await;
        let body = json!({ "messages": [], "tokens": tokens - INPUT, "max_tokens": 1 });
        let status = ask(&gateways[request % 2], &body).await.status();
        assert_eq!(status, if used < 300 { 200 } else { 429 }, "after {used}");
        until_remaining(&gateways[0], 300_u64.saturating_sub(if used < 300 { used + tokens } else { used })).await;
    }
}

#[tokio::test]
async fn clients_see_their_budget_in_their_quota() {
    let model = Model::start().await;
    let gateway = TestGateway::start(&format!(
        "upstreams: {{ llm: {{ targets: ['http://{}'] }} }}
routes:
  - name: chat
    match: {{ path: /chat }}
    upstream: llm
    quota: /quota
    limits:
      - {{ name: tokens, mode: PER_CLIENT, client: ip, rate: 1000, interval: 1d, permits: {{ usage: openai, {RESERVE} }} }}
      - {{ name: calls, mode: PER_CLIENT, client: ip, rate: 9, interval: 1d }}",
        model.origin.address
    ));
    ask(&gateway, &json!({ "messages": [], "tokens": 20 })).await;
    until_remaining(&gateway, 1_000 - INPUT - 20).await;
    let quota: Value = serde_json::from_str(&gateway.get("/quota", "").await.text()).expect("JSON");
    let [tokens, calls] = [0, 1].map(|index| quota["limits"][index].clone());
    let figures = ["remaining", "spent", "reserved", "debt"].map(|key| tokens[key].clone());
    assert_eq!(figures, [970, 30, 0, 0].map(Value::from));
    assert_eq!(calls["spent"], Value::Null);
}
