//! Requests for permits with an id in a cluster: the receipt is in the hash slot of the buckets.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{TakeService, json_of};
use crate::support::cluster::RedisCluster;

/// Returns a request for two limits of a route, with an id.
fn of_route(id: &str) -> Value {
    json!({ "limits": [{ "limit": "jobs/total", "permits": 2 }, { "limit": "jobs/safe" }], "id": id })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn id_is_decided_and_returned_once_in_a_cluster() {
    let Some(cluster) = RedisCluster::start() else { return };
    let services = [(); 2].map(|()| Arc::new(TakeService::start(&cluster.rule("10s"))));
    let mut takes = JoinSet::new();
    for number in 0..20 {
        let service = Arc::clone(&services[number % 2]);
        takes.spawn(async move { service.take(&of_route("a")).await });
    }
    let taken = takes.join_all().await;
    assert!(taken.iter().all(|other| *other == taken[0]), "{taken:?}");
    assert_eq!((taken[0].0, &taken[0].1["limits"][0]["remaining"]), (200, &json!(3)));
    let give_back = async |service: &TakeService, id: &str| {
        let response = service.post("/v1/return", "", &json!({ "id": id }).to_string()).await;
        (response.status(), json_of(&response)["returned"].clone())
    };
    assert_eq!(give_back(&services[1], "a").await, (200, json!(true)));
    assert_eq!(give_back(&services[0], "a").await, (200, json!(false)));
    assert_eq!(give_back(&services[0], "b").await.0, 404);
    assert_eq!(services[1].take_one("jobs/total", Value::Null, 5).await, (200, json!(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_in_several_hash_slots_allow_no_id() {
    let Some(cluster) = RedisCluster::start() else { return };
    let service = TakeService::start(&cluster.rule("10s"));
    let limits = json!([{ "limit": "jobs/total" }, { "limit": "edge/per-user", "client": "alice" }]);
    let (status, problem) = service.take(&json!({ "limits": limits, "id": "a" })).await;
    assert_eq!((status, problem.get("help").is_some()), (400, true), "{problem}");
    assert_eq!(service.take(&json!({ "limits": limits })).await.0, 200);
    // An id belongs to the hash slot of its first request.
    assert_eq!(service.take(&json!({ "limits": [limits[0]], "id": "b" })).await.0, 200);
    assert_eq!(service.take(&json!({ "limits": [limits[1]], "id": "b" })).await.0, 409);
}
