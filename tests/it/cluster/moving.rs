//! A slot that is on its way for longer than anybody waits.

use std::time::Duration;

use tidegate::store::StoreError;
use tokio::task::JoinSet;

use crate::support::cluster::{RedisCluster, errors};
use crate::support::configured;

/// A call about keys on both sides is sent again and again, the last time when there is next to no time left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_until_the_last_moment_takes_the_connection_from_nobody() {
    let Some(cluster) = RedisCluster::start() else { return };
    let store = cluster.store_with_timeout(Duration::from_millis(500));
    let charge = configured("own", 60, 3_600_000, 1);
    let slot = cluster.slot_of("own");
    let from = cluster.owner_of(slot);
    let to = (from + 1) % 3;
    assert!(store.take(std::slice::from_ref(&charge)).await.expect("a decision").granted());
    cluster.begin_move(slot, from, to);
    let mut asked = JoinSet::new();
    for _ in 0..200 {
        let (store, charge) = (store.clone(), charge.clone());
        asked.spawn(async move { store.take(&[charge]).await });
    }
    let is_one_of = |error: &StoreError| matches!(error, StoreError::Timeout | StoreError::Answer(_));
    let failed: Vec<_> = asked.join_all().await.into_iter().filter_map(Result::err).collect();
    assert!(failed.len() == 200 && failed.iter().all(is_one_of), "{failed:?}");
    assert!(errors(&cluster.nodes[from], "TRYAGAIN") > 200);
    cluster.give_up_move(slot, from, to);
    store.take(&[charge]).await.expect("a decision");
}
