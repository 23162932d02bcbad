//! `gcra`: in any time span `t`, granted permits <= burst + rate * t / interval.

use deadpool_redis::redis::Commands;
use proptest::prelude::*;
use tidegate_limit::{Algorithm, MAX_INTERVAL, MAX_RATE, Quota, Wait};

use super::{Life, START, Stores, Subject};
use crate::support::charge_of;
use crate::support::redis::RedisServer;

pub(super) const SUBJECT: Subject = Subject { algorithm, changed, law };

fn quota(rate: u64, interval: u64, burst: u32) -> Quota {
    Quota::new(rate, interval, Algorithm::Gcra { burst }).expect("a quota")
}

fn algorithm(rate: u64) -> BoxedStrategy<Algorithm> {
    let rate = u32::try_from(rate).expect("a rate");
    let most = rate.saturating_mul(3).min(MAX_RATE);
    let burst = prop_oneof![Just(rate), Just(1), 1..=rate, rate..=most];
    burst.prop_map(|burst| Algorithm::Gcra { burst }).boxed()
}

fn changed(quota: Quota, change: usize) -> Quota {
    let (rate, interval, burst) = (u64::from(quota.rate()), quota.interval(), quota.capacity());
    match change {
        0 => self::quota(rate.div_ceil(2), interval, burst),
        1 => self::quota((rate * 7).min(MAX_RATE.into()), interval, burst),
        2 => self::quota(rate, (interval / 3).max(1), burst),
        3 => self::quota(rate, interval, burst.div_ceil(2)),
        _ => quota,
    }
}

/// The permits in use are the maximal excess of grants over the rate in any time span; all others remain.
fn law(life: &Life) -> Result<(), TestCaseError> {
    let [rate, interval, burst] =
        [life.quota.rate().into(), life.quota.interval().into(), u128::from(life.quota.capacity())];
    let (mut granted, mut used) = (0, 0_u128);
    for (at, permits) in life.granted.iter().rev() {
        granted += u128::from(*permits);
        used = used.max((granted * interval).saturating_sub(rate * u128::from(life.now - at)));
    }
    prop_assert!(used <= burst * interval, "{}/{} in use with a burst of {}", used, interval, burst);
    prop_assert_eq!(u128::from(life.left), burst - used.div_ceil(interval));
    Ok(())
}

/// Generates extreme quotas, which lead to the largest numbers.
fn extremes() -> impl Strategy<Value = (u64, u64)> + Clone {
    let rate = prop_oneof![Just(1), Just(u64::from(MAX_RATE) - 1), 1..u64::from(MAX_RATE)];
    (rate, prop_oneof![Just(1), Just(7), Just(MAX_INTERVAL), 1..=MAX_INTERVAL])
}

#[test]
fn script_is_exact_for_extreme_quotas() {
    let stores = Stores::start();
    stores.decide_alike(&SUBJECT, 96, extremes());
    stores.keep_the_law(&SUBJECT, 48, extremes());
}

#[test]
fn burst_is_granted_immediately_then_one_by_one() {
    Stores::start().each(|name, take| {
        let take = |permits, after| take(&[charge_of(name, None, quota(3, 10_000, 5), permits)], START + after);
        assert!(take(5, 0).granted());
        let refused = take(1, 0).decisions[0];
        assert_eq!((refused.wait, refused.remaining, refused.reset), (Wait::Millis(3_334), 0, 3_334));
        assert!(!take(1, 3_333).granted() && take(1, 3_334).granted());
        // The third of a millisecond by which the first permit was late is not lost.
        assert_eq!(take(2, 3_334).decisions[0].wait, Wait::Millis(10_000 - 3_334));
        assert_eq!(take(6, 3_334).decisions[0].wait, Wait::Never);
    });
}

#[test]
fn clock_set_back_an_hour_keeps_the_usual_rate() {
    Stores::start().each(|name, take| {
        let take = |permits, at| take(&[charge_of(name, None, quota(2, 1_000, 4), permits)], at).decisions[0];
        assert!(take(4, START).granted);
        let back = START - 3_600_000;
        assert_eq!(take(1, back).wait, Wait::Millis(500));
        assert!(!take(1, back + 499).granted && take(1, back + 500).granted);
        assert!(!take(4, back + 2_499).granted && take(4, back + 2_500).granted);
    });
}

#[test]
fn clock_set_ahead_grants_one_extra_burst() {
    Stores::start().each(|name, take| {
        let take = |permits, at| take(&[charge_of(name, None, quota(2, 1_000, 4), permits)], at).decisions[0];
        assert!(take(4, START).granted && take(4, START + 3_600_000).granted);
        assert!(!take(1, START + 3_600_000).granted && !take(1, START).granted);
    });
}

#[tokio::test]
async fn key_expires_when_the_bucket_is_full() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    let take = async |client, quota, permits| {
        let charge = charge_of("{tidegate:r}:l", client, quota, permits);
        store.take(&[charge]).await.expect("a decision").granted()
    };
    assert!(take(Some(b"a"), quota(3, 30_000, 10), 3).await && take(None, quota(1, 1_000, 1), 1).await);
    let keys: Vec<String> = redis.keys("{tidegate:r}:l:gcra:*").expect("keys");
    let [key] = &keys[..] else { panic!("{keys:?}") };
    assert_eq!(redis.strlen::<_, usize>(key).expect("a string"), 23);
    let mut lives = |least: i64, most: i64| {
        let ttl: i64 = redis.pttl(key).expect("a time to live");
        assert!((least..=most).contains(&ttl), "{ttl} ms to live, not {least} to {most}");
        ttl
    };
    let first = lives(20_000, 31_000);
    assert!(!take(Some(b"a"), quota(3, 30_000, 10), 8).await);
    let second = lives(20_000, first);
    assert!(!take(Some(b"a"), quota(3, 30_000, 10), 11).await);
    lives(20_000, second);
    // With a slower rule the bucket refills later, and its permits in use are kept until then.
    assert!(!take(Some(b"a"), quota(3, 300_000, 10), 8).await);
    lives(200_000, 301_000);
    assert!(redis.exists::<_, bool>("{tidegate:r}:l:gcra").expect("an answer"));
}
