//! The library: operations on both stores, and waiting in virtual time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use deadpool_redis::redis::Commands;
use tidegate::RateLimiter;
use tidegate::clock::{Clock, ManualClock, SystemClock, Timestamp};
use tidegate::limit::{Mode, RateConfig};
use tidegate::rate_limiter::{InstanceId, RateLimiterError, Usage};
use tidegate::store::{Store, StoreError};
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

/// An OVERALL limiter in virtual time.
async fn limiter(permits: u64, interval: u64) -> RateLimiter {
    let limiter = RateLimiter::new(Store::memory(), "lim").expect("a limiter");
    assert!(limiter.try_set_rate(&rate(Mode::Overall, permits, interval)).await.expect("set"));
    limiter
}

/// Both stores, in real time.
fn stores() -> (Vec<Store>, Option<RedisServer>) {
    let redis = RedisServer::start();
    let mut stores = vec![Store::memory()];
    stores.extend(redis.iter().map(RedisServer::store));
    (stores, redis)
}

#[tokio::test]
async fn what_cannot_be_is_an_error() {
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
async fn a_store_that_cannot_be_reached_is_told_by_its_address_with_the_reason() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let url = format!("redis://:hush@{nobody}/1");
    let store = Store::redis_builder(&url).timeout(Duration::from_secs(5)).open().expect("a store");
    let limiter = RateLimiter::new(store, "mails").expect("a limiter");
    let error = limiter.try_acquire(1).await.expect_err("nobody is there").to_string();
    let said = format!("limiter `mails`: store `redis://***@{nobody}/1`: no connection: ");
    assert!(error.starts_with(&said) && error.contains("onnection refused"), "{error}");
}

#[tokio::test]
async fn a_rate_is_set_once_set_again_and_updated_with_usage_kept_or_not() {
    let (stores, _redis) = stores();
    for store in stores {
        let limiter = RateLimiter::new(store, "lim").expect("a limiter");
        let hour = |permits| rate(Mode::Overall, permits, 3_600_000);
        assert_eq!((limiter.exists().await, limiter.config().await), (Ok(false), Ok(None)));
        assert_eq!(limiter.update_rate(&hour(5), Usage::Keep).await, Ok(false));
        assert_eq!(limiter.try_set_rate(&hour(10)).await, Ok(true));
        assert_eq!(limiter.try_set_rate(&hour(99)).await, Ok(false));
        assert_eq!((limiter.exists().await, limiter.config().await), (Ok(true), Ok(Some(hour(10)))));
        assert_eq!(granted(&limiter, 4).await, Ok(true));
        assert_eq!(limiter.update_rate(&hour(6), Usage::Keep).await, Ok(true));
        assert_eq!(limiter.available_permits().await, Ok(2));
        assert_eq!(limiter.update_rate(&hour(3), Usage::Keep).await, Ok(true));
        assert_eq!((limiter.available_permits().await, granted(&limiter, 1).await), (Ok(0), Ok(false)));
        assert_eq!(limiter.update_rate(&hour(6), Usage::Reset).await, Ok(true));
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
async fn an_instance_has_a_bucket_of_its_own_only_under_per_client() {
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
        // Nobody forgets what others have taken.
        assert_eq!(one.delete().await, Ok(true));
        one.set_rate(&rate(Mode::PerClient, 2, 3_600_000)).await.expect("set");
        assert_eq!((one.available_permits().await, other.available_permits().await), (Ok(2), Ok(0)));
        one.set_rate(&rate(Mode::Overall, 2, 3_600_000)).await.expect("set");
        assert_eq!((granted(&one, 2).await, granted(&other, 1).await), (Ok(true), Ok(false)));
    }
}

#[tokio::test]
async fn a_limiter_expires_when_it_is_told_to_and_not_when_that_is_cleared() {
    let (stores, _redis) = stores();
    for store in stores {
        let limiter = RateLimiter::new(store, "lim").expect("a limiter");
        assert_eq!((limiter.expire(millis(1)).await, limiter.clear_expire().await), (Ok(false), Ok(false)));
        limiter.set_rate(&rate(Mode::Overall, 1, 3_600_000)).await.expect("set");
        assert_eq!(limiter.expire(millis(3_600_000)).await, Ok(true));
        assert_eq!((limiter.clear_expire().await, limiter.clear_expire().await), (Ok(true), Ok(false)));
        assert_eq!(granted(&limiter, 1).await, Ok(true));
        assert_eq!(limiter.expire(millis(5)).await, Ok(true));
        while limiter.exists().await.expect("an answer") {
            tokio::time::sleep(millis(1)).await;
        }
        assert_eq!(limiter.try_set_rate(&rate(Mode::Overall, 1, 3_600_000)).await, Ok(true));
        assert_eq!(granted(&limiter, 1).await, Ok(false), "a window was granted twice");
    }
}

#[tokio::test]
async fn a_rate_is_ensured_whether_there_is_one_or_not_and_what_is_in_use_stays() {
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
async fn a_limiter_tells_how_long_it_stays() {
    let (stores, _redis) = stores();
    for store in stores {
        let limiter = RateLimiter::new(store, "lim").expect("a limiter");
        assert!(limiter.time_to_live().await.is_err(), "there is none");
        limiter.set_rate(&rate(Mode::Overall, 1, 1_000)).await.expect("set");
        assert_eq!(limiter.time_to_live().await, Ok(None));
        assert_eq!(limiter.expire(millis(3_600_000)).await, Ok(true));
        let left = limiter.time_to_live().await.expect("an answer").expect("a time");
        assert!(left > millis(3_000_000) && left <= millis(3_600_000), "{left:?}");
    }
}

/// Redisson leaves the state of every client that ever was, for ever.
#[tokio::test]
async fn the_state_of_each_instance_lives_no_longer_than_its_permits() {
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
async fn a_java_service_shares_the_limiter() {
    let Some(server) = RedisServer::start() else { return };
    let mut peer = Peer::new(server.connection(), "mails", "jvm");
    let limiter = RateLimiter::new(server.store(), "mails").expect("a limiter");
    let clock = SystemClock::new();
    peer.configure(0, 5, 3_600_000, 0);
    assert_eq!(limiter.try_set_rate(&rate(Mode::Overall, 9, 1)).await, Ok(false));
    assert_eq!(limiter.config().await, Ok(Some(rate(Mode::Overall, 5, 3_600_000))));
    assert_eq!(peer.acquire(2, clock.now().as_millis()), None);
    assert_eq!((limiter.available_permits().await, granted(&limiter, 3).await), (Ok(3), Ok(true)));
    assert!(peer.acquire(1, clock.now().as_millis()).is_some());
}

#[tokio::test(start_paused = true)]
async fn waiting_takes_exactly_as_long_as_enough_permits_need() {
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
async fn waiters_are_served_in_the_order_in_which_they_came() {
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
async fn who_cannot_be_served_in_time_is_told_at_once() {
    let limiter = limiter(2, 1_000).await;
    let start = Instant::now();
    assert_eq!(limiter.try_acquire_for(2, Duration::ZERO).await, Ok(true));
    assert_eq!(limiter.try_acquire_for(1, millis(999)).await, Ok(false));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(limiter.try_acquire_for(1, millis(1_000)).await, Ok(true));
    assert_eq!(start.elapsed(), millis(1_000));
    assert_eq!(limiter.try_acquire_for(1, Duration::MAX).await, Ok(true));
    // Standing in line is a part of the time.
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
async fn who_stops_waiting_is_not_charged_and_holds_nobody_up() {
    let limiter = limiter(2, 1_000).await;
    limiter.acquire(2).await.expect("acquired");
    let left = tokio::time::timeout(millis(500), limiter.acquire(2)).await;
    assert!(left.is_err());
    tokio::time::sleep(millis(500)).await;
    assert_eq!(limiter.available_permits().await, Ok(2));
    assert_eq!(granted(&limiter, 2).await, Ok(true));
}

#[tokio::test(start_paused = true)]
async fn a_release_serves_the_first_in_line_at_once() {
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
async fn a_waiter_learns_within_100_ms_of_what_another_instance_releases() {
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
async fn a_clock_that_stands_still_returns_nothing() {
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
async fn a_keep_alive_counts_from_the_last_grant_and_refusals_only_outlast_their_wait() {
    let limiter = RateLimiter::new(Store::memory(), "lim").expect("a limiter");
    let config = rate(Mode::Overall, 1, 1_000).with_keep_alive(millis(1_000)).expect("a keep-alive");
    limiter.set_rate(&config).await.expect("set");
    assert_eq!(granted(&limiter, 1).await, Ok(true));
    tokio::time::sleep(millis(900)).await;
    assert_eq!(granted(&limiter, 1).await, Ok(false));
    tokio::time::sleep(millis(1_099)).await;
    assert_eq!(limiter.exists().await, Ok(true), "who waited finds it gone");
    tokio::time::sleep(millis(1)).await;
    assert_eq!(limiter.exists().await, Ok(false));
}

/// A call that was sent may have run when its caller leaves; what it took is given back.
#[tokio::test]
async fn who_leaves_while_redis_decides_is_not_charged() {
    let Some(server) = RedisServer::start() else { return };
    let limiter = RateLimiter::new(server.store(), "lim").expect("a limiter");
    limiter.set_rate(&rate(Mode::Overall, 100, 3_600_000)).await.expect("set");
    let mut served = 0;
    for attempt in 0..60_u32 {
        let mut acquire = Box::pin(limiter.try_acquire(1));
        // Left after the call was sent, while it runs, or when its answer is there and nobody has looked at it.
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
    panic!("{:?} of 100 permits are there, {served} were served", limiter.available_permits().await);
}

/// Polls once.
async fn is_ready(future: &mut (impl Future + Unpin)) -> bool {
    std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context).is_ready())).await
}

/// docs/library.md warns of it: while all tasks wait for Redis, Tokio moves the paused clock to the store's deadline.
#[tokio::test]
async fn paused_time_ends_a_call_to_redis_with_timeout() {
    let Some(server) = RedisServer::start() else { return };
    let limiter = RateLimiter::new(server.store(), "lim").expect("a limiter");
    limiter.set_rate(&rate(Mode::Overall, 1_000, 1_000)).await.expect("set");
    tokio::time::pause();
    for _ in 0..1_000 {
        // A reply that comes before Tokio has moved the clock still counts.
        let Err(error) = limiter.try_acquire(1).await else { continue };
        assert!(matches!(error, RateLimiterError::Store { error: StoreError::Timeout, .. }), "{error:?}");
        return;
    }
    panic!("no deadline passed");
}

#[tokio::test]
async fn memory_store_holds_65536_limiters() {
    let store = Store::memory();
    let set = async |number: u32| {
        let limiter = RateLimiter::new(store.clone(), &format!("lim-{number}")).expect("a limiter");
        (limiter.try_set_rate(&rate(Mode::Overall, 1, 1_000)).await, limiter)
    };
    for number in 0..65_536 {
        assert_eq!(set(number).await.0, Ok(true));
    }
    let (refused, _) = set(65_536).await;
    assert!(matches!(refused, Err(RateLimiterError::Store { error: StoreError::Full, .. })), "{refused:?}");
    assert_eq!(set(7).await.1.delete().await, Ok(true));
    assert_eq!(set(65_536).await.0, Ok(true));
}
