//! `gcra` with `warm_up`: in any time span `t`, granted permits <= burst + rate * t / interval; from a cold start and for
//! `t` <= `warm_up`, granted permits <= burst + rate * t / (2 * interval).

use deadpool_redis::redis::Commands;
use proptest::prelude::*;
use tidegate_limit::algorithm::gcra::warm_up::{MAX_WARM_UP, MIN_WARM_UP, WarmUp};
use tidegate_limit::{Algorithm, MAX_INTERVAL, MAX_RATE, Quota, Wait};

use super::{Life, START, Stores, Subject};
use crate::support::charge_of;
use crate::support::redis::RedisServer;

pub(super) const SUBJECT: Subject = Subject { algorithm, changed, law };

fn quota(rate: u64, interval: u64, burst: u32, millis: u64) -> Quota {
    Quota::new(rate, interval, Algorithm::GcraWarmUp(WarmUp { burst, millis })).expect("a quota")
}

fn algorithm(rate: u64) -> BoxedStrategy<Algorithm> {
    let rate = u32::try_from(rate).expect("a rate");
    let most = rate.saturating_mul(3).min(MAX_RATE);
    let burst = prop_oneof![Just(rate), Just(1), 1..=rate, rate..=most];
    let millis = prop_oneof![Just(MIN_WARM_UP), Just(MAX_WARM_UP), MIN_WARM_UP..30_000];
    (burst, millis).prop_map(|(burst, millis)| Algorithm::GcraWarmUp(WarmUp { burst, millis })).boxed()
}

fn warm_up(quota: &Quota) -> u64 {
    match quota.algorithm() {
        Algorithm::GcraWarmUp(WarmUp { millis, .. }) => millis,
        other => panic!("{other:?}"),
    }
}

fn changed(quota: Quota, change: usize) -> Quota {
    let (rate, interval, burst) = (u64::from(quota.rate()), quota.interval(), quota.capacity());
    let warm_up = warm_up(&quota);
    match change {
        0 => self::quota(rate.div_ceil(2), interval, burst, warm_up),
        1 => self::quota((rate * 7).min(MAX_RATE.into()), interval, burst, warm_up),
        2 => self::quota(rate, (interval / 3).max(1), burst, warm_up),
        3 => self::quota(rate, interval, burst.div_ceil(2), (warm_up / 2).max(MIN_WARM_UP)),
        _ => quota,
    }
}

/// Checks both parts of the guarantee for all time spans. The bucket is cold at the start, and after a pause in which even
/// the dearest permits have returned and the bucket has cooled down.
fn law(life: &Life) -> Result<(), TestCaseError> {
    let quota = &life.quota;
    let [rate, interval, burst] = [quota.rate().into(), quota.interval().into(), u128::from(quota.capacity())];
    let millis = u128::from(warm_up(quota));
    let pause = (3 * burst * interval).div_ceil(rate) + millis + 1;
    let mut last = None;
    for (first, (start, _)) in life.granted.iter().enumerate() {
        let was_idle = last.is_none_or(|last| u128::from(start - last) > pause);
        let (mut granted, is_cold) = (0, was_idle);
        for (at, permits) in &life.granted[first..] {
            granted += u128::from(*permits);
            let time = u128::from(at - start);
            let returned = if is_cold && time <= millis { rate * time / 2 } else { rate * time };
            prop_assert!(
                granted * interval <= burst * interval + returned,
                "{} granted in {} ms, cold: {}, {:?}",
                granted,
                time,
                is_cold,
                quota
            );
        }
        last = Some(*start);
    }
    prop_assert!(u128::from(life.left) <= burst);
    Ok(())
}

/// Generates extreme quotas, which lead to the largest numbers.
fn extremes() -> impl Strategy<Value = (u64, u64)> + Clone {
    let rate = prop_oneof![Just(1), Just(u64::from(MAX_RATE) - 1), 1..u64::from(MAX_RATE)];
    (rate, prop_oneof![Just(1), Just(7), Just(MAX_INTERVAL), 1..=MAX_INTERVAL])
}

#[test]
fn script_is_exact_for_extreme_warm_ups() {
    let stores = Stores::start();
    stores.decide_alike(&SUBJECT, 96, extremes());
    stores.keep_the_law(&SUBJECT, 48, extremes());
}

#[test]
fn full_demand_gets_half_of_the_permits_during_the_warm_up() {
    Stores::start().each(|name, take| {
        let quota = quota(10, 1_000, 1, 10_000);
        let mut granted = [0, 0];
        let mut now = 0;
        while now < 20_000 {
            let charge = charge_of(name, None, quota, 1);
            match take(&[charge], START + now).decisions[0].wait {
                Wait::Now => granted[usize::from(now >= 10_000)] += 1,
                Wait::Millis(wait) => now += wait,
                Wait::Never => panic!("never"),
            }
        }
        assert!((50..=51).contains(&granted[0]) && (99..=100).contains(&granted[1]), "{granted:?}");
    });
}

#[tokio::test]
async fn key_expires_when_the_bucket_is_cold() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    let charge = charge_of("{tidegate:r}:l", None, quota(1, 10_000, 3, 60_000), 1);
    assert!(store.take(&[charge]).await.expect("a decision").granted());
    let key = "{tidegate:r}:l:warm";
    assert_eq!(redis.strlen::<_, usize>(key).expect("a string"), 34);
    // One permit of ten seconds and its extra of at most two, then as long to cool down.
    let ttl: i64 = redis.pttl(key).expect("a time to live");
    assert!((20_000..=41_000).contains(&ttl), "{ttl} ms to live");
}
