//! Tests of more clients than capacity: the bucket that decides, and the capacity that each limit uses.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use crate::memory::Memory;
use tidegate_limit::clock::{Clock, ManualClock, Timestamp};
use tidegate_limit::{Algorithm, MAX_RATE, Mode, Quota};
use tidegate_rules::charge::{Charge, ClientId, Decision, Limiter};

const START: u64 = 1_700_000_000_000;
const INTERVAL: u64 = 10_000;

fn limiter(name: &str, rate: u64, mode: Mode) -> Arc<Limiter> {
    let quota = Quota::new(rate, INTERVAL, Algorithm::TokenBucket).expect("a quota");
    Arc::new(Limiter::new(name.into(), mode, quota))
}

fn charge_for(limiter: &Arc<Limiter>, client: u32, shadow: bool) -> Charge {
    let client = (limiter.mode == Mode::PerClient).then(|| ClientId::Value(client.to_le_bytes().into()));
    Charge { shadow, ..Charge::new(Arc::clone(limiter), client, 1) }
}

/// A store of 640 buckets with a manual clock and two limits: one that is flooded, and one for logins.
struct Flooded {
    memory: Memory,
    clock: Arc<ManualClock>,
    flooded: Arc<Limiter>,
    login: Arc<Limiter>,
}

impl Flooded {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START)));
        let memory = Memory::bounded(Arc::clone(&clock) as Arc<dyn Clock>, None, 640);
        let (flooded, login) = (limiter("a", 3, Mode::PerClient), limiter("login", 3, Mode::PerClient));
        memory.set_active_limits([&*flooded, &*login], []);
        Self { memory, clock, flooded, login }
    }

    fn ask(&self, charges: &[Charge]) -> Vec<Decision> {
        self.memory.take(charges).expect("a decision").decisions
    }

    fn granted(&self, charge: Charge) -> bool {
        self.ask(&[charge])[0].granted
    }

    /// Sends a request of each of these clients and returns the number of granted ones.
    fn flood(&self, limiter: &Arc<Limiter>, clients: std::ops::Range<u32>, shadow: bool) -> usize {
        clients.filter(|client| self.granted(charge_for(limiter, *client, shadow))).count()
    }
}

/// Regression test: two million random keys disabled the login limit, and all other limits.
#[test]
fn flood_of_clients_does_not_affect_other_limits() {
    let store = Flooded::new();
    let existing: Vec<_> = (0..100).collect();
    for client in &existing {
        assert!(
            store.granted(charge_for(&store.login, *client, false))
                && store.granted(charge_for(&store.flooded, *client, false))
        );
    }
    let held = store.memory.usage(&store.flooded);
    assert_eq!((held.held, held.share, held.overflowing), (100, 160, false));

    let passed = store.flood(&store.flooded, 1_000..30_000, false);
    // The share and the common half, of which 100 buckets were in use, and three permits of the overflow bucket.
    assert_eq!(passed, 160 + 320 - 100 + 3);
    let held = store.memory.usage(&store.flooded);
    assert_eq!((held.held, held.share, held.overflowing), (480, 160, true));
    for limiter in [&store.login, &store.flooded] {
        let count_granted =
            |client: &u32| (0..4).filter(|_| store.granted(charge_for(limiter, *client, false))).count();
        assert!(
            existing.iter().all(|client| count_granted(client) == 2),
            "a client with a bucket has two permits left"
        );
    }
    assert_eq!(store.flood(&store.login, 500..560, false), 60, "new clients of the login limit use its share");
    assert!(!store.memory.usage(&store.login).overflowing);
    assert_eq!(store.flood(&store.flooded, 1_000_000..1_010_000, false), 0);

    store.clock.advance_millis(INTERVAL);
    assert_eq!(store.flood(&store.flooded, 0..480, false), 480, "capacity is available again after an interval");
    store.memory.run_maintenance();
    assert!(store.memory.usage(&store.flooded).overflowing, "there is not enough capacity");
    store.clock.advance_millis(INTERVAL);
    store.memory.run_maintenance();
    let held = store.memory.usage(&store.flooded);
    assert_eq!((held.held, held.overflowing), (0, false));
}

#[test]
fn flood_of_a_shadow_uses_only_its_share() {
    let store = Flooded::new();
    assert_eq!(store.flood(&store.flooded, 0..10_000, true), 160 + 3);
    assert_eq!(store.flood(&store.login, 0..480, false), 480);
    let both = store.ask(&[charge_for(&store.flooded, 77_777, true), charge_for(&store.login, 1, false)]);
    assert_eq!(both.iter().map(|decision| decision.granted).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn overall_limit_always_has_its_bucket() {
    let store = Flooded::new();
    store.flood(&store.flooded, 0..2_000, false);
    store.flood(&store.login, 0..2_000, false);
    for number in 0..100 {
        let total = limiter(&format!("total {number}"), 3, Mode::Overall);
        let granted: Vec<_> = (0..4).map(|_| store.ask(&[charge_for(&total, 0, false)])[0]).collect();
        assert!(granted.iter().all(|decision| !decision.overflow));
        assert_eq!(granted.iter().filter(|decision| decision.granted).count(), 3);
    }
}

#[test]
fn refused_request_charges_no_overflow_bucket() {
    let store = Flooded::new();
    store.flood(&store.flooded, 0..480, false);
    let total = limiter("total", 1, Mode::Overall);
    let charges = |client| [charge_for(&store.flooded, client, false), charge_for(&total, 0, false)];
    assert!(store.ask(&charges(1_000))[1].granted);
    for client in 1_001..1_100 {
        let refused = store.ask(&charges(client));
        assert!(refused[0].granted && refused[0].overflow && !refused[1].granted, "{refused:?}");
        assert_eq!(refused[0].remaining, 2);
    }
    assert_eq!(store.flood(&store.flooded, 2_000..2_100, false), 2, "three minus the granted one");
}

#[test]
fn given_back_permits_return_to_the_charged_bucket() {
    let store = Flooded::new();
    store.flood(&store.flooded, 0..480, false);
    let charge = charge_for(&store.flooded, 1_000, false);
    let outcome = store.memory.take(std::slice::from_ref(&charge)).expect("a decision");
    let granted_charges = outcome.granted_charges(std::slice::from_ref(&charge));
    assert!(granted_charges[0].overflow);
    store.memory.give_back(&granted_charges);
    assert_eq!(store.ask(&[Charge { permits: 0, ..charge.clone() }])[0].remaining, 3);

    // Again, but before the charge is given back the client gets its own bucket, at the same time.
    let outcome = store.memory.take(std::slice::from_ref(&charge)).expect("a decision");
    let granted_charges = outcome.granted_charges(std::slice::from_ref(&charge));
    store.clock.set(Timestamp::from_millis(START + 2 * INTERVAL));
    store.memory.take(&[charge_for(&store.flooded, 5_000, false)]).expect("a decision");
    store.clock.set(Timestamp::from_millis(START));
    let own = store.memory.take(std::slice::from_ref(&charge)).expect("a decision").decisions[0];
    assert!(own.granted && !own.overflow, "{own:?}");
    store.memory.give_back(&granted_charges);
    assert_eq!(store.ask(&[Charge { permits: 0, ..charge }])[0].remaining, 2, "its own bucket was changed");
}

#[test]
fn new_rules_change_shares_but_keep_buckets_in_use() {
    let store = Flooded::new();
    store.flood(&store.flooded, 0..480, false);
    let limiters: Vec<_> = (0..8).map(|number| limiter(&format!("new {number}"), 3, Mode::PerClient)).collect();
    store.memory.set_active_limits(limiters.iter().map(|limiter| &**limiter), [&*store.flooded, &*store.login]);
    for limiter in &limiters {
        assert_eq!(store.memory.usage(limiter).share, 40);
        assert_eq!(store.flood(limiter, 0..40, false), 40, "a new limit has its share immediately");
        assert_eq!(store.flood(limiter, 40..80, false), 3, "and the common half is in use");
    }
    assert_eq!(store.memory.usage(&store.flooded).share, 0);
    assert!((0..480).all(|client| store.granted(charge_for(&store.flooded, client, false))));
    assert_eq!(store.flood(&store.flooded, 0..480, false), 480, "the third of three permits");
    assert_eq!(store.flood(&store.flooded, 0..480, false), 0);
    store.clock.advance_millis(2 * INTERVAL);
    assert_eq!(store.flood(&limiters[0], 0..360, false), 360, "borrowed capacity is free again");
}

#[test]
fn request_for_no_permits_adds_no_bucket() {
    let store = Flooded::new();
    let nothing = |client| Charge { permits: 0, ..charge_for(&store.flooded, client, false) };
    assert_eq!(store.ask(&[nothing(1)])[0].remaining, 3);
    assert_eq!(store.memory.len(), 0);
    store.flood(&store.flooded, 0..481, false);
    assert_eq!(store.ask(&[nothing(1_000)])[0].remaining, 2);
    assert_eq!(store.memory.usage(&store.flooded).held, 480);
}

#[test]
fn two_charges_on_a_missing_bucket_add_one_bucket() {
    let store = Flooded::new();
    let charge = charge_for(&store.flooded, 1, false);
    store.ask(&[charge.clone(), charge.clone()]);
    assert_eq!((store.memory.len(), store.memory.usage(&store.flooded).held), (1, 1));
    assert_eq!(store.ask(&[Charge { permits: 0, ..charge }])[0].remaining, 1);
}

/// Generates request times of more clients than the capacity.
fn lives() -> impl Strategy<Value = Vec<(u64, u32)>> {
    prop::collection::vec((0..INTERVAL / 3, 0..24_u32), 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn each_bucket_keeps_its_guarantee(life in lives(), rate in 1..5_u64) {
        let clock = Arc::new(ManualClock::default());
            let memory = Memory::bounded(Arc::clone(&clock) as Arc<dyn Clock>, None, 8);
        let limiter = limiter("a", rate, Mode::PerClient);
        let (mut now, mut granted) = (START, HashMap::<Option<u32>, Vec<u64>>::new());
        for (passes, client) in life {
            now += passes / 8;
            clock.set(Timestamp::from_millis(now));
            let outcome = memory.take(&[charge_for(&limiter, client, false)]).expect("decided");
            let bucket = (!outcome.decisions[0].overflow).then_some(client);
            let before = granted.entry(bucket).or_default();
            let in_use = before.iter().filter(|at| **at + INTERVAL > now).count() as u64;
            prop_assert_eq!(outcome.granted(), in_use < rate, "{:?} at {}", bucket, now - START);
            if outcome.granted() {
                before.push(now);
            }
            prop_assert!(memory.len() <= 8);
        }
    }
}

#[test]
fn concurrent_floods_keep_shares_and_counts() {
    let memory = Memory::bounded(Arc::new(ManualClock::default()), None, 640);
    let limiters: Vec<_> =
        (0..2).map(|number| limiter(&format!("{number}"), MAX_RATE.into(), Mode::PerClient)).collect();
    memory.set_active_limits(limiters.iter().map(|limiter| &**limiter), []);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (memory, limiters) = (&memory, &limiters);
            scope.spawn(move || {
                for client in 0..5_000 {
                    let both = limiters.iter().map(|limiter| charge_for(limiter, thread % 2 * 5_000 + client, false));
                    let mut both: Vec<_> = both.collect();
                    both.rotate_left((thread % 2) as usize);
                    memory.take(&both).expect("a decision");
                }
            });
        }
    });
    let held: Vec<_> = limiters.iter().map(|limiter| memory.usage(limiter).held).collect();
    assert!(held.iter().all(|held| *held >= 160), "{held:?}");
    assert_eq!((held.iter().sum::<usize>(), memory.len()), (640, 640));
}
