//! The library's `RateLimiter`: operations on both stores, and waiting in virtual time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use deadpool_redis::redis::{Commands, cmd};
use tidegate::redisson::{InstanceId, Mode, PermitsInUse, RateConfig, RateLimiter, RateLimiterError, TrySetRate};
use tidegate::{Clock, ManualClock, Store, StoreError, Timestamp};
use tidegate_limit::clock::SystemClock;
use tokio::time::Instant;

use crate::support::granted;
use crate::support::redis::RedisServer;
use crate::support::redisson::Peer;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn rate(mode: Mode, rate: u64, interval: u64) -> RateConfig {
    RateConfig::new(mode, rate, millis(interval)).expect("a configuration")
}

/// Creates an OVERALL limiter in virtual time.
async fn limiter(permits: u64, interval: u64) -> RateLimiter {
    let limiter = RateLimiter::new(Store::memory(), "lim").expect("a limiter");
    assert_eq!(limiter.try_set_rate(&rate(Mode::Overall, permits, interval)).await.expect("set"), TrySetRate::Set);
    limiter
}

/// Opens both stores, in real time.
fn stores() -> (Vec<Store>, Option<RedisServer>) {
    let redis = RedisServer::start();
    let mut stores = vec![Store::memory()];
    stores.extend(redis.iter().map(RedisServer::store));
    (stores, redis)
}

#[tokio::test]
async fn impossible_calls_return_errors() {
    let (stores, _redis) = stores();
    for store in stores {
        assert_eq!(RateLimiter::new(store.clone(), "").map(|_| ()), Err(RateLimiterError::NoName));
        let limiter = RateLimiter::new(store, "lim").expect("a limiter");
        let nothing_yet = RateLimiterError::NotInitialised { limiter: "lim".to_owned() };
        assert_eq!(nothing_yet.to_string(), "limiter `lim` has no rate yet");
        assert_eq!(limiter.try_acquire(1).await, Err(nothing_yet.clone()));
        assert_eq!(limiter.available_permits().await, Err(nothing_yet.clone()));
        assert_eq!(limiter.release(1).await, Err(nothing_yet));
        limiter.set_rate(&rate(Mode::Overall, 3, 1_000)).await.expect("set");
        for zero in [granted(&limiter, 0).await, limiter.try_acquire_for(0, millis(1)).await] {
            assert_eq!(zero, Err(RateLimiterError::NoPermits));
        }
        assert_eq!(limiter.release(0).await, Err(RateLimiterError::NoPermits));
        assert_eq!(limiter.acquire(0).await, Err(RateLimiterError::NoPermits));
        let too_many = "4 permits are more than the rate of limiter `lim`, which is 3 in 1s";
        assert_eq!(limiter.acquire(4).await.expect_err("too many").to_string(), too_many);
        assert_eq!(limiter.try_acquire(4).await.expect_err("too many").to_string(), too_many);
        assert_eq!(limiter.available_permits().await, Ok(3));
    }
}

#[tokio::test]
async fn unreachable_store_error_has_address_and_reason() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let url = format!("redis://:hush@{closed}/1");
    let store = Store::redis_builder(&url).timeout(Duration::from_secs(5)).open().expect("a store");
    let limiter = RateLimiter::new(store, "mails").expect("a limiter");
    let error = limiter.try_acquire(1).await.expect_err("a closed port").to_string();
    let start = format!("limiter `mails`: store `redis://***@{closed}/1`: no connection: ");
    assert!(error.starts_with(&start) && error.contains("onnection refused"), "{error}");
}

#[tokio::test]
async fn rates_can_be_set_replaced_and_updated() {
    let (stores, _redis) = stores();
    for store in stores {
        let limiter = RateLimiter::new(store, "lim").expect("a limiter");
        let hour = |permits| rate(Mode::Overall, permits, 3_600_000);
        assert_eq!((limiter.exists().await, limiter.config().await), (Ok(false), Ok(None)));
        assert_eq!(limiter.update_rate(&hour(5), PermitsInUse::Keep).await, Ok(false));
        assert_eq!(limiter.try_set_rate(&hour(10)).await, Ok(TrySetRate::Set));
        assert_eq!(limiter.try_set_rate(&hour(99)).await, Ok(TrySetRate::Kept));
        assert_eq!((limiter.exists().await, limiter.config().await), (Ok(true), Ok(Some(hour(10)))));
        assert_eq!(granted(&limiter, 4).await, Ok(true));
        assert_eq!(limiter.update_rate(&hour(6), PermitsInUse::Keep).await, Ok(true));
        assert_eq!(limiter.available_permits().await, Ok(2));
        assert_eq!(limiter.update_rate(&hour(3), PermitsInUse::Keep).await, Ok(true));
        assert_eq!((limiter.available_permits().await, granted(&limiter, 1).await), (Ok(0), Ok(false)));
        assert_eq!(limiter.update_rate(&hour(6), PermitsInUse::Reset).await, Ok(true));
        assert_eq!(limiter.available_permits().await, Ok(6));
        assert_eq!((granted(&limiter, 6).await, limiter.release(2).await), (Ok(true), Ok(2)));
        assert_eq!(limiter.available_permits().await, Ok(2));
        limiter.set_rate(&hour(7)).await.expect("set");
        assert_eq!(limiter.available_permits().await, Ok(7));
        assert_eq!((limiter.delete().await, limiter.delete().await), (Ok(true), Ok(false)));
        assert_eq!(limiter.exists().await, Ok(false));
    }
}

#[tokio::test]
async fn instances_have_own_buckets_in_per_client_mode() {
    let (stores, _redis) = stores();
    for store in stores {
        let new = |name: &str| RateLimiter::new(store.clone(), name).expect("a limiter");
        let (one, other) = (new("lim"), new("lim"));
        assert_ne!(one.instance(), other.instance());
        let id = InstanceId::new(one.instance()).expect("an id");
        let restarted = RateLimiter::with_instance(store.clone(), "lim", &id).expect("a limiter");
        one.set_rate(&rate(Mode::PerClient, 2, 3_600_000)).await.expect("set");
        assert_eq!((granted(&one, 2).await, granted(&one, 1).await), (Ok(true), Ok(false)));
        assert_eq!((granted(&other, 2).await, granted(&restarted, 1).await), (Ok(true), Ok(false)));
        // Deleting the limiter deletes only the bucket of this instance.
        assert_eq!(one.delete().await, Ok(true));
        one.set_rate(&rate(Mode::PerClient, 2, 3_600_000)).await.expect("set");
        assert_eq!((one.available_permits().await, other.available_permits().await), (Ok(2), Ok(0)));
        one.set_rate(&rate(Mode::Overall, 2, 3_600_000)).await.expect("set");
        assert_eq!((granted(&one, 2).await, granted(&other, 1).await), (Ok(true), Ok(false)));
    }
}

#[tokio::test]
async fn limiter_expires_unless_expiry_is_cleared() {
    let (stores, _redis) = stores();
    for store in stores {
        let limiter = RateLimiter::new(store, "lim").expect("a limiter");
        assert_eq!((limiter.expire(millis(1)).await, limiter.clear_expire().await), (Ok(false), Ok(false)));
        limiter.set_rate(&rate(Mode::Overall, 1, 3_600_000)).await.expect("set");
        assert_eq!(limiter.expire(millis(3_600_000)).await, Ok(true));
        assert_eq!((limiter.clear_expire().await, limiter.clear_expire().await), (Ok(true), Ok(false)));
        assert_eq!(granted(&limiter, 1).await, Ok(true));
        assert_eq!(limiter.expire(millis(5)).await, Ok(true));
        while limiter.exists().await.expect("a reply") {
            tokio::time::sleep(millis(1)).await;
        }
        assert_eq!(limiter.try_set_rate(&rate(Mode::Overall, 1, 3_600_000)).await, Ok(TrySetRate::Set));
        assert_eq!(granted(&limiter, 1).await, Ok(false), "the permit of one interval was granted twice");
    }
}

#[tokio::test]
async fn ensure_rate_keeps_permits_in_use() {
    let (stores, _redis) = stores();
    for store in stores {
        let limiter = RateLimiter::new(store, "lim").expect("a limiter");
        let hour = |permits| rate(Mode::Overall, permits, 3_600_000);
        assert_eq!(limiter.ensure_rate(&hour(5)).await, Ok(()));
        assert_eq!(granted(&limiter, 3).await, Ok(true));
        for (permits, left) in [(5, 2), (9, 6), (2, 0)] {
            assert_eq!(limiter.ensure_rate(&hour(permits)).await, Ok(()));
            assert_eq!(limiter.available_permits().await, Ok(left));
        }
    }
}

#[tokio::test]
async fn limiter_returns_its_time_to_live() {
    let (stores, _redis) = stores();
    for store in stores {
        let limiter = RateLimiter::new(store, "lim").expect("a limiter");
        assert!(limiter.time_to_live().await.is_err(), "the limiter has no rate yet");
        limiter.set_rate(&rate(Mode::Overall, 1, 1_000)).await.expect("set");
        assert_eq!(limiter.time_to_live().await, Ok(None));
        assert_eq!(limiter.expire(millis(3_600_000)).await, Ok(true));
        let left = limiter.time_to_live().await.expect("a reply").expect("a time");
        assert!(left > millis(3_000_000) && left <= millis(3_600_000), "{left:?}");
    }
}

/// Redisson keeps the state of every client forever.
#[tokio::test]
async fn state_of_an_instance_expires_with_its_permits() {
    let Some(server) = RedisServer::start() else { return };
    let new = || RateLimiter::new(server.store(), "lim").expect("a limiter");
    let (one, other) = (new(), new());
    one.set_rate(&rate(Mode::PerClient, 2, 60_000)).await.expect("set");
    for limiter in [&one, &other] {
        assert_eq!((granted(limiter, 2).await, granted(limiter, 1).await), (Ok(true), Ok(false)));
    }
    assert_eq!(one.expire(millis(1_000)).await, Ok(true));
    let mut redis = server.connection();
    let keys: Vec<String> = redis.keys("*lim*").expect("keys");
    assert_eq!(keys.len(), 7, "{keys:?}");
    for key in keys {
        let ttl: i64 = redis.pttl(&key).expect("a time");
        assert!((1..=60_000).contains(&ttl), "{key}: {ttl}");
    }
}

#[tokio::test]
async fn redisson_client_shares_a_limiter() {
    let Some(server) = RedisServer::start() else { return };
    let mut peer = Peer::new(server.connection(), "mails", "jvm");
    let limiter = RateLimiter::new(server.store(), "mails").expect("a limiter");
    let clock = SystemClock::new();
    peer.configure(0, 5, 3_600_000, 0);
    assert_eq!(limiter.try_set_rate(&rate(Mode::Overall, 9, 1)).await, Ok(TrySetRate::Kept));
    assert_eq!(limiter.config().await, Ok(Some(rate(Mode::Overall, 5, 3_600_000))));
    assert_eq!(peer.acquire(2, clock.now().as_millis()), None);
    assert_eq!((limiter.available_permits().await, granted(&limiter, 3).await), (Ok(3), Ok(true)));
    assert!(peer.acquire(1, clock.now().as_millis()).is_some());
}

#[tokio::test(start_paused = true)]
async fn acquire_waits_exactly_until_permits_are_available() {
    let limiter = limiter(100, 1_000).await;
    let start = Instant::now();
    limiter.acquire(5).await.expect("acquired");
    tokio::time::sleep(millis(100)).await;
    limiter.acquire(30).await.expect("acquired");
    limiter.acquire(100).await.expect("acquired");
    assert_eq!(start.elapsed(), millis(1_100));
    limiter.acquire(1).await.expect("acquired");
    assert_eq!(start.elapsed(), millis(2_100));
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_arrival_order() {
    let limiter = limiter(10, 1_000).await;
    limiter.acquire(10).await.expect("acquired");
    let served = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for (index, permits) in [(0, 3), (1, 10), (2, 1), (3, 4)] {
        let (limiter, served) = (limiter.clone(), Arc::clone(&served));
        let start = Instant::now();
        waiters.push(tokio::spawn(async move {
            limiter.acquire(permits).await.expect("acquired");
            served.lock().push((index, start.elapsed().as_millis()));
        }));
        tokio::task::yield_now().await;
    }
    for waiter in waiters {
        waiter.await.expect("served");
    }
    assert_eq!(*served.lock(), [(0, 1_000), (1, 2_000), (2, 3_000), (3, 3_000)]);
}

#[tokio::test(start_paused = true)]
async fn try_acquire_for_fails_without_a_useless_wait() {
    let limiter = limiter(2, 1_000).await;
    let start = Instant::now();
    assert_eq!(limiter.try_acquire_for(2, Duration::ZERO).await, Ok(true));
    assert_eq!(limiter.try_acquire_for(1, millis(999)).await, Ok(false));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(limiter.try_acquire_for(1, millis(1_000)).await, Ok(true));
    assert_eq!(start.elapsed(), millis(1_000));
    assert_eq!(limiter.try_acquire_for(1, Duration::MAX).await, Ok(true));
    // The timeout includes the time in the queue.
    let first = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(2).await }
    });
    tokio::task::yield_now().await;
    let asked_at = Instant::now();
    assert_eq!(limiter.try_acquire_for(1, millis(300)).await, Ok(false));
    assert_eq!(asked_at.elapsed(), millis(300));
    first.await.expect("no panic").expect("acquired");
}

#[tokio::test(start_paused = true)]
async fn cancelled_waiter_is_not_charged() {
    let limiter = limiter(2, 1_000).await;
    limiter.acquire(2).await.expect("acquired");
    let cancelled = tokio::time::timeout(millis(500), limiter.acquire(2)).await;
    assert!(cancelled.is_err());
    tokio::time::sleep(millis(500)).await;
    assert_eq!(limiter.available_permits().await, Ok(2));
    assert_eq!(granted(&limiter, 2).await, Ok(true));
}

#[tokio::test(start_paused = true)]
async fn release_serves_the_first_waiter_immediately() {
    let limiter = limiter(2, 1_000).await;
    limiter.acquire(2).await.expect("acquired");
    let waiter = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(1).await }
    });
    tokio::time::sleep(millis(10)).await;
    let start = Instant::now();
    assert_eq!(limiter.release(1).await, Ok(1));
    waiter.await.expect("no panic").expect("acquired");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn waiter_notices_another_release_within_100_ms() {
    let store = Store::memory();
    let new = || RateLimiter::new(store.clone(), "lim").expect("a limiter");
    let (waiting, other) = (new(), new());
    waiting.set_rate(&rate(Mode::Overall, 2, 3_600_000)).await.expect("set");
    waiting.acquire(2).await.expect("acquired");
    let waiter = tokio::spawn(async move { waiting.acquire(1).await });
    tokio::time::sleep(millis(777)).await;
    let start = Instant::now();
    assert_eq!(other.release(1).await, Ok(1));
    waiter.await.expect("no panic").expect("acquired");
    assert!(start.elapsed() <= millis(100), "{:?}", start.elapsed());
}

#[tokio::test]
async fn permits_return_by_the_clock_of_the_store() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
    let store = Store::memory_builder().clock(clock.clone()).open();
    let limiter = RateLimiter::new(store, "lim").expect("a limiter");
    limiter.set_rate(&rate(Mode::Overall, 1, 60_000)).await.expect("set");
    assert_eq!((granted(&limiter, 1).await, granted(&limiter, 1).await), (Ok(true), Ok(false)));
    clock.advance_millis(59_999);
    assert_eq!(granted(&limiter, 1).await, Ok(false));
    clock.advance_millis(1);
    assert_eq!(granted(&limiter, 1).await, Ok(true));
}

#[tokio::test(start_paused = true)]
async fn keep_alive_counts_from_the_last_grant() {
    let limiter = RateLimiter::new(Store::memory(), "lim").expect("a limiter");
    let config = rate(Mode::Overall, 1, 1_000).with_keep_alive(millis(1_000)).expect("a keep-alive");
    limiter.set_rate(&config).await.expect("set");
    assert_eq!(granted(&limiter, 1).await, Ok(true));
    tokio::time::sleep(millis(900)).await;
    assert_eq!(granted(&limiter, 1).await, Ok(false));
    tokio::time::sleep(millis(1_099)).await;
    assert_eq!(limiter.exists().await, Ok(true), "the limiter must exist until a waiting caller can acquire");
    tokio::time::sleep(millis(1)).await;
    assert_eq!(limiter.exists().await, Ok(false));
}

/// A sent call may run after its caller has cancelled it; then its permits are refunded.
#[tokio::test]
async fn call_cancelled_while_redis_decides_is_refunded() {
    let Some(server) = RedisServer::start() else { return };
    let limiter = RateLimiter::new(server.store(), "lim").expect("a limiter");
    limiter.set_rate(&rate(Mode::Overall, 100, 3_600_000)).await.expect("set");
    let mut served = 0;
    for attempt in 0..60_u32 {
        let mut acquire = Box::pin(limiter.try_acquire(1));
        // Cancels after the call was sent, while it runs, or after its reply has arrived.
        for _ in 0..attempt % 6 {
            if is_ready(&mut acquire).await {
                served += 1;
                break;
            }
            tokio::task::yield_now().await;
        }
        if attempt % 2 == 0 {
            tokio::time::sleep(millis(1)).await;
        }
        drop(acquire);
    }
    for _ in 0..500 {
        if limiter.available_permits().await == Ok(100 - served) {
            return;
        }
        tokio::time::sleep(millis(10)).await;
    }
    panic!("waited 5 s for refunds: {:?} of 100 permits available, {served} served", limiter.available_permits().await);
}

/// Polls the future once.
async fn is_ready(future: &mut (impl Future + Unpin)) -> bool {
    std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context).is_ready())).await
}

/// docs/library.md warns of this: while all tasks wait for Redis, Tokio advances the paused clock to the store's
/// timeout.
#[tokio::test]
async fn paused_time_ends_redis_calls_with_timeout() {
    let Some(server) = RedisServer::start() else { return };
    let limiter = RateLimiter::new(server.store(), "lim").expect("a limiter");
    limiter.set_rate(&rate(Mode::Overall, 1_000, 1_000)).await.expect("set");
    // Redis replies within the store's timeout, but later than Tokio advances the clock.
    cmd("CLIENT").arg("PAUSE").arg(1_000).exec(&mut server.connection()).expect("should pause");
    tokio::time::pause();
    let error = limiter.try_acquire(1).await.expect_err("a timeout");
    assert!(matches!(error, RateLimiterError::Store { error: StoreError::Timeout, .. }), "{error:?}");
}

#[tokio::test]
async fn memory_store_holds_65536_limiters() {
    let store = Store::memory();
    let set = async |number: u32| {
        let limiter = RateLimiter::new(store.clone(), &format!("lim-{number}")).expect("a limiter");
        (limiter.try_set_rate(&rate(Mode::Overall, 1, 1_000)).await, limiter)
    };
    for number in 0..65_536 {
        assert_eq!(set(number).await.0, Ok(TrySetRate::Set));
    }
    let (refused, _) = set(65_536).await;
    assert!(matches!(refused, Err(RateLimiterError::Store { error: StoreError::Full, .. })), "{refused:?}");
    assert_eq!(set(7).await.1.delete().await, Ok(true));
    assert_eq!(set(65_536).await.0, Ok(TrySetRate::Set));
}
