//! Gateways whose requests wait for slots in one Redis: they share released slots, and few calls suffice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::support::redis::RedisServer;
use crate::support::wire::{soon, until};

use super::{Service, script_calls};

const KEYS: &str = "concurrency: { max: 4, queue: 300, max_wait: 1m }";

/// The requests of two gateways.
#[derive(Default)]
struct Requests {
    in_flight: AtomicUsize,
    /// The admitted requests of each gateway.
    admitted: [AtomicUsize; 2],
    /// The admitted requests of the first gateway before the second admitted one.
    before: AtomicUsize,
}

/// Sends requests of several clients to a gateway, one after the other each, until 600 were admitted.
async fn send(service: Arc<Service>, clients: usize, gateway: usize, requests: Arc<Requests>) {
    let client = |_| {
        let (service, requests) = (Arc::clone(&service), Arc::clone(&requests));
        async move {
            let Requests { in_flight, admitted, before } = &*requests;
            while admitted.iter().map(|count| count.load(Ordering::SeqCst)).sum::<usize>() < 600 {
                let response = service.ask("a").await;
                assert_eq!(response.status(), 200);
                assert!(in_flight.fetch_add(1, Ordering::SeqCst) < 4, "more requests in flight than `max`");
                if admitted[gateway].fetch_add(1, Ordering::SeqCst) == 0 && gateway == 1 {
                    before.store(admitted[0].load(Ordering::SeqCst), Ordering::SeqCst);
                }
                sleep(Duration::from_millis(4)).await;
                in_flight.fetch_sub(1, Ordering::SeqCst);
                drop(response);
            }
        }
    };
    join_all((0..clients).map(client)).await;
}

/// Regression test: the waiting requests of the gateway that released a slot always took it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_requests_of_two_gateways_share_released_slots() {
    let Some(redis) = RedisServer::start() else { return };
    let one = Arc::new(Service::start(Some(redis.url()), KEYS));
    let other = Arc::new(one.start_again(Some(redis.url()), KEYS));
    let requests = Arc::<Requests>::default();
    let count = |gateway: usize| requests.admitted[gateway].load(Ordering::SeqCst);
    let first = tokio::spawn(send(one, 12, 0, Arc::clone(&requests)));
    until(|| count(0) > 20).await; // the first gateway has all slots
    let second = tokio::spawn(send(other, 12, 1, Arc::clone(&requests)));
    first.await.expect("responses");
    second.await.expect("responses");
    let (first, second) = (count(0) - requests.before.load(Ordering::SeqCst), count(1));
    assert!(first > 0 && second * 2 > first && first * 2 > second, "{first} and {second}");
}

/// Regression test: each waiting request called Redis 40 times a second.
#[tokio::test]
async fn waiting_requests_share_calls() {
    let Some(redis) = RedisServer::start() else { return };
    let keys = "concurrency: { max: 100, per_client: 1, client: 'header:x-key', queue: 300, max_wait: 1m }";
    let service = Arc::new(Service::start(Some(redis.url()), keys));
    let clients: Vec<String> = (0..60).map(|number| number.to_string()).collect();
    let held = join_all(clients.iter().map(|client| service.ask(client))).await;
    assert!(held.iter().all(|response| response.status() == 200));
    let waiting: Vec<_> = clients.iter().map(|client| service.spawn(client)).collect();
    service.until_waiting(60).await;
    let (before, began) = (script_calls(&redis), Instant::now());
    sleep(Duration::from_secs(1)).await;
    let (calls, took) = (script_calls(&redis) - before, began.elapsed());
    assert!(u128::from(calls) <= took.as_millis() / 10 + 5, "{calls} calls in {took:?}");
    drop(held);
    for waiting in waiting {
        let response = soon(waiting).await.expect("a response");
        assert_eq!(response.status(), 200);
    }
}
