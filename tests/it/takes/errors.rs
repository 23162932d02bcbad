//! Requests for permits that have no decision.

use serde_json::{Value, json};

use super::{TakeService, json_of, one};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

#[tokio::test]
async fn invalid_requests_charge_nothing_and_have_a_help() {
    let service = TakeService::start("memory");
    let twice = json!({ "limits": [{ "limit": "jobs/total" }, { "limit": "jobs/total", "permits": 2 }] });
    for (body, status, detail) in [
        (one("jobs/none", Value::Null, 1), 404, "there is no limit `jobs/none`"),
        (one("none", Value::Null, 1), 404, "there is no limit `none`"),
        (one("edge/none", Value::Null, 1), 404, "there is no limit `edge/none`"),
        (
            one("jobs/total", "alice", 1),
            400,
            "`client` of `jobs/total`: the limit is OVERALL: all clients share its bucket",
        ),
        (
            one("orders/per-ip", Value::Null, 1),
            400,
            "`client` of `orders/per-ip`: the limit identifies clients by ip: 1 value(s) needed, 0 given",
        ),
        (
            one("orders/per-ip", "alice", 1),
            400,
            "`client` of `orders/per-ip`: the value for ip is not valid in a request",
        ),
        (
            one("edge/per-user", Value::Null, 1),
            400,
            "`client` of `edge/per-user`: the limit identifies clients by user: 1 value(s) needed, 0 given",
        ),
        (
            one("jobs/total", Value::Null, 6),
            400,
            "`permits` of `jobs/total` must be from 1 to 5, which a full bucket has",
        ),
        (
            one("jobs/total", Value::Null, 0),
            400,
            "`permits` of `jobs/total` must be from 1 to 5, which a full bucket has",
        ),
        (twice, 400, "`jobs/total` is named twice with the same client: add up its permits"),
        (json!({ "limits": [] }), 400, "`limits` is empty"),
    ] {
        let response = service.post("/v1/take", "", &body.to_string()).await;
        let problem = json_of(&response);
        assert_eq!((response.status(), problem["detail"].as_str()), (status, Some(detail)));
        assert_eq!(response.field("content-type").as_deref(), Some("application/problem+json"));
        assert_eq!(problem["status"], status);
        assert_eq!(problem.get("help").is_some(), status == 404 || detail.contains("`client`"), "{problem}");
    }
    assert_eq!(service.take_one("jobs/total", Value::Null, 5).await, (200, json!(0)), "nothing was charged");
}

#[tokio::test]
async fn hostile_bodies_get_errors() {
    let service = TakeService::start("memory");
    let entries = r#"{"limit":"jobs/total"},"#.repeat(10_000);
    let nested = "[".repeat(50_000);
    let long = "x".repeat(60 << 10);
    for (body, status) in [
        ("", 400),
        ("{", 400),
        (r#"{"limits":[{"limit":"jobs/total"}],"extra":1}"#, 400),
        (r#"{"limits":[{"limit":"jobs/total","limit":"jobs/total"}]}"#, 400),
        (r#"{"limits":[{"limit":"jobs/total","permits":99999999999}]}"#, 400),
        (&format!(r#"{{"limits":[{}"#, &entries[..60 << 10]), 400),
        (&nested, 400),
        (&one(&"/".repeat(60 << 10), Value::Null, 1).to_string(), 404),
        (&one("edge/per-user", long.as_str(), 1).to_string(), 200),
        (&" ".repeat((64 << 10) + 1), 413),
    ] {
        let response = service.post("/v1/take", "", body).await;
        assert_eq!(response.status(), status, "{:.60}: {:.300}", body, response.text());
    }
    assert_eq!(service.take_one("jobs/total", Value::Null, 5).await, (200, json!(0)));
}

#[tokio::test]
async fn other_methods_and_paths_are_problems() {
    let service = TakeService::start("memory");
    let ask = async |start: &str| {
        let response = Raw::connect(service.http).await.ask(format!("{start} HTTP/1.1\r\nHost: service\r\n\r\n")).await;
        (response.status(), response.field("allow"), response.field("content-type"))
    };
    let problem = Some("application/problem+json".to_owned());
    assert_eq!(ask("GET /v1/take").await, (405, Some("POST".to_owned()), problem.clone()));
    assert_eq!(ask("GET /v1/other").await, (404, None, problem.clone()));
    let of_page = service.post("/v1/take", "Origin: https://evil.example\r\n", "{}").await;
    assert_eq!((of_page.status(), of_page.field("content-type")), (403, problem));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_policy_decides_without_the_store() {
    let Some(redis) = RedisServer::start() else { return };
    let service = TakeService::start(&redis.rule());
    assert_eq!(service.take_one("jobs/total", Value::Null, 1).await, (200, json!(4)));
    drop(redis);
    soon(async { while service.counter("tidegate_store_up").await > 0 {} }).await;
    // This gateway has the whole rate.
    assert_eq!(service.take_one("jobs/total", Value::Null, 5).await.0, 200);
    assert_eq!(service.take_one("jobs/total", Value::Null, 1).await.0, 429);
    let response = service.post("/v1/take", "", &one("jobs/safe", Value::Null, 1).to_string()).await;
    assert_eq!((response.status(), response.field("retry-after").as_deref()), (503, Some("1")));
}
