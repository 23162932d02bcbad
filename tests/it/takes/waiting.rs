//! Requests for permits that wait.

use serde_json::{Value, json};

use super::TakeService;
use crate::support::redis::RedisServer;

fn body(limit: &str, max_wait: &str) -> Value {
    json!({ "limits": [{ "limit": limit }], "max_wait": max_wait })
}

/// The permits of `short/soon` return after 300 ms, and the time slots of `short/slots` begin every 300 ms.
async fn waits(store: &str) {
    let service = TakeService::start(store);
    for limit in ["short/soon", "short/slots"] {
        // On a busy machine, a permit may return before the next request.
        let refused = loop {
            match service.take(&body(limit, "0ms")).await {
                (200, _) => {}
                refused => break refused,
            }
        };
        let wait = refused.1["wait_ms"].as_u64().expect("a wait");
        assert_eq!((refused.0, (1..=300).contains(&wait)), (429, true), "{limit}: {refused:?}");
        let (status, granted) = service.take(&body(limit, "30s")).await;
        assert_eq!((status, &granted["wait_ms"]), (200, &json!(0)), "{limit}");
        // A request with an id waits, too, and gets its first response at once when it is repeated.
        let ids = ["a", "b"].map(|id| format!("{limit} {id}"));
        let with_id = |id: &str| json!({ "limits": [{ "limit": limit }], "max_wait": "30s", "id": id });
        let give_back =
            async |id: &str| service.post("/v1/return", "", &json!({ "id": id }).to_string()).await.status();
        let (status, first) = service.take(&with_id(&ids[0])).await;
        assert_eq!((status, &first["remembered"]), (200, &json!(true)), "{limit}");
        assert_eq!(service.take(&with_id(&ids[0])).await, (200, first), "{limit}");
        assert_eq!(give_back(&ids[0]).await, 200, "{limit}");
        assert_eq!(service.take(&with_id(&ids[0])).await.0, 409, "{limit}");
        assert_eq!(service.take(&with_id(&ids[1])).await.0, 200, "{limit}");
        assert_eq!(give_back(&ids[1]).await, 200, "{limit}");
    }
}

#[tokio::test]
async fn request_waits_only_as_long_as_it_may() {
    waits("memory").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_waits_only_as_long_as_it_may_in_redis() {
    let Some(redis) = RedisServer::start() else { return };
    waits(&redis.rule()).await;
}
