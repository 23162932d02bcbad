//! Budgets of money: a request costs the price of its model.

use serde_json::{Value, json};

use super::model::{INPUT, Model};
use super::{ask, request, until_remaining};
use crate::support::gateway::TestGateway;

/// Tokens of the output.
const OUTPUT: u64 = 20;

/// A gateway with a budget of money in a day.
fn gateway(model: &Model, rate: u64, prices: &str) -> TestGateway {
    TestGateway::start(&format!(
        "store: memory
upstreams: {{ llm: {{ targets: ['http://{}'] }} }}
routes:
  - name: chat
    match: {{ path: /chat }}
    upstream: llm
    limits: [{{ name: tokens, mode: PER_CLIENT, client: ip, rate: {rate}, interval: 1d, permits: {{
      usage: openai, prices: {prices}, reserve: {{ output: 50 }} }} }}]",
        model.origin.address
    ))
}

fn body(model: &str) -> Value {
    json!({ "messages": [], "tokens": OUTPUT, "model": model })
}

#[tokio::test]
async fn price_of_the_model_is_charged() {
    let model = Model::start().await;
    let gateway = gateway(&model, 1_000_000, "tests/fixtures/prices.yaml");
    let mut left = 1_000_000;
    for (name, cost) in [("small", INPUT + OUTPUT), ("large-2", 10 * INPUT + 50 * OUTPUT)] {
        assert_eq!(ask(&gateway, &body(name)).await.status(), 200);
        left -= cost;
        until_remaining(&gateway, left).await;
    }
}

/// With a large model, a request without a bound reserves 2,500 for its output.
#[tokio::test]
async fn price_of_the_model_is_reserved() {
    let model = Model::start().await;
    let gateway = gateway(&model, 2_000, "tests/fixtures/prices.yaml");
    assert_eq!(ask(&gateway, &body("large")).await.status(), 429);
    assert_eq!(ask(&gateway, &body("small")).await.status(), 200);
    until_remaining(&gateway, 2_000 - INPUT - OUTPUT).await;
}

#[tokio::test]
async fn model_without_a_price_is_rejected() {
    let model = Model::start().await;
    let gateway = gateway(&model, 1_000_000, "tests/fixtures/prices.yaml");
    for unknown in [body("larg"), json!({ "messages": [] }), json!({ "messages": [], "model": null })] {
        let response = gateway.client().await.ask(request("", &unknown.to_string())).await;
        assert_eq!(response.status(), 400, "{unknown}");
        assert!(response.text().contains("no price is known for the model"), "{}", response.text());
    }
    assert_eq!(model.sent(), 0);
    until_remaining(&gateway, 1_000_000).await;
}

#[tokio::test]
async fn default_price_is_for_all_other_models() {
    let model = Model::start().await;
    let gateway = gateway(&model, 1_000_000, "tests/fixtures/every_key/prices/models.yaml");
    assert_eq!(ask(&gateway, &body("other")).await.status(), 200);
    until_remaining(&gateway, 1_000_000 - 30 * INPUT - 120 * OUTPUT).await;
}
