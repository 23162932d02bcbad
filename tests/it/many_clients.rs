//! The keys of many clients that send one request each.

use deadpool_redis::redis::cmd;
use tidegate::internals::StoreInternals;
use tidegate::internals::limit::leaky_bucket::Queue;
use tidegate::internals::limit::{Algorithm, Quota};
use tokio::task::JoinSet;

use crate::support::charge_of;
use crate::support::redis::RedisServer;

const CLIENTS: u32 = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_one_time_clients_expire() {
    let Some(redis) = RedisServer::start() else { return };
    let store = redis.store();
    let queue = Queue { length: 1, max_wait: 10 };
    let algorithms = [
        Algorithm::TokenBucket,
        Algorithm::Gcra { burst: 5 },
        Algorithm::LeakyBucket(queue),
        Algorithm::SlidingWindow { segments: 4 },
    ];
    let mut asking = JoinSet::new();
    for worker in 0..32 {
        let store = store.clone();
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
