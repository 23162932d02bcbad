//! The tokens that the upstream has sent, against the budget. The upstream counts them, so the count depends on nothing that
//! the gateway reads or charges.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::model::{INPUT, Model};
use super::{ask, gateway, patient, remaining, request, until_remaining};
use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::wire::until;

/// The bound of an input is what the model reports.
const EXACT: &str = "max_input: 10, reserve: { output: 50 }";

/// A request of this many tokens of output, which are also its bound. Its response is held.
fn held(tokens: u64) -> Value {
    json!({ "messages": [], "tokens": tokens, "max_tokens": tokens, "held": true })
}

/// Sends requests, and releases their responses when each was rejected or has reached the model. Returns the number of rejected
/// ones.
async fn send_together(gateway: &TestGateway, model: &Model, bodies: &[Value]) -> u64 {
    let (rejected, begun) = (AtomicU64::new(0), model.streams());
    let send = async |body: &Value| {
        let status = ask(gateway, body).await.status();
        assert!(matches!(status, 200 | 429), "{status}");
        rejected.fetch_add(u64::from(status == 429), Ordering::SeqCst);
    };
    let release = async {
        let count = bodies.len() as u64;
        until(|| model.streams() - begun + rejected.load(Ordering::SeqCst) == count).await;
        model.release(1_000 * count);
    };
    tokio::join!(join_all(bodies.iter().map(send)), release);
    model.hold();
    rejected.into_inner()
}

/// The requests of <https://github.com/BerriAI/litellm/issues/18730>: all of them passed, with 663 tokens.
#[tokio::test]
async fn five_concurrent_requests_stay_within_100_tokens() {
    let redis = RedisServer::start();
    for store in ["memory".to_owned()].into_iter().chain(redis.as_ref().map(patient)) {
        let model = Model::start().await;
        let gateway = gateway(&model, &store, 100, EXACT);
        let bodies = [58, 80, 175, 175, 175].map(|tokens| held(tokens - INPUT));
        assert_eq!(send_together(&gateway, &model, &bodies).await, 4, "{store}");
        assert!(matches!(model.sent(), 58 | 80), "{store}: {} tokens", model.sent());
        until_remaining(&gateway, 100 - model.sent()).await;
    }
}

#[tokio::test]
async fn responses_without_usage_stay_within_the_budget() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 1_000, EXACT);
    for round in 0..6 {
        let body = |number: u64| {
            let mut body = held(20 + number);
            (body["silent"], body["stream"]) = (true.into(), number.is_multiple_of(2).into());
            body
        };
        let rejected = send_together(&gateway, &model, &(0..20).map(body).collect::<Vec<_>>()).await;
        assert!(model.sent() <= 1_000, "{} tokens", model.sent());
        assert_eq!(rejected == 0, round == 0 && model.sent() == 790, "{rejected} in round {round}");
    }
    assert!(model.sent() > 900, "{} tokens", model.sent());
}

#[tokio::test]
async fn clients_that_leave_stay_within_the_budget() {
    for on_disconnect in ["drain", "cancel"] {
        let model = Model::start().await;
        let gateway = gateway(&model, "memory", 1_000, &format!("{EXACT}, on_disconnect: {on_disconnect}"));
        let mut body = held(30);
        body["stream"] = true.into();
        for _ in 0..60 {
            let mut client = gateway.client().await;
            client.send(request("", &body.to_string())).await;
            let head = client.head().await.expect("a head");
            assert!(matches!(head.status(), 200 | 429), "{}", head.start);
            drop(client);
            model.release(u64::from(head.status() == 200) * 30);
        }
        assert!((200..=1_000).contains(&model.sent()), "{on_disconnect}: {} tokens", model.sent());
    }
}

/// An upstream that does not obey a bound can exceed the budget by this excess, and by nothing else.
#[tokio::test]
async fn excess_above_a_bound_is_charged_as_debt() {
    let model = Model::start().await;
    let gateway = gateway(&model, "memory", 700, EXACT);
    let excessive = json!({ "messages": [], "tokens": 500, "max_tokens": 50, "held": true });
    let bodies: Vec<_> = std::iter::once(excessive).chain((0..9).map(|_| held(50))).collect();
    assert_eq!(send_together(&gateway, &model, &bodies).await, 0, "ten reservations of 60 permits");
    assert_eq!(model.sent(), 600 + 450);
    until_remaining(&gateway, 0).await;
    assert_eq!(send_together(&gateway, &model, &[held(1)]).await, 1);
    assert_eq!((model.sent(), remaining(&gateway).await), (600 + 450, 0));
}
