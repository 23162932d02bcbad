//! `concurrency` with limits: a request that a limit refuses, or that waits for permits or for its own client, holds no slot
//! and no place in the queue of others.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::cmd;
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::support::redis::RedisServer;
use crate::support::wire::soon;

use super::{Held, Service, field, script_calls, stores};

/// A limit of each client: this many permits in an hour, with further keys.
fn limit(permits: u32, more: &str) -> String {
    format!("limits: [{{ name: l, mode: PER_CLIENT, client: 'header:x-key', rate: {permits}, interval: 1h{more} }}]")
}

fn statuses(responses: &[Held]) -> Vec<u16> {
    responses.iter().map(|response| response.status().as_u16()).collect()
}

/// Regression test: each rejected request took a slot for its rejection, and two calls.
#[tokio::test]
async fn rejected_requests_take_neither_slots_nor_calls() {
    let (stores, servers) = stores();
    for (index, store) in stores.into_iter().enumerate() {
        let service = Arc::new(Service::start(store, &format!("concurrency: {{ max: 2 }}, {}", limit(1, ""))));
        drop(service.ask("greedy").await);
        assert_eq!(service.ask("greedy").await.status(), 429);
        let before = servers.get(index).map(script_calls);
        let rejected: Vec<_> = (0..300).map(|_| service.spawn("greedy")).collect();
        let honest = soon(join_all([service.ask("b"), service.ask("c")])).await;
        assert_eq!(statuses(&honest), [200, 200]);
        for response in rejected {
            assert_eq!(response.await.expect("a response").status(), 429);
        }
        if let (Some(server), Some(before)) = (servers.get(index), before) {
            let calls = script_calls(server) - before;
            assert!(calls <= 12, "{calls} calls");
        }
    }
}

#[tokio::test]
async fn slot_and_permits_are_taken_with_one_call() {
    let (stores, servers) = stores();
    for (server, store) in servers.iter().zip(stores) {
        let keys = format!("concurrency: {{ max: 50, per_client: 40, client: 'header:x-key' }}, {}", limit(100, ""));
        let service = Service::start(store, &keys);
        drop(service.ask("first").await); // loads the script
        sleep(Duration::from_millis(50)).await; // the lease of the first request is released
        let (before, mut held) = (script_calls(server), Vec::new());
        for _ in 0..20 {
            held.push(service.ask("a").await);
        }
        let calls = script_calls(server) - before;
        assert!((20..=22).contains(&calls), "{calls} calls"); // leases may have been renewed
        assert_eq!(field(&held[19], "ratelimit"), "\"l\";r=80;t=3600, \"concurrency\";r=20");
    }
}

#[tokio::test]
async fn request_that_waits_for_permits_holds_no_slot() {
    let (stores, _redis) = stores();
    for store in stores {
        for waits in ["max_wait: 1h, queue: 9", "algorithm: leaky_bucket, queue: 9, max_wait: 1h"] {
            let keys = format!(
                "concurrency: {{ max: 2 }}, {}",
                limit(1, &format!(", {waits}")).replace("interval: 1h", "interval: 59m")
            );
            let service = Arc::new(Service::start(store.clone(), &keys));
            drop(service.ask("greedy").await);
            let waiting: Vec<_> = (0..5).map(|_| service.spawn("greedy")).collect();
            sleep(Duration::from_millis(50)).await; // they wait
            assert!(waiting.iter().any(|waiting| !waiting.is_finished()), "{waits}");
            let honest = soon(join_all([service.ask("b"), service.ask("c")])).await;
            assert_eq!(statuses(&honest), [200, 200], "{waits}");
            waiting.iter().for_each(JoinHandle::abort);
        }
    }
}

/// Regression test: a request that was first in the queue of the route, but not in the queue of its client, blocked the
/// queue of the route while slots were free.
#[tokio::test]
async fn request_that_waits_for_its_client_does_not_block_the_route() {
    let (stores, _redis) = stores();
    for store in stores {
        let keys = "concurrency: { max: 3, per_client: 2, client: 'header:x-key', queue: 9, max_wait: 1m }";
        let service = Arc::new(Service::start(store, keys));
        let (_held, other) = ([service.ask("a").await, service.ask("a").await], service.ask("b").await);
        let own: Vec<_> = (0..2).map(|_| service.spawn("a")).collect();
        service.until_waiting(2).await;
        assert_eq!(service.ask("a").await.status(), 429, "a client has as many waiting requests as slots");
        let honest = service.spawn("c");
        service.until_waiting(3).await;
        drop(other);
        assert_eq!(soon(honest).await.expect("a response").status(), 200);
        assert!(own.iter().all(|own| !own.is_finished()));
    }
}

/// The requests of a client in the queue of the route are at most those that its bound and its limits can admit.
#[tokio::test]
async fn client_does_not_fill_the_queue_of_the_route() {
    let (stores, _redis) = stores();
    for store in stores {
        let slots = "per_client: 1, client: 'header:x-key', max: 1, queue: 3, max_wait: 1m";
        for (keys, waits) in [
            (format!("concurrency: {{ {slots} }}"), 2), // one for the route, one for its client
            (format!("concurrency: {{ max: 1, queue: 3, max_wait: 1m }}, {}", limit(1, "")), 1),
        ] {
            let service = Arc::new(Service::start(store.clone(), &keys));
            let held = service.ask("b").await;
            let mut greedy = Vec::new();
            for waiting in 1..=waits {
                greedy.push(service.spawn("greedy"));
                service.until_waiting(waiting).await;
            }
            for _ in 0..3 {
                assert_eq!(soon(service.ask("greedy")).await.status(), 429, "{keys}");
            }
            let honest = service.spawn("c");
            service.until_waiting(waits + 1).await;
            drop(held);
            drop(soon(greedy.remove(0)).await.expect("a response"));
            assert_eq!(soon(honest).await.expect("a response").status(), 200, "{keys}");
            greedy.iter().for_each(JoinHandle::abort);
        }
    }
}

/// Permits are given back if a later call finds no slot: the buckets of a limit in shards need separate calls.
#[tokio::test]
async fn request_without_a_slot_gets_its_permits_back() {
    let Some(redis) = RedisServer::start() else { return };
    let keys = "concurrency: { max: 1 }, limits: [{ name: l, mode: OVERALL, rate: 4, interval: 1h, shards: 2 }]";
    let service = Service::start(Some(redis.url()), keys);
    let held = service.ask("a").await;
    for _ in 0..9 {
        assert_eq!(service.ask("a").await.status(), 503);
    }
    drop(held);
    for _ in 0..3 {
        assert_eq!(service.ask("a").await.status(), 200);
    }
    assert_eq!(service.ask("a").await.status(), 429);
}

/// A request that is aborted during its call releases its slot, whether the call has taken it or not.
#[tokio::test]
async fn aborted_request_releases_its_slot() {
    let Some(redis) = RedisServer::start() else { return };
    let service =
        Arc::new(Service::start(Some(redis.url()), &format!("concurrency: {{ max: 3 }}, {}", limit(100, ""))));
    drop(service.ask("a").await);
    for _ in 0..5 {
        cmd("CLIENT").arg("PAUSE").arg(60).exec(&mut redis.connection()).expect("a pause");
        let asking: Vec<_> = (0..3).map(|_| service.spawn("a")).collect();
        sleep(Duration::from_millis(20)).await; // their call is in flight
        asking.iter().for_each(JoinHandle::abort);
        let taken = timeout(super::BELOW_A_LEASE, async {
            let mut taken = Vec::new();
            while taken.len() < 3 {
                taken.push(service.ask("b").await);
                taken.retain(|response| response.status() == 200);
            }
            taken
        });
        assert_eq!(service_full(&service, taken.await.expect("free slots")).await, 503);
    }
}

/// Returns the status of one more request.
async fn service_full(service: &Service, _held: Vec<Held>) -> u16 {
    service.ask("c").await.status().as_u16()
}
