//! Tests of the embedded store apart from the algorithms: its bounds, its locks, and the identity of a bucket.

mod flood;
mod size;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};

use super::*;
use tidegate_limit::clock::ManualClock;
use tidegate_limit::{Algorithm, Mode, Quota};
use tidegate_rules::charge::{ClientId, Limiter};

fn charge(client: u32) -> Charge {
    let quota = Quota::new(1, 10_000, Algorithm::TokenBucket).expect("a quota");
    let limiter = Arc::new(Limiter::new("l".into(), Mode::PerClient, quota));
    Charge::new(limiter, Some(ClientId::Value(client.to_le_bytes().into())), 1)
}

#[test]
fn full_store_removes_only_full_buckets() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
    let memory = Memory::bounded(Arc::clone(&clock) as Arc<dyn Clock>, None, 640);
    let granted = |client| memory.take(&[charge(client)]).expect("a decision").granted();
    assert_eq!((0..2_000).filter(|client| granted(*client)).count(), 641, "the overflow bucket grants one permit");
    assert_eq!(memory.len(), 640);
    assert!(!(0..2_000).any(granted), "a bucket in use was removed");

    clock.advance_millis(10_000);
    assert!((2_000..2_640).all(granted), "full buckets were kept");
}

/// Regression test: the buckets of all clients were judged by the rate of the last one.
#[test]
fn another_rate_for_one_client_removes_no_bucket_in_use() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
    let memory = Memory::bounded(Arc::clone(&clock) as Arc<dyn Clock>, None, 640);
    let quota = Quota::new(1, 10_000, Algorithm::Gcra { burst: 1 }).expect("a quota");
    let base = Arc::new(Limiter::new("l".into(), Mode::PerClient, quota));
    let fast = Arc::new(base.at_rate(100));
    let granted = |limiter: &Arc<Limiter>, client| {
        let charge = Charge { limiter: Arc::clone(limiter), ..charge(client) };
        memory.take(&[charge]).expect("a decision").granted()
    };
    assert!((0..600).all(|client| granted(&base, client)));
    clock.advance_millis(500);
    assert!((0..600).step_by(2).all(|client| granted(&fast, client)));
    (600..2_000).for_each(|client| _ = granted(&base, client));
    assert!(!(1..600).step_by(2).any(|client| granted(&base, client)), "a bucket in use was removed");
}

/// Regression test: buckets were judged by the quota with the lowest rate, which may have a shorter interval.
#[test]
fn tier_with_a_longer_interval_keeps_its_buckets_in_use() {
    for algorithm in [Algorithm::SlidingWindow { segments: 6 }, Algorithm::TokenBucket] {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
        let memory = Memory::bounded(Arc::clone(&clock) as Arc<dyn Clock>, None, 640);
        let tier = |rate, interval| {
            let quota = Quota::new(rate, interval, algorithm).expect("a quota");
            Arc::new(Limiter::new("l".into(), Mode::PerClient, quota))
        };
        let remaining = |limiter: &Arc<Limiter>, client| {
            let charge = Charge { limiter: Arc::clone(limiter), ..charge(client) };
            memory.take(&[charge]).expect("a decision").decisions[0].remaining
        };
        let (free, pro) = (tier(5, 60_000), tier(1_000, 7_200_000));
        assert!((0..600).all(|client| remaining(&pro, client) == 999));
        clock.advance_millis(3_900_000);
        (600..2_000).for_each(|client| _ = remaining(&free, client));
        assert!((0..600).all(|client| remaining(&pro, client) == 998), "{algorithm:?}: a bucket in use was removed");
    }
}

/// Regression test: the charge of another limit was lost if the sweep for a new client removed its full bucket.
#[test]
fn sweep_for_a_new_client_loses_no_charge() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
    let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>, None);
    let quota = Quota::new(1, 10_000, Algorithm::TokenBucket).expect("a quota");
    let total = Charge::new(Arc::new(Limiter::new("total".into(), Mode::Overall, quota)), None, 1);
    let granted = |charges: &[Charge]| memory.take(charges).expect("a decision").granted();
    for client in 0..24_000 {
        assert!(granted(&[total.clone(), charge(client)]));
        assert!(!granted(std::slice::from_ref(&total)), "the charge of client {client} was lost");
        clock.advance_millis(10_000);
    }
}

/// A clock that advances with each call, and yields to other threads before it returns.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        let now = self.0.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
        Timestamp::from_millis(now)
    }
}

#[test]
fn delayed_decision_frees_no_permits_of_later_ones() {
    let memory = Memory::new(Arc::new(Ticking::default()), None);
    let quota = Quota::new(1, 10, Algorithm::TokenBucket).expect("a quota");
    let limiter = Arc::new(Limiter::new("l".into(), Mode::Overall, quota));
    let charge = [Charge::new(limiter, None, 1)];
    let granted = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let outcome = memory.take(&charge).expect("room");
                    if outcome.granted() {
                        granted.lock().push(outcome.now);
                    }
                }
            });
        }
    });
    let mut granted = granted.into_inner();
    granted.sort_unstable();
    assert!(granted.windows(2).all(|two| two[1].millis_since(two[0]) >= 10), "{granted:?}");
}

/// A clock that counts calls while no lock of its store is held.
#[derive(Debug, Default)]
struct Watching(OnceLock<Weak<Memory>>, AtomicU64);

impl Clock for Watching {
    fn now(&self) -> Timestamp {
        let memory = self.0.get().and_then(Weak::upgrade).expect("its store");
        let locked = memory.lock_shards.iter().any(Mutex::is_locked) || memory.limiters.is_locked();
        let locked = locked || memory.overflow.is_locked();
        self.1.fetch_add(u64::from(!locked), Ordering::SeqCst);
        Timestamp::from_millis(1_700_000_000_000)
    }
}

/// Regression test: a delay between reading the clock and locking set a bucket back in time, and permits that had
/// returned in between returned twice.
#[test]
fn clock_is_read_only_under_a_lock() {
    let clock = Arc::new(Watching::default());
    let memory = Arc::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>, None));
    clock.0.set(Arc::downgrade(&memory)).expect("set once");
    let charge = charge(1);
    let outcome = memory.take(std::slice::from_ref(&charge)).expect("room");
    memory.give_back(&[Granted { charge, at: outcome.now, overflow: false }]);
    drop(memory.limiters());
    assert_eq!(clock.1.load(Ordering::SeqCst), 0);
}

#[test]
fn bucket_is_identified_by_name_algorithm_and_client() {
    let memory = Memory::new(Arc::new(ManualClock::default()), None);
    let remaining = |name: &str, algorithm, client: Option<ClientId>| {
        let quota = Quota::new(10, 10_000, algorithm).expect("a quota");
        let mode = if client.is_some() { Mode::PerClient } else { Mode::Overall };
        let limiter = Arc::new(Limiter::new(name.into(), mode, quota));
        let charge = Charge::new(limiter, client, 1);
        memory.take(&[charge]).expect("room").decisions[0].remaining
    };
    let address = |text: &str| Some(ClientId::Address(text.parse().expect("a network")));
    let value = |value: &[u8]| Some(ClientId::Value(value.into()));
    let clients = [
        None,
        address("192.0.2.1/32"),
        address("192.0.2.2/32"),
        address("2001:db8::/64"),
        address("2001:db8::/63"),
        value(b"a"),
        value(b"b"),
        value(&[192, 0, 2, 1]),
        Some(ClientId::Instance("a".into())),
    ];
    // Each time with a new limiter, as after a reload.
    for expected in [9, 8] {
        for client in &clients {
            for (name, algorithm) in [
                ("l", Algorithm::TokenBucket),
                ("m", Algorithm::TokenBucket),
                ("l", Algorithm::SlidingWindow { segments: 2 }),
            ] {
                assert_eq!(remaining(name, algorithm, client.clone()), expected, "{name} {algorithm:?} {client:?}");
            }
        }
    }
    assert_eq!(memory.len(), clients.len() * 3);
}

#[test]
fn full_buckets_are_removed_while_new_ones_are_added() {
    let clock = Arc::new(ManualClock::default());
    let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>, None);
    for client in 0..200_000 {
        clock.advance_millis(10);
        assert!(memory.take(&[charge(client)]).expect("room").granted());
    }
    // A thousand are in use at a time. A shard is swept when it has doubled since the last sweep.
    assert!(memory.len() <= 64 * lock_shard::MIN_SWEEP_SIZE, "{} buckets", memory.len());
}
