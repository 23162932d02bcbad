//! Redis that stalls for a little longer than the store's timeout: late replies, and permits that are granted locally
//! again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate::StoreError;
use tidegate_limit::clock::Stopwatch;
use tidegate_rules::charge::{Charge, ChargeKind};
use tokio::time::sleep;

use crate::support::gateway::{TestGateway, get};
use crate::support::overall;
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

const RATE: u64 = 50;
const INTERVAL: Duration = Duration::from_millis(500);

/// Regression test: permits that Redis had granted to a request were charged a second time, as a debt of its local
/// grant.
#[tokio::test]
async fn late_grants_are_given_back() {
    let Some(redis) = RedisServer::start() else { return };
    let store = redis.store_with_timeout(Duration::from_millis(300));
    let take = |permits| overall("{tidegate:late}:l", 10, 3_600_000, permits);
    let (granted, settled) = ([take(2)], [Charge { kind: ChargeKind::Unconditional, ..take(3) }]);
    soon(async { while store.take(&[take(1)]).await.is_err() {} }).await;
    redis.signal("STOP");
    let failed = tokio::join!(store.take(&granted), store.take(&settled));
    assert_eq!([failed.0.err(), failed.1.err()], [Some(StoreError::Timeout), Some(StoreError::Timeout)]);
    redis.signal("CONT");
    let remaining = async || store.take(&[take(0)]).await.map_or(0, |outcome| outcome.decisions[0].remaining);
    // An event that is charged has happened, so that its permits stay charged.
    soon(async { while remaining().await != 10 - 1 - 3 {} }).await;
}

/// Regression test: Redis counted local grants above the rate for one interval only, so that each stall added a share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalls_add_a_share_once() {
    const TIME: Duration = Duration::from_secs(6);
    let Some(redis) = RedisServer::start() else { return };
    let gateway = TestGateway::start_with_one_worker(&format!(
        "store: {{ url: '{}', timeout: 50ms }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes:
  - {{ name: all, match: {{}}, upstream: echo, limits: [{{ name: l, mode: OVERALL, rate: {RATE}, interval: 500ms }}] }}",
        redis.url(),
    ));
    let (ended, granted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let since = Stopwatch::start();
    for _ in 0..8 {
        let (address, ended, granted) = (gateway.address, Arc::clone(&ended), Arc::clone(&granted));
        tokio::spawn(async move {
            let mut client = Raw::connect(address).await;
            while !ended.load(Ordering::Relaxed) {
                let is_granted = get(&mut client, "/", "").await.status() == 200;
                granted.fetch_add(u64::from(is_granted), Ordering::Relaxed);
                sleep(Duration::from_millis(1)).await;
            }
        });
    }
    while since.elapsed() < TIME {
        sleep(INTERVAL * 5 / 4).await;
        redis.signal("STOP");
        sleep(Duration::from_millis(70)).await;
        redis.signal("CONT");
    }
    ended.store(true, Ordering::Relaxed);
    let (took, granted) = (since.elapsed(), granted.load(Ordering::Relaxed));
    let of_rate = RATE * u64::try_from(took.as_millis() / INTERVAL.as_millis() + 1).expect("a number");
    assert!(granted >= of_rate / 2, "{granted} in {took:?}");
    assert!(granted <= of_rate + 2 * RATE, "{granted} in {took:?}");
}
