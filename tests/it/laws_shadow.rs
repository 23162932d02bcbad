//! Shadow limits do not affect live limits, and their buckets equal the buckets of live limits. Also: a rejected
//! request changes no bucket, in the embedded store and in Redis.

use deadpool_redis::redis::{Commands, Connection, cmd};
use proptest::prelude::*;
use tidegate::internals::ReplayStore;
use tidegate_limit::Wait;
use tidegate_rules::charge::{Charge, Decision};

use crate::laws::{START, Stores, config};
use crate::support::overall;
use crate::support::redis::fresh_name;

/// The rates of the buckets; above 512, grants share entries.
const RATES: [u64; 4] = [2, 5, 7, 600];

const INTERVAL: u64 = 60_000;

/// A step: time passes, then a request charges some of the buckets, as shadow or live.
#[derive(Clone, Debug)]
struct Step {
    passes: i64,
    asks: Vec<(u32, bool)>,
    undo: bool,
}

/// Generates steps in which each bucket is always a shadow or always live.
fn constant() -> impl Strategy<Value = Vec<Step>> {
    let shadows = prop::collection::vec(any::<bool>(), RATES.len());
    (life(onward()), shadows).prop_map(|(mut steps, shadows)| {
        for step in &mut steps {
            step.asks.iter_mut().zip(&shadows).for_each(|(ask, shadow)| ask.1 = *shadow);
        }
        steps
    })
}

fn life(passes: impl Strategy<Value = i64>) -> impl Strategy<Value = Vec<Step>> {
    let permits = prop_oneof![6 => 1..=3_u32, 1 => Just(0), 1 => 500..=601_u32];
    let asks = prop::collection::vec((permits, any::<bool>()), 1..=RATES.len());
    let step = (passes, asks, prop::bool::weighted(0.1));
    prop::collection::vec(step.prop_map(|(passes, asks, undo)| Step { passes, asks, undo }), 1..40)
}

fn onward() -> impl Strategy<Value = i64> {
    prop_oneof![3 => Just(0), 6 => 0..=15_000_i64, 1 => 0..=120_000_i64]
}

/// Returns the charges of a step, on buckets with this name.
fn charges(name: &str, step: &Step) -> Vec<Charge> {
    let charge = |(bucket, (permits, shadow)): (usize, &(u32, bool))| Charge {
        shadow: *shadow,
        ..overall(&format!("{name}:{bucket}"), RATES[bucket], INTERVAL, *permits)
    };
    step.asks.iter().enumerate().map(charge).collect()
}

fn live(charges: &[Charge]) -> Vec<Charge> {
    charges.iter().filter(|charge| !charge.shadow).cloned().collect()
}

fn check(life: impl Strategy<Value = Vec<Step>>, law: impl Fn(Vec<Step>) -> Result<(), TestCaseError>) {
    config(48).run(&life, law).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn shadow_decisions_are_equal_on_both_stores() {
    let stores = Stores::start();
    let [memory, redis] = &stores.all[..] else { return };
    let passes = prop_oneof![8 => onward(), 1 => -120_000..=0_i64];
    check(life(passes), |steps| {
        let (name, mut now) = (fresh_name(), START);
        for step in steps {
            now = now.checked_add_signed(step.passes).expect("a moment");
            let charges = charges(&name, &step);
            let (one, other) = (stores.take(memory, &charges, now), stores.take(redis, &charges, now));
            prop_assert_eq!(&one, &other, "{:?}", step);
            if step.undo {
                let made = one.granted_charges(&charges);
                stores.give_back(memory, &made, now);
                stores.give_back(redis, &made, now);
            }
        }
        Ok(())
    });
}

#[test]
fn shadows_do_not_change_live_decisions() {
    let stores = Stores::start();
    for store in &stores.all {
        check(constant(), |steps| {
            let (watched, alone, mut now) = (fresh_name(), fresh_name(), START);
            for step in steps {
                now += step.passes.unsigned_abs();
                let asked = charges(&watched, &step);
                let outcome = stores.take(store, &asked, now);
                let said = asked.iter().zip(&outcome.decisions).filter(|(charge, _)| !charge.shadow);
                let said: Vec<Decision> = said.map(|(_, decision)| *decision).collect();
                let expected = stores.take(store, &live(&charges(&alone, &step)), now);
                prop_assert_eq!((outcome.granted(), said), (expected.granted(), expected.decisions), "{:?}", step);
            }
            Ok(())
        });
    }
}

#[test]
fn shadow_buckets_equal_live_buckets() {
    let stores = Stores::start();
    for store in &stores.all {
        check(constant(), |steps| {
            let (shadow, model, mut now) = (fresh_name(), fresh_name(), START);
            for step in steps {
                now += step.passes.unsigned_abs();
                let asked = charges(&shadow, &step);
                let outcome = stores.take(store, &asked, now);
                // Each shadow is compared with a live limit on its own, after limits that have granted or refused.
                for (mut one, said) in charges(&model, &step).into_iter().zip(&outcome.decisions) {
                    if std::mem::take(&mut one.shadow) {
                        let live = match outcome.granted() {
                            true => vec![one],
                            false => vec![one, overall(&format!("{model}:none"), 1, INTERVAL, 2)],
                        };
                        prop_assert_eq!(*said, stores.take(store, &live, now).decisions[0], "{:?}", step);
                    }
                }
            }
            Ok(())
        });
    }
}

/// Returns the decisions of the buckets about a request that they refuse, which changes nothing.
fn probe(stores: &Stores, store: &ReplayStore, name: &str, now: u64) -> Vec<Decision> {
    let ask = |bucket: usize, permits: u32| overall(&format!("{name}:{bucket}"), RATES[bucket], INTERVAL, permits);
    let peeks = stores.take_each(store, (0..RATES.len()).map(|bucket| ask(bucket, 0)), now);
    let refused = RATES.iter().zip(&peeks).enumerate().flat_map(|(bucket, (rate, peek))| {
        let more = (peek.remaining + 1..).take(8).chain([u32::try_from(*rate).expect("small") + 1]);
        more.map(move |permits| ask(bucket, permits))
    });
    let refused = stores.take_each(store, refused, now);
    [peeks, refused].concat()
}

/// Returns all keys of these buckets with their content and expiry time; before Redis 7, only whether they expire.
fn contents(redis: &mut Connection, name: &str) -> Vec<(String, Vec<u8>, i64)> {
    let mut keys: Vec<String> = redis.keys(format!("{name}:*")).expect("keys");
    keys.sort();
    let read = |key: String| {
        let content = cmd("DUMP").arg(&key).query(redis).expect("a dump");
        let moment = cmd("PEXPIRETIME").arg(&key).query(redis);
        let expires = moment.or_else(|_| redis.pttl::<_, i64>(&key).map(i64::signum)).expect("a moment");
        (key, content, expires)
    };
    keys.into_iter().map(read).collect()
}

#[test]
fn rejected_request_changes_no_bucket() {
    let stores = Stores::start();
    let mut redis = stores.redis.as_ref().map(|redis| std::cell::RefCell::new(redis.connection()));
    for store in &stores.all {
        let redis = redis.as_mut().filter(|_| store.store.is_redis());
        let stored = |name: &str| redis.as_ref().map(|redis| contents(&mut redis.borrow_mut(), name));
        check(life(onward()), |steps| {
            let (name, mut now) = (fresh_name(), START);
            for step in steps {
                now += step.passes.unsigned_abs();
                let (says, holds) = (probe(&stores, store, &name, now), stored(&name));
                let charges = charges(&name, &step);
                let outcome = stores.take(store, &charges, now);
                if outcome.granted() {
                    continue;
                }
                let refused =
                    charges.iter().zip(&outcome.decisions).any(|(charge, one)| !charge.shadow && one.wait > Wait::Now);
                prop_assert!(refused, "only a live limit can refuse: {:?}", outcome);
                prop_assert_eq!(says, probe(&stores, store, &name, now), "{:?}", step);
                prop_assert!(holds == stored(&name), "the keys in Redis were changed by {:?}", step);
            }
            Ok(())
        });
    }
}
