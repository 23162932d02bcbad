//! Open reservations while the rules change: they are settled by the rules that have made them.

use serde_json::json;

use super::model::{INPUT, Model};
use super::{RESERVE, ask, gateway, patient, until_remaining};
use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::wire::until;

/// Returns rules whose limit `tokens` has the same bucket, and is no budget.
fn fixed_cost(model: &Model, store: &str) -> String {
    format!(
        "store: {store}
upstreams: {{ llm: {{ targets: ['http://{}'] }} }}
routes:
  - name: chat
    match: {{ path: /chat }}
    upstream: llm
    limits: [{{ name: tokens, mode: PER_CLIENT, client: ip, rate: 1000, interval: 1d, permits: 100 }}]",
        model.origin.address
    )
}

#[tokio::test]
async fn gateways_with_old_and_new_rules_settle_exactly() {
    let Some(redis) = RedisServer::start() else { return };
    let model = Model::start().await;
    let old = gateway(&model, &patient(&redis), 1_000, RESERVE);
    let new = TestGateway::start(&fixed_cost(&model, &patient(&redis)));
    let held = json!({ "messages": [], "tokens": 20, "stream": true, "held": true });
    let fixed = async {
        until(|| model.streams() > 0).await;
        let status = ask(&new, &json!({ "messages": [] })).await.status();
        model.release(20);
        status
    };
    let (stream, status) = tokio::join!(ask(&old, &held), fixed);
    assert_eq!((stream.status(), status), (200, 200));
    for gateway in [&old, &new] {
        until_remaining(gateway, 1_000 - 100 - (INPUT + 20)).await;
    }
}

#[tokio::test]
async fn reload_keeps_open_reservations() {
    let redis = RedisServer::start();
    for store in ["memory".to_owned()].into_iter().chain(redis.as_ref().map(patient)) {
        let model = Model::start().await;
        let gateway = gateway(&model, &store, 1_000, RESERVE);
        let held = json!({ "messages": [], "tokens": 20, "stream": true, "held": true });
        let reload = async {
            until(|| model.streams() > 0).await;
            drop(gateway.reload(&fixed_cost(&model, &store)));
            assert_eq!(ask(&gateway, &json!({ "messages": [] })).await.status(), 200);
            model.release(20);
        };
        assert_eq!(tokio::join!(ask(&gateway, &held), reload).0.status(), 200);
        until_remaining(&gateway, 1_000 - 100 - (INPUT + 20)).await;
    }
}
