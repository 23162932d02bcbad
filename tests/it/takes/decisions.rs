//! The decisions about requests for permits, and the buckets that they share with requests to routes and calls of proxies.

use serde_json::{Value, json};

use super::{TakeService, json_of, one};

#[tokio::test]
async fn response_has_the_decision_of_each_limit() {
    let service = TakeService::start("memory");
    let body = json!({ "limits": [
        { "limit": "orders/per-ip", "client": "192.0.2.1", "permits": 3 },
        { "limit": "@/daily" },
        { "limit": "edge/per-user", "client": "alice", "permits": 5 },
    ] });
    let (status, taken) = service.take(&body).await;
    let remaining = |body: &Value| {
        let limits = body["limits"].as_array().expect("a list").iter();
        limits.map(|limit| (limit["granted"].clone(), limit["remaining"].clone())).collect::<Vec<_>>()
    };
    assert_eq!((status, &taken["granted"], &taken["wait_ms"]), (200, &json!(true), &json!(0)));
    assert_eq!(taken["limits"][0]["limit"], "orders/per-ip");
    assert_eq!(remaining(&taken), [(json!(true), json!(2)), (json!(true), json!(19)), (json!(true), json!(0))]);
    let hour = 3_600_000;
    let (wait, reset) = (&taken["limits"][0]["wait_ms"], taken["limits"][0]["reset_ms"].as_u64());
    assert!(*wait == 0 && reset.is_some_and(|reset| (hour - 60_000..=hour).contains(&reset)), "{taken}");

    let response = service.post("/v1/take", "", &body.to_string()).await;
    let refused = json_of(&response);
    assert_eq!((response.status(), &refused["granted"]), (429, &json!(false)));
    // The limit of all clients would have granted, and was not charged.
    assert_eq!(remaining(&refused), [(json!(false), json!(2)), (json!(true), json!(19)), (json!(false), json!(0))]);
    let wait = refused["wait_ms"].as_u64().expect("a wait");
    assert_eq!(response.field("retry-after"), Some(wait.div_ceil(1_000).to_string()));
    assert_eq!(service.take_one("@/daily", Value::Null, 1).await, (200, json!(18)));
}

#[tokio::test]
async fn program_shares_buckets_with_requests() {
    let service = TakeService::start("memory");
    // The address of the client, in both forms.
    assert_eq!(service.take_one("orders/per-ip", "127.0.0.1", 2).await, (200, json!(3)));
    assert_eq!(service.take_one("orders/per-ip", "::ffff:127.0.0.1", 1).await, (200, json!(2)));
    let (target, key) = ("/orders?tenant=one", "X-Api-Key: K\r\n");
    assert_eq!(service.take_one("orders/per-key", json!(["K", "one"]), 4).await, (200, json!(1)));
    assert_eq!(service.order(target, key).await, 200);
    assert_eq!(service.take_one("orders/per-key", json!(["K", "one"]), 1).await.0, 429);
    assert_eq!(service.order(target, key).await, 429);
    assert_eq!(service.take_one("orders/per-ip", "127.0.0.1", 1).await, (200, json!(0)));
    assert_eq!(service.order("/orders", "").await, 429);
}

#[tokio::test]
async fn program_shares_buckets_with_calls_of_proxies() {
    let service = TakeService::start("memory");
    let call = json!({ "domain": "edge", "descriptors": [{ "entries": [{ "key": "user", "value": "ann" }] }] });
    let asked = service.post("/json", "", &call.to_string()).await;
    assert_eq!(json_of(&asked)["statuses"][0]["limitRemaining"], 4);
    assert_eq!(service.take_one("edge/per-user", "ann", 2).await, (200, json!(2)));
    assert_eq!(service.take_one("/edge/per-user", "ann", 2).await, (200, json!(0)));
    assert_eq!(service.post("/json", "", &call.to_string()).await.status(), 429);
}

#[tokio::test]
async fn limit_of_a_route_precedes_a_domain() {
    let service = TakeService::start("memory");
    assert_eq!(service.take_one("jobs/total", Value::Null, 1).await, (200, json!(4)));
    assert_eq!(service.take_one("/jobs/total", Value::Null, 1).await, (200, json!(2)));
    assert_eq!(service.take_one("edge/total", Value::Null, 1).await, (200, json!(4)));
}

#[tokio::test]
async fn shadow_never_refuses_a_program() {
    let service = TakeService::start("memory");
    assert_eq!(service.take_one("orders/seen", Value::Null, 1).await, (200, json!(0)));
    let (status, body) = service.take(&one("orders/seen", Value::Null, 1)).await;
    assert_eq!((status, &body["limits"][0]["granted"], &body["limits"][0]["wait_ms"]), (200, &json!(true), &json!(0)));
}
