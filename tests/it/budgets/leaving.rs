//! Callers that leave while the call that reserves for them is in flight.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Commands, cmd};
use futures_util::future::join_all;
use tidegate::{Metrics, Store};
use tidegate_limit::{Algorithm, Mode, Quota};
use tidegate_rules::charge::{Charge, ChargeKind, Limiter, OnLost};
use tidegate_rules::client::ClientSource;
use tidegate_rules::limits::concurrency::Concurrency;
use tidegate_rules::settings::store::{RedisSettings, RedisUrl, StoreSettings};
use tidegate_store::{RouteSlots, SlotRequest};
use tokio::task::yield_now;

use crate::support::proxy::FaultyProxy;
use crate::support::redis::RedisServer;
use crate::support::wire::{eventually, until};

/// The connections of the store to Redis.
const POOL_SIZE: usize = 4;

const ROUNDS: usize = 12;

fn store(proxy: &FaultyProxy) -> Store {
    let url = RedisUrl::new(format!("redis://127.0.0.1:{}", proxy.port));
    let settings = RedisSettings { pool_size: POOL_SIZE, timeout: Duration::from_secs(10), ..RedisSettings::new(url) };
    Store::open(&StoreSettings::Redis(settings), Arc::new(Metrics::new())).expect("a store")
}

fn charge() -> Charge {
    let quota = Quota::new(1_000_000, 86_400_000, Algorithm::TokenBucket).expect("a quota");
    let limiter = Limiter::new("{tidegate:chat}:tokens".to_owned(), Mode::Overall, quota).with_budget(OnLost::Charge);
    Charge::new(Arc::new(limiter), None, 1)
}

fn concurrency() -> Concurrency {
    Concurrency {
        name: "{tidegate:chat}:@in_flight".into(),
        max: Some(1_000),
        per_client: None,
        client: ClientSource::Ip,
        queue: 0,
        max_wait: Duration::ZERO,
    }
}

/// Sends a decision on each connection, in order. So Redis has received all earlier calls.
async fn send_on_each_connection(store: &Store, charge: &Charge) {
    for _ in 0..2 * POOL_SIZE {
        let check = Charge { permits: 0, kind: ChargeKind::Check, ..charge.clone() };
        store.take(&[check]).await.expect("a decision");
    }
}

async fn reserve(store: Store, charge: Charge, slots: Option<Arc<RouteSlots>>) {
    let charges = [Charge { kind: ChargeKind::Reserve(store.new_reservation()), ..charge }];
    let taken = match slots {
        None => store.take(&charges).await,
        Some(slots) => {
            let concurrency = concurrency();
            let request = SlotRequest { concurrency: &concurrency, slots: &slots, client: None, waits_since: None };
            store.take_with_slot(&charges, request).await.limits
        }
    };
    // This caller has stayed.
    if taken.is_ok_and(|outcome| outcome.granted()) {
        store.keep(&charges[0], None).settle(0);
    }
}

/// Returns the number of open reservations in Redis.
fn reservations(redis: &RedisServer) -> usize {
    redis.connection().hlen("{tidegate:chat}:tokens:@reserved").expect("a number")
}

/// Returns `true` if Redis has made a reservation.
fn has_reserved(redis: &RedisServer) -> bool {
    let stats: String = cmd("INFO").arg("commandstats").query(&mut redis.connection()).expect("statistics");
    stats.contains("cmdstat_hset:")
}

/// Regression test: the cancellation of a reservation could overtake the reservation on another connection.
#[tokio::test]
async fn caller_that_leaves_during_its_call_reserves_nothing() {
    for with_slot in [false, true] {
        let Some(redis) = RedisServer::start() else { return };
        let proxy = FaultyProxy::start(redis.port).await;
        let (store, charge) = (store(&proxy), charge());
        eventually(async || store.is_up().await).await;
        send_on_each_connection(&store, &charge).await;
        until(|| store.is_connected()).await;
        // The largest delay first: a call on a later connection arrives earlier.
        proxy.delay_requests(40, 0);
        let slots = with_slot.then(|| store.slots(&concurrency().name));
        // More and more of the calls have been sent when their callers leave.
        for yields in 0..ROUNDS {
            let calls: Vec<_> =
                (0..8).map(|_| tokio::spawn(reserve(store.clone(), charge.clone(), slots.clone()))).collect();
            for _ in 0..yields {
                yield_now().await;
            }
            calls.iter().for_each(tokio::task::JoinHandle::abort);
            join_all(calls).await;
        }
        send_on_each_connection(&store, &charge).await;
        until(|| reservations(&redis) == 0).await;
        assert!(has_reserved(&redis), "all callers have left before their calls");
    }
}
