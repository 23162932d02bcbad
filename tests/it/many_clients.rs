//! The keys of many clients that send one request each.

use std::sync::Arc;

use deadpool_redis::redis::cmd;
use tidegate_limit::{Algorithm, Quota, examples};
use tokio::task::JoinSet;

use crate::support::charge_of;
use crate::support::redis::RedisServer;

const CLIENTS: u32 = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_one_time_clients_expire() {
    let Some(redis) = RedisServer::start() else { return };
    let store = redis.store();
    // The keys of a fixed window can last longer than the test.
    let algorithms = examples(5).filter(|algorithm| !matches!(algorithm, Algorithm::FixedWindow(_)));
    let algorithms: Arc<[Algorithm]> = algorithms.collect();
    let mut asking = JoinSet::new();
    for worker in 0..32 {
        let (store, algorithms) = (store.clone(), Arc::clone(&algorithms));
        asking.spawn(async move {
            for client in (worker..CLIENTS).step_by(32) {
                let algorithm = algorithms[client as usize % algorithms.len()];
                let quota = Quota::new(5, 300, algorithm).expect("a quota");
                let charge = charge_of("{tidegate:many}:l", Some(&client.to_le_bytes()), quota, 1);
                assert!(store.take(&[charge]).await.expect("a decision").granted());
            }
        });
    }
    asking.join_all().await;
    let mut redis = redis.connection();
    let mut size = || cmd("DBSIZE").query::<u64>(&mut redis).expect("a size");
    // The secret for client hashes remains.
    crate::support::wire::until_within(std::time::Duration::from_secs(60), || size() == 1).await;
}
