//! Gateways whose requests wait for slots in one Redis: they share released slots, and few calls suffice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::support::redis::RedisServer;
use crate::support::wire::soon;

use super::{Service, script_calls};

const KEYS: &str = "concurrency: { max: 4, queue: 300, max_wait: 1m }";

/// Sends requests of several clients, one after the other each, for some seconds. Returns how many were admitted.
async fn send(service: Arc<Service>, clients: usize, for_: Duration, in_flight: Arc<AtomicUsize>) -> usize {
    let until = Instant::now() + for_;
    let client = |_| {
        let (service, in_flight) = (Arc::clone(&service), Arc::clone(&in_flight));
        async move {
            let mut admitted = 0;
            while Instant::now() < until {
                let response = service.ask("a").await;
                assert_eq!(response.status(), 200);
                assert!(in_flight.fetch_add(1, Ordering::SeqCst) < 4, "more requests in flight than `max`");
                sleep(Duration::from_millis(4)).await;
                in_flight.fetch_sub(1, Ordering::SeqCst);
                drop(response);
                admitted += 1;
            }
            admitted
        }
    };
    join_all((0..clients).map(client)).await.into_iter().sum()
}

/// Regression test: the waiting requests of the gateway that released a slot always took it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_requests_of_two_gateways_share_released_slots() {
    let Some(redis) = RedisServer::start() else { return };
    let one = Arc::new(Service::start(Some(redis.url()), KEYS));
    let other = Arc::new(one.start_again(Some(redis.url()), KEYS));
    let (in_flight, for_) = (Arc::<AtomicUsize>::default(), Duration::from_secs(3));
    let first = tokio::spawn(send(one, 12, for_, Arc::clone(&in_flight)));
    sleep(Duration::from_millis(200)).await; // the first gateway has all slots
    let second = tokio::spawn(send(other, 12, for_, in_flight));
    let (first, second) = (first.await.expect("responses"), second.await.expect("responses"));
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
