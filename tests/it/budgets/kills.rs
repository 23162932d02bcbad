//! A gateway that is killed while a stream runs: its reservation is charged, and no gateway grants its permits again.

use std::net::SocketAddr;

use deadpool_redis::redis::Commands;
use serde_json::json;

use super::model::{INPUT, Model};
use super::{patient, request};
use crate::support::process::{Program, RuleFile};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;
use crate::support::wire::{eventually, until};

const BUDGET: u64 = 300;

fn start(model: &Model, redis: &RedisServer, name: &str) -> (Program, SocketAddr) {
    let rules = format!(
        "listen: 127.0.0.1:0
admin: 127.0.0.1:0
store: {}
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
        permits: {{ usage: openai, max_input: 10, reserve: {{ output: 50 }} }}",
        patient(redis),
        model.origin.address
    );
    let (program, address, _) = Program::run(&RuleFile::new(&format!("budgets-{name}"), &rules), &["--workers", "1"]);
    (program, address)
}

/// Sends requests of 30 tokens until one is rejected. Returns the number of admitted ones.
async fn spend_all(address: SocketAddr) -> u64 {
    let body = json!({ "messages": [], "tokens": 20, "max_tokens": 20 }).to_string();
    for admitted in 0..100 {
        match Raw::connect(address).await.ask(request("", &body)).await.status() {
            200 => {}
            429 => return admitted,
            status => panic!("{status}"),
        }
    }
    panic!("no request is rejected");
}

/// Returns `true` if the lease of a gateway has ended.
fn has_lost_lease(redis: &RedisServer) -> bool {
    let mut redis = redis.connection();
    let keys: Vec<Vec<u8>> = redis.keys("*:@holders*").expect("keys");
    let fields = keys.iter().flat_map(|key| redis.hkeys::<_, Vec<Vec<u8>>>(key).expect("fields"));
    fields.collect::<Vec<_>>().iter().any(|field| field.len() == 9 && field[0] == b'-')
}

#[tokio::test]
async fn killed_gateway_keeps_its_reservation_charged() {
    let Some(redis) = RedisServer::start() else { return };
    let model = Model::start().await;
    let (first, address) = start(&model, &redis, "killed");
    let (_second, other) = start(&model, &redis, "other");
    let stream = json!({ "messages": [], "tokens": 100, "max_tokens": 100, "stream": true, "held": true }).to_string();
    let mut client = Raw::connect(address).await;
    client.send(request("", &stream)).await;
    model.release(30);
    until(|| model.sent() == INPUT + 30).await;
    first.signal("KILL");
    first.wait_for_exit();
    assert!(spend_all(other).await > 0);
    assert!(model.sent() <= BUDGET, "{} tokens", model.sent());
    eventually(async || spend_all(other).await > 0 || has_lost_lease(&redis)).await;
    let (_restarted, again) = start(&model, &redis, "restarted");
    for gateway in [other, again] {
        assert_eq!(spend_all(gateway).await, 0, "permits of the killed gateway are granted again");
    }
    assert!((BUDGET / 2..=BUDGET).contains(&model.sent()), "{} tokens", model.sent());
}
