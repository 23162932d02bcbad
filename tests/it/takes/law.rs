//! A bucket from which an id takes permits is as before when they are given back, with every algorithm and in both stores.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::{Clock, ManualClock, Metrics, Store, Timestamp};
use tidegate_limit::{Algorithm, Mode, Quota, examples};
use tidegate_rules::charge::{Charge, Limiter};
use tidegate_rules::settings::store::{RedisSettings, RedisUrl, StoreSettings};
use tidegate_store::{OnceId, ReturnedOnce, TakenOnce};

use crate::support::redis::{RedisServer, fresh_name};

const RATE: u32 = 6;

/// Returns a store in this process and, if there is a server, one in Redis.
fn stores(redis: Option<&RedisServer>, clock: &Arc<ManualClock>) -> Vec<Store> {
    let open = |settings| {
        let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
        Store::open_with_clock(&settings, Arc::new(Metrics::new()), Some(clock)).expect("a store")
    };
    let in_redis = redis.map(|redis| {
        let url = RedisUrl::new(redis.url());
        open(StoreSettings::Redis(RedisSettings { timeout: Duration::from_secs(10), ..RedisSettings::new(url) }))
    });
    [open(StoreSettings::Memory { key_secret: None })].into_iter().chain(in_redis).collect()
}

/// Takes permits before; then takes permits with an id, lets time pass, and gives them back.
async fn take_and_return(store: &Store, clock: &ManualClock, charge: &Charge, before: &[u32], pause: u64) {
    for permits in before {
        store.take(&[Charge { permits: *permits, ..charge.clone() }]).await.expect("a decision");
        clock.advance_millis(pause);
    }
    let id = OnceId { id: charge.limiter.name.as_bytes().into(), request: [].into() };
    let start = clock.now();
    let used = store.inspect(charge).await.expect("a state").used;
    let taken = store.take_once(from_ref(charge), &[0], &id).await.expect("a decision");
    let TakenOnce::Decided(outcome) = taken else { panic!("{taken:?}") };
    let returned = store.return_once(&id.id).await.expect("a reply");
    if !outcome.granted() {
        assert_eq!(returned, ReturnedOnce::Unknown);
        return;
    }
    assert_eq!(returned, ReturnedOnce::Now);
    let inspection = store.inspect(charge).await.expect("a state");
    assert_eq!(clock.now(), start);
    if matches!(charge.limiter.quota.algorithm(), Algorithm::GcraWarmUp(_)) {
        // A cold bucket charges more than it gives back, so that it has no more permits than before.
        assert!((used..=used + u64::from(3 * charge.permits)).contains(&inspection.used), "{inspection:?}");
        return;
    }
    assert_eq!(inspection.used, used, "{:?}", charge.limiter);
    assert_eq!(store.return_once(&id.id).await, Ok(ReturnedOnce::Before));
    assert_eq!(store.take_once(from_ref(charge), &[0], &id).await, Ok(TakenOnce::Returned));
    assert_eq!(store.inspect(charge).await.expect("a state").used, used);
}

#[test]
fn returned_permits_leave_the_bucket_as_before() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let redis = RedisServer::start();
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
    let stores = runtime.block_on(async { stores(redis.as_ref(), &clock) });
    let config = ProptestConfig { cases: 32, ..ProptestConfig::default() };
    proptest!(config, |(before in prop::collection::vec(1..=3_u32, 0..4), permits in 1..=RATE, pause in 0..20_000_u64)| {
        for algorithm in examples(RATE) {
            let quota = Quota::new(RATE.into(), 60_000, algorithm).expect("a quota");
            for store in &stores {
                let limiter = Arc::new(Limiter::new(fresh_name(), Mode::Overall, quota));
                let charge = Charge::new(limiter, None, permits);
                runtime.block_on(take_and_return(store, &clock, &charge, &before, pause));
            }
        }
    });
}
