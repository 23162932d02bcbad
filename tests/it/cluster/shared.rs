//! Limiters shared with Java in a cluster: each has several keys in one slot, which may migrate.

use deadpool_redis::redis::cmd;
use tidegate_rules::charge::Charge;
use tokio::task::{JoinSet, yield_now};

use super::granted;
use crate::support::cluster::{RedisCluster, errors};
use crate::support::{adopted, configured};

/// Keys move one by one under load. Both nodes refuse a call with keys on both, and the store retries it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_limiter_stays_exact_while_its_slot_moves() {
    let Some(cluster) = RedisCluster::start() else { return };
    for kind in ["own", "javas"] {
        // On a busy machine a slot may have moved before the first call.
        let mut rounds = 0..20;
        while !moves_under_load(&cluster, kind, rounds.next().expect("a call during the migration")).await {}
    }
}

/// Moves the slot of a limiter under load. Returns `true` if a node redirected or refused a call because of the
/// migration.
async fn moves_under_load(cluster: &RedisCluster, kind: &str, round: u32) -> bool {
    let name = &format!("{kind}{round}");
    let charge = match kind {
        "own" => configured(name, 60, 3_600_000, 1),
        _ => adopted(name, None, None, 1),
    };
    let slot = cluster.hash_slot_of(name);
    let from = cluster.owner_of(slot);
    let to = (from + 1) % 3;
    if kind == "javas" {
        let configure = [name, "rate", "60", "interval", "3600000", "type", "0"];
        cmd("HSET").arg(&configure).exec(&mut cluster.nodes[from].connection()).expect("configured");
    }
    let refusals = || errors(&cluster.nodes[from], "TRYAGAIN") + errors(&cluster.nodes[from], "ASK");
    let (stores, before) = ([cluster.store(), cluster.store()], refusals());
    assert_eq!(granted(&stores[0], std::slice::from_ref(&charge), 20).await, 20, "{name}");
    cluster.begin_move(slot, from, to);
    let requests = start_requests(&stores, &charge);
    cluster.move_keys_one_by_one(slot, from, to);
    cluster.finish_move(slot, from, to);
    let granted_during_move: usize = requests.join_all().await.into_iter().map(usize::from).sum();
    assert_eq!(granted_during_move, 40, "{name}: the remaining permits");
    assert_eq!(granted(&stores[1], &[charge], 10).await, 0, "{name}");
    refusals() > before
}

/// Starts requests of two gateways for more permits than the limiter has.
fn start_requests(stores: &[tidegate::Store; 2], charge: &Charge) -> JoinSet<bool> {
    let mut asked = JoinSet::new();
    for number in 0..100 {
        let (store, charge) = (stores[number % 2].clone(), charge.clone());
        asked.spawn(async move {
            for _ in 0..number {
                yield_now().await;
            }
            store.take(&[charge]).await.expect("a decision").granted()
        });
    }
    asked
}
