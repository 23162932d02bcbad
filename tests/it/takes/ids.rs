//! Requests for permits with an id: decided once, and given back once.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{RULES, TakeService, json_of};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Message;

/// Returns a request for permits of a client of a domain and of a route, with an id.
fn with_id(id: &str, permits: u32) -> Value {
    json!({ "limits": [
        { "limit": "edge/per-user", "client": "alice", "permits": permits },
        { "limit": "jobs/total", "permits": permits },
    ], "id": id })
}

async fn post(service: &TakeService, path: &str, body: &Value) -> Message {
    service.post(path, "", &body.to_string()).await
}

async fn give_back(service: &TakeService, id: &str) -> (u16, Value) {
    let response = post(service, "/v1/return", &json!({ "id": id })).await;
    (response.status(), json_of(&response)["returned"].clone())
}

/// Returns the permits that remain of both limits.
async fn remaining(service: &TakeService) -> [u64; 2] {
    let of_client = service.take_one("edge/per-user", "alice", 5).await;
    let of_all = service.take_one("jobs/total", Value::Null, 5).await;
    // Both are refused unless all 5 remain.
    [of_client, of_all].map(|(status, remaining)| if status == 200 { 5 } else { remaining.as_u64().expect("a number") })
}

/// The laws of ids, between two instances.
async fn keep_the_laws(services: [&TakeService; 2]) {
    let first = post(services[0], "/v1/take", &with_id("a", 2)).await;
    assert_eq!((first.status(), first.field("idempotent-replayed")), (200, None));
    assert_eq!(json_of(&first)["remembered"], true);
    let again = post(services[1], "/v1/take", &with_id("a", 2)).await;
    assert_eq!((again.status(), again.field("idempotent-replayed").as_deref()), (200, Some("true")));
    assert_eq!(again.text(), first.text());
    let other = post(services[1], "/v1/take", &with_id("a", 1)).await;
    assert_eq!((other.status(), &json_of(&other)["detail"]), (409, &json!("`id` belongs to another request")));

    // A refused request is not remembered: it can be granted later.
    let refused = post(services[0], "/v1/take", &with_id("b", 4)).await;
    assert_eq!((refused.status(), &json_of(&refused)["remembered"]), (429, &json!(false)));
    assert_eq!(give_back(services[0], "b").await.0, 404);
    assert_eq!(remaining(services[0]).await, [3, 3]);

    assert_eq!(give_back(services[1], "a").await, (200, json!(true)));
    assert_eq!(give_back(services[0], "a").await, (200, json!(false)));
    let returned = post(services[0], "/v1/take", &with_id("a", 2)).await;
    assert_eq!(
        (returned.status(), &json_of(&returned)["detail"]),
        (409, &json!("the permits of this `id` were given back"))
    );
    let granted = post(services[1], "/v1/take", &with_id("b", 4)).await;
    assert_eq!(json_of(&granted)["limits"][0]["remaining"], 1);
    assert_eq!(give_back(services[1], "b").await, (200, json!(true)));
    assert_eq!(remaining(services[1]).await, [5, 5], "the buckets are as before");
}

#[tokio::test]
async fn id_is_decided_and_returned_once() {
    let service = TakeService::start("memory");
    keep_the_laws([&service, &service]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_decide_and_return_an_id_once() {
    let Some(redis) = RedisServer::start() else { return };
    let services = [(); 2].map(|()| TakeService::start(&redis.rule()));
    keep_the_laws([&services[0], &services[1]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn id_outlives_a_restart_of_the_gateway() {
    let Some(redis) = RedisServer::start_without_functions() else { return };
    let first = {
        let service = TakeService::start(&redis.rule());
        post(&service, "/v1/take", &with_id("a", 2)).await
    };
    let service = TakeService::start(&redis.rule());
    assert_eq!(post(&service, "/v1/take", &with_id("a", 2)).await.text(), first.text());
    assert_eq!(give_back(&service, "a").await, (200, json!(true)));
    assert_eq!(remaining(&service).await, [5, 5]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simultaneous_requests_with_an_id_charge_once() {
    let Some(redis) = RedisServer::start() else { return };
    let services = [(); 2].map(|()| Arc::new(TakeService::start(&redis.rule())));
    let (mut takes, mut returns) = (JoinSet::new(), JoinSet::new());
    for number in 0..50 {
        takes.spawn(post_to(&services[number % 2], "/v1/take", with_id("a", 2)));
    }
    let bodies: Vec<Message> = takes.join_all().await;
    assert!(bodies.iter().all(|response| response.status() == 200 && response.body == bodies[0].body));
    let new = bodies.iter().filter(|response| response.field("idempotent-replayed").is_none());
    assert_eq!(new.count(), 1);
    assert_eq!(remaining(&services[0]).await, [3, 3]);
    for number in 0..50 {
        returns.spawn(post_to(&services[number % 2], "/v1/return", json!({ "id": "a" })));
    }
    let returned = returns.join_all().await.into_iter().filter(|response| json_of(response)["returned"] == true);
    assert_eq!(returned.count(), 1);
    assert_eq!(remaining(&services[1]).await, [5, 5]);
}

fn post_to(
    service: &Arc<TakeService>,
    path: &'static str,
    body: Value,
) -> impl Future<Output = Message> + Send + 'static {
    let service = Arc::clone(service);
    async move { post(&service, path, &body).await }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn id_outlives_a_change_of_its_limits() {
    let Some(redis) = RedisServer::start() else { return };
    let body = |id: &str| json!({ "limits": [{ "limit": "jobs/safe", "permits": 2 }], "id": id });
    for store in ["memory".to_owned(), redis.rule()] {
        let service = TakeService::start(&store);
        let first = post(&service, "/v1/take", &body("a")).await;
        service.reload(&store, &RULES.replace("name: safe", "name: renamed"));
        assert_eq!(post(&service, "/v1/take", &body("b")).await.status(), 404);
        let again = post(&service, "/v1/take", &body("a")).await;
        assert_eq!((again.status(), again.text()), (200, first.text()));
        assert_eq!(give_back(&service, "a").await, (200, json!(true)));
        service.reload(&store, RULES);
        assert_eq!(service.take_one("jobs/safe", Value::Null, 5).await, (200, json!(0)));
    }
}
