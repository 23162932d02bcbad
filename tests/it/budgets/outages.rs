//! Redis that dies while a stream runs, and returns with its data.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::model::{INPUT, Model};
use super::{ask, until_remaining};
use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::wire::until;

const BUDGET: u64 = 300;

/// A folder that is deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// Starts a Redis on this port or a free one, which persists every write in the folder before it replies.
    fn start_redis(&self, port: Option<u16>) -> Option<RedisServer> {
        let folder = self.0.to_str().expect("a path in UTF-8");
        RedisServer::start_with(port, &["--appendonly", "yes", "--appendfsync", "always", "--dir", folder])
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(model: &Model, redis: &RedisServer) -> TestGateway {
    TestGateway::start(&format!(
        "store: {{ url: '{}', timeout: 10s }}
upstreams: {{ llm: {{ targets: ['http://{}'] }} }}
routes:
  - name: chat
    match: {{ path: /chat }}
    upstream: llm
    limits:
      - name: tokens
        mode: PER_CLIENT
        client: ip
        rate: {BUDGET}
        interval: 1d
        on_store_failure: deny
        permits: {{ usage: openai, max_input: 10, reserve: {{ output: 50 }} }}",
        redis.url(),
        model.origin.address
    ))
}

fn body(tokens: u64, is_held_stream: bool) -> Value {
    json!({ "messages": [], "tokens": tokens, "max_tokens": tokens, "stream": is_held_stream, "held": is_held_stream })
}

#[tokio::test]
async fn stream_over_an_outage_stays_within_the_budget() {
    for ends_in_outage in [true, false] {
        let folder = Folder::new(&format!("budgets-{ends_in_outage}"));
        let Some(redis) = folder.start_redis(None) else { return };
        let model = Model::start().await;
        let gateway = start(&model, &redis);
        let ask = async |body: Value| ask(&gateway, &body).await.status();
        let outage = async {
            model.release(20);
            until(|| model.sent() == INPUT + 20).await;
            let port = redis.port;
            drop(redis);
            gateway.until_config_has(&[r#""state":"down""#]).await;
            assert_eq!(ask(body(20, false)).await, 503);
            model.release(if ends_in_outage { 80 } else { 0 });
            let redis = folder.start_redis(Some(port)).expect("Redis returns");
            gateway.until_config_has(&[r#""state":"up""#]).await;
            while ask(body(20, false)).await == 200 {}
            assert!(model.sent() <= BUDGET, "{} tokens", model.sent());
            model.release(80);
            redis
        };
        let (stream, _redis) = tokio::join!(ask(body(100, true)), outage);
        assert_eq!(stream, 200);
        until_remaining(&gateway, BUDGET - model.sent()).await;
        assert!(model.sent() > BUDGET / 2, "{} tokens", model.sent());
    }
}
