//! Overrides and the limits that callers or control planes set.

use serde_json::{Value, json};

use super::changes::created;
use super::{call, post, start};

/// Sends a call with a limit of the caller. Returns the status of its descriptor.
async fn limited(admin: &crate::admin_api::Admin, user: &str, rate: u32) -> Value {
    let mut request = call("edge", &[user]);
    request["descriptors"][0]["limit"] = json!({ "requestsPerUnit": rate, "unit": "HOUR" });
    post(admin, "/json", &request).await.1["statuses"][0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_callers_are_named_by_their_unit() {
    let admin = start("memory", "");
    assert_eq!(limited(&admin, "own=x", 1).await["code"], "OK");
    assert_eq!(limited(&admin, "own=x", 1).await["code"], "OVER_LIMIT");
    let (_, list) = admin.api("GET", "rejected", "").await;
    let row = ["route", "limit", "location"].map(|key| list[0][key].clone());
    assert_eq!(row, [json!("/edge"), json!("=hour"), Value::Null], "{list}");
    let hash = list[0]["client"].as_str().expect("a hash");
    let path = format!("limits/%2Fedge/%3Dhour/client?hash={hash}");
    assert_eq!(admin.api("GET", &path, "").await.0, 422, "the call states the rate");
    assert_eq!(admin.change(&path).await.1["buckets"], 1);
    assert_eq!(limited(&admin, "own=x", 1).await["code"], "OK");
    created(&admin, json!({ "action": "exempt", "scope": "/edge/=hour", "target": { "hash": hash } })).await;
    assert_eq!(limited(&admin, "own=x", 1).await["code"], "OK");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adjustment_multiplies_the_rate_of_a_caller() {
    let admin = start("memory", "");
    let target = json!({ "client": ["ann"] });
    created(&admin, json!({ "action": "adjust", "scope": "/edge/per-user", "target": target, "multiply": 3 })).await;
    let status = limited(&admin, "user=ann", 5).await;
    assert_eq!((&status["currentLimit"]["requestsPerUnit"], &status["limitRemaining"]), (&json!(15), &json!(14)));
}
