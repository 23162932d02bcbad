//! Limiters shared with Java, in a cluster: each has several keys, of one slot, which may be on its way.

use deadpool_redis::redis::cmd;
use tidegate::internals::StoreInternals;
use tidegate::internals::limit::Charge;
use tokio::task::{JoinSet, yield_now};

use super::granted;
use crate::support::cluster::{RedisCluster, errors};
use crate::support::{adopted, configured};

/// Keys move one after the other while everybody asks: a call about keys on both sides is refused by both, and asked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limiter_that_java_shares_stays_exact_while_its_slot_moves() {
    let Some(cluster) = RedisCluster::start() else { return };
    for kind in ["own", "javas"] {
        // On a busy machine a slot may have moved before anybody asks.
        let mut rounds = 0..20;
        while !asked_in_the_middle(&cluster, kind, rounds.next().expect("one of them met a slot on its way")).await {}
    }
}

/// Moves the slot of a limiter while everybody asks; returns whether somebody was told that it is on its way.
async fn asked_in_the_middle(cluster: &RedisCluster, kind: &str, round: u32) -> bool {
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
    let asked = asked_meanwhile(&stores, &charge);
    cluster.move_keys_one_by_one(slot, from, to);
    cluster.finish_move(slot, from, to);
    let meanwhile: usize = asked.join_all().await.into_iter().map(usize::from).sum();
    assert_eq!(meanwhile, 40, "{name}: what was left");
    assert_eq!(granted(&stores[1], &[charge], 10).await, 0, "{name}");
    refusals() > before
}

/// Two gateways ask for more than there is.
fn asked_meanwhile(stores: &[tidegate::Store; 2], charge: &Charge) -> JoinSet<bool> {
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
