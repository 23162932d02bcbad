//! A reload that changes the store.

use deadpool_redis::redis::cmd;

use super::{OK, rules, total};
use crate::support::gateway::{TestGateway, get};
use crate::support::redis::{RedisServer, wait_for};
use crate::support::wire::upstream::Origin;

#[tokio::test]
async fn changed_store_is_used_by_all_workers() {
    let Some(redis) = RedisServer::start() else { return };
    let origin = Origin::with_response(OK).await;
    let rules = |store: &str| format!("store: {store}\n{}", rules(origin.address, &total(3)));
    let gateway = TestGateway::start(&rules("memory"));
    let mut client = gateway.client().await;
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
    let with_redis = format!("{{ url: '{}', timeout: 10s }}", redis.url());
    let report = gateway.reload(&rules(&with_redis));
    assert!(report.changes()[0].ends_with("starts with no permits in use"), "{:?}", report.changes());
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(gateway.get("/", "").await.status());
    }
    assert_eq!(statuses, [200, 200, 200, 429], "new connections are spread over all workers");
    assert_eq!(get(&mut client, "/", "").await.status(), 429);
    gateway.reload(&rules(&format!("{{ url: '{}', timeout: 9s }}", redis.url())));
    assert_eq!(get(&mut client, "/", "").await.status(), 429, "the buckets are in Redis");
    gateway.reload(&rules("memory"));
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
    let mut own = redis.connection();
    wait_for("the end of the gateway's connections to Redis", || {
        let info: String = cmd("INFO").arg("clients").query(&mut own).expect("a reply");
        info.contains("connected_clients:1\r\n")
    });
}
