//! `leaky_bucket` across gateways: time slots are assigned in order, and requests are forwarded at their time slots.

use std::time::Duration;

use tidegate_limit::algorithm::leaky_bucket::Queue;
use tidegate_limit::{Algorithm, Quota};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::charge_of;
use crate::support::gateway::{TestGateway, get};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;
use crate::support::wire::upstream::{Origin, OriginConnection};

const SLOT: u64 = 5;
const WAITERS: u64 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_share_evenly_spaced_time_slots() {
    let Some(redis) = RedisServer::start() else { return };
    let stores = [redis.store(), redis.store()];
    let queue = Queue { length: 1_000, max_wait: 60_000 };
    let quota = Quota::new(1_000 / SLOT, 1_000, Algorithm::LeakyBucket(queue)).expect("a quota");
    let mut asking = JoinSet::new();
    for number in 0..WAITERS {
        let store = stores[usize::from(number % 2 == 0)].clone();
        asking.spawn(async move {
            let outcome = store.take(&[charge_of("lim", None, quota, 1)]).await.expect("a decision");
            assert!(outcome.granted());
            (outcome.now.as_millis(), outcome.decisions[0].delay)
        });
    }
    let mut given = soon(asking.join_all()).await;
    given.sort_unstable();
    let slots: Vec<u64> = given.iter().map(|(now, delay)| now + delay).collect();
    assert!(slots.is_sorted(), "a request was overtaken: {given:?}");
    // A slot is the next free one, or the time of its request if that is later: the queue can be empty for a moment.
    let expected: Vec<u64> = given.windows(2).map(|pair| (pair[0].0 + pair[0].1 + SLOT).max(pair[1].0)).collect();
    assert_eq!(slots[1..], expected, "{given:?}");
}

/// No request is forwarded before its time slot; how late it is forwarded depends on the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_never_forwarded_before_their_time_slots() {
    let Some(redis) = RedisServer::start() else { return };
    let (arrived, mut arrival) = unbounded_channel();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let arrived = arrived.clone();
        async move {
            while conn.request().await.is_some() {
                arrived.send(Instant::now()).expect("heard");
                conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            }
        }
    })
    .await;
    let rules = format!(
        "store: {{ url: '{}', timeout: 10s }}
upstreams: {{ origin: {{ targets: ['http://{}'] }} }}
routes:
  - name: all
    match: {{}}
    upstream: origin
    limits: [{{ name: l, mode: OVERALL, algorithm: leaky_bucket, rate: 200, interval: 1s, queue: 1000, max_wait: 30s }}]\n",
        redis.url(),
        origin.address
    );
    let gateways = [TestGateway::start(&rules), TestGateway::start(&rules)];
    let (mut asking, begin) = (JoinSet::new(), Instant::now());
    for number in 0..WAITERS {
        let address = gateways[usize::from(number % 2 == 0)].address;
        asking.spawn(async move { get(&mut Raw::connect(address).await, "/", "").await.status() });
    }
    let statuses = soon(asking.join_all()).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let mut arrivals: Vec<Instant> = std::iter::from_fn(|| arrival.try_recv().ok()).collect();
    arrivals.sort_unstable();
    assert_eq!(arrivals.len(), 200);
    // Redis and this test have different clocks, and a time slot is rounded up to a millisecond.
    let least = Duration::from_millis((WAITERS - 1) * SLOT - 20);
    assert!(arrivals[199] - begin >= least, "{:?}", arrivals[199] - begin);
}
