//! Budgets while Redis is unreachable: the share of the gateway decides.

use serde_json::json;

use super::model::{INPUT, Model};
use super::{RESERVE, ask, gateway, until_remaining};
use crate::support::redis::RedisServer;

const USAGE: u64 = INPUT + 20;

/// A request reserves 91 permits and uses 30.
#[tokio::test]
async fn share_keeps_only_the_usage_of_a_request() {
    let Some(redis) = RedisServer::start() else { return };
    let (model, port) = (Model::start().await, redis.port);
    let gateway = gateway(&model, &redis.url(), 200, RESERVE);
    // A stream is settled before its end reaches the client.
    let status = async || ask(&gateway, &json!({ "messages": [], "tokens": 20, "stream": true })).await.status();
    assert_eq!(status().await, 200);
    until_remaining(&gateway, 200 - USAGE).await;
    drop(redis);
    gateway.until_config_has(&[r#""state":"down""#]).await;
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(status().await);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429], "the share has no permits for the fifth reservation");
    let _redis = RedisServer::start_on(port);
    gateway.until_config_has(&[r#""state":"up""#, r#""owed":0"#]).await;
    // Redis has lost its data, so it has only the usage of the outage.
    until_remaining(&gateway, 200 - 4 * USAGE).await;
}
