//! Bans and the costs that are known after the response.

use serde_json::{Value, json};

use super::{call, changes::created, post, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_of_a_banned_client_is_charged() {
    let admin = start("memory", "");
    let hits = async |count: u32| {
        let mut request = call("edge", &["user=ann"]);
        request["descriptors"][0]["hitsAddend"] = json!(count.to_string());
        post(&admin, "/json", &request).await.1["overallCode"].clone()
    };
    let used = async || admin.api("GET", "limits/%2Fedge/per-user/client?value=ann", "").await.1["used"].clone();
    assert_eq!(hits(0).await, "OK", "the limit is post-paid from now on");
    created(&admin, json!({ "action": "ban", "scope": "/edge/per-user", "target": { "client": ["ann"] } })).await;
    assert_eq!(hits(0).await, "OVER_LIMIT");
    assert_eq!(used().await, 0);
    assert_eq!(hits(1).await, "OVER_LIMIT");
    assert_eq!(used().await, 1, "the request has happened");
    let plain: Value = post(&admin, "/json", &call("edge", &["user=ann"])).await.1;
    assert_eq!((&plain["overallCode"], used().await), (&json!("OVER_LIMIT"), json!(1)));
}
