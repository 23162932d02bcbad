//! `token_bucket`: at most `rate` permits are granted in any window of an interval.

use deadpool_redis::redis::Commands;
use proptest::prelude::*;
use tidegate::Timestamp;
use tidegate_limit::{Algorithm, Quota};
use tidegate_rules::charge::Granted;

use super::{Life, START, Stores, Subject};
use crate::support::overall;
use crate::support::redis::{RedisServer, fresh_name};

pub(super) const SUBJECT: Subject = Subject { algorithm: |_| Just(Algorithm::TokenBucket).boxed(), changed, law };

fn changed(quota: Quota, change: usize) -> Quota {
    let rate = u64::from(quota.rate());
    let rate = if change == 0 { rate.div_ceil(2) } else { rate };
    let interval = if change == 1 { 7 * quota.interval() } else { quota.interval() };
    Quota::new(rate, interval, quota.algorithm()).expect("a quota")
}

fn law(life: &Life) -> Result<(), TestCaseError> {
    let (rate, interval) = (u64::from(life.quota.rate()), life.quota.interval());
    let used = |window: u64| -> u64 {
        life.granted.iter().filter(|(at, _)| at + window > life.now).map(|(_, permits)| permits).sum()
    };
    prop_assert!(used(interval) <= rate, "{} granted in one window of rate {}", used(interval), rate);
    // A permit returns at most one merge step late.
    let slot = if rate > 512 { interval.div_ceil(511) } else { 0 };
    let kept = rate - used(interval + slot).min(rate);
    prop_assert!(life.left >= kept, "{} left where {} have returned", life.left, kept);
    Ok(())
}

#[test]
fn request_undone_under_an_old_rate_frees_its_permits() {
    let stores = Stores::start();
    for store in &stores.all {
        let name = fresh_name();
        let older = [overall(&name, 1, 10_000, 1)];
        let newer = [overall(&name, 2, 10_000, 1)];
        let undone = stores.take(store, &older, START).granted_charges(&older);
        assert!(stores.take(store, &newer, START).granted());
        stores.give_back(store, &undone, START);
        assert!(stores.take(store, &newer, START).granted());
        assert!(!stores.take(store, &newer, START).granted());
    }
}

#[tokio::test]
async fn log_with_a_replaced_entry_still_expires() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    let now = Timestamp::from_millis(START);
    let charge = |name, permits| [overall(name, 1_000, 10_000, permits)];
    let mut lives = |name| redis.pttl::<_, i64>(name).expect("a time to live") > 0;

    assert!(store.take_at(&charge("part", 5), now).await.expect("a decision").granted());
    let [part] = charge("part", 2);
    store.give_back_at(&[Granted { charge: part, at: now, overflow: false }], now).await.expect("given back");
    assert!(lives("part"), "a partly given back charge never expires");

    let back = Timestamp::from_millis(START - 3_600_000);
    assert!(store.take_at(&charge("back", 5), now).await.expect("a decision").granted());
    assert!(!store.take_at(&charge("back", 999), back).await.expect("a decision").granted());
    assert!(lives("back"), "a redated charge never expires");
}

/// Gateways with an old and a new rule in random order: each applies its own rule to the grants of both.
#[test]
fn rate_of_the_last_granting_rule_holds_during_rule_changes() {
    let stores = Stores::start();
    for store in &stores.all {
        let mut runner = super::config(48);
        let rules = (1..=30_u64, 5_000..=20_000_u64, 1..=30_u64, 5_000..=100_000_u64);
        let turns = prop::collection::vec((any::<bool>(), 0..=3_000_u64, 1..=3_u32), 1..80);
        let outcome = runner.run(&(rules, turns), |((old_rate, old_interval, new_rate, new_interval), turns)| {
            let name = fresh_name();
            let longer = old_interval.max(new_interval);
            let (mut now, mut longer_spoke) = (START, None);
            let mut granted: Vec<(u64, u64)> = Vec::new();
            for (new, passes, permits) in turns {
                now += passes;
                let (rate, interval) = if new { (new_rate, new_interval) } else { (old_rate, old_interval) };
                // The longer interval is respected from its first grant on, for twice its length after the last request
                // that used it, granted or refused.
                if longer_spoke.is_some_and(|at| now > at + 2 * longer) || (longer_spoke.is_none() && interval < longer)
                {
                    continue;
                }
                let used =
                    granted.iter().filter(|(at, _)| at + interval > now).map(|(_, permits)| permits).sum::<u64>();
                let decision = stores.take(store, &[overall(&name, rate, interval, permits)], now).decisions[0];
                let fits = used + u64::from(permits) <= rate;
                prop_assert_eq!(
                    decision.granted,
                    fits,
                    "{} of {} in {} ms are in use, {} requested",
                    used,
                    rate,
                    interval,
                    permits
                );
                if decision.granted {
                    granted.push((now, u64::from(permits)));
                }
                if interval == longer && (decision.granted || longer_spoke.is_some()) {
                    longer_spoke = Some(now);
                }
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}
