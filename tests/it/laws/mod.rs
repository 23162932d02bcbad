//! The guarantees of the algorithms in the embedded store and in a real Redis, and that both stores decide equally.

mod budgets;
mod debt;
mod gcra;
mod gcra_warm_up;
mod leaky_bucket;
mod reports;
mod shards;
mod token_bucket;

use futures_util::future::join_all;
use proptest::prelude::*;
use tidegate::Timestamp;
use tidegate::internals::ReplayStore;
use tidegate_limit::{Algorithm, AlgorithmName, Quota, Wait};
use tidegate_rules::charge::{Charge, ChargeKind, Decision, Granted, Outcome};

use crate::support;
use crate::support::redis::{RedisServer, fresh_name};
use crate::support::{charge_of, overall, per_client, replay_memory};

pub const START: u64 = 1_700_000_000_000;

/// Returns the algorithms of the rule file and their variants, except those in `laws_windows`.
fn subjects() -> impl Iterator<Item = Subject> {
    let of_name = |name: &AlgorithmName| match name {
        AlgorithmName::TokenBucket => Some(token_bucket::SUBJECT),
        AlgorithmName::Gcra => Some(gcra::SUBJECT),
        AlgorithmName::LeakyBucket => Some(leaky_bucket::SUBJECT),
        AlgorithmName::FixedWindow | AlgorithmName::SlidingWindow => None,
    };
    AlgorithmName::ALL.iter().filter_map(of_name).chain([gcra_warm_up::SUBJECT])
}

/// An algorithm: the generator of its quotas, and its guarantee.
struct Subject {
    /// Generates the other parameters of a quota with this rate.
    algorithm: fn(u64) -> BoxedStrategy<Algorithm>,
    /// Changes the quota like an edit of the rule file; the number selects the change, or none.
    changed: fn(Quota, usize) -> Quota,
    /// Checks the guarantee over the history of a bucket.
    law: fn(&Life) -> Result<(), TestCaseError>,
}

/// The history of a bucket.
struct Life {
    quota: Quota,
    /// The times and the permits of the grants, oldest first.
    granted: Vec<(u64, u64)>,
    now: u64,
    /// The remaining permits according to the store.
    left: u64,
}

/// Both stores, and a runtime for them.
pub struct Stores {
    pub runtime: tokio::runtime::Runtime,
    /// The embedded store is the first.
    pub all: Vec<ReplayStore>,
    /// The server of the other store.
    pub redis: Option<RedisServer>,
}

impl Stores {
    pub fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let redis = RedisServer::start();
        let mut all = vec![replay_memory()];
        all.extend(redis.iter().map(RedisServer::replay_store));
        Self { runtime, all, redis }
    }

    pub fn take(&self, store: &ReplayStore, charges: &[Charge], now: u64) -> Outcome {
        let now = Timestamp::from_millis(now);
        self.runtime.block_on(store.take_at(charges, now)).expect("a decision")
    }

    /// Decides each charge separately, all at the same time.
    pub fn take_each(&self, store: &ReplayStore, charges: impl IntoIterator<Item = Charge>, now: u64) -> Vec<Decision> {
        let now = Timestamp::from_millis(now);
        let take = |charge| async move { store.take_at(&[charge], now).await.expect("a decision").decisions[0] };
        self.runtime.block_on(join_all(charges.into_iter().map(take)))
    }

    pub fn give_back(&self, store: &ReplayStore, granted: &[Granted], now: u64) {
        let now = Timestamp::from_millis(now);
        self.runtime.block_on(store.give_back_at(granted, now)).expect("given back");
    }

    /// Runs a scenario on each store, with its own bucket name.
    pub fn each(&self, scenario: impl Fn(&str, &dyn Fn(&[Charge], u64) -> Outcome)) {
        for store in &self.all {
            scenario(&fresh_name(), &|charges, now| self.take(store, charges, now));
        }
    }
}

#[test]
fn permits_return_after_the_interval_on_both_stores() {
    Stores::start().each(|name, take| {
        let take = |after| take(&[overall(name, 3, 10_000, 1)], START + after).granted();
        assert_eq!([0, 1, 2, 3, 9_999, 10_000].map(take), [true, true, true, false, false, true]);
    });
}

#[test]
fn wait_ends_when_enough_permits_have_returned() {
    Stores::start().each(|name, take| {
        let take = |permits, at| take(&[overall(name, 100, 1_000, permits)], START + at).decisions[0];
        assert!(take(5, 10_000).granted && take(30, 10_100).granted);
        assert_eq!(take(100, 10_200).wait, Wait::Millis(900));
        assert!(!take(100, 11_099).granted);
        assert!(take(100, 11_100).granted);
    });
}

#[test]
fn request_refused_by_one_limit_charges_no_limit() {
    Stores::start().each(|name, take| {
        let (total, own) = (format!("{name}:total"), format!("{name}:own"));
        let ask = |client: &[u8], at| {
            take(&[overall(&total, 3, 10_000, 1), per_client(&own, client, 1, 10_000, 1)], START + at)
        };
        assert!(ask(b"a", 0).granted());
        let refused = ask(b"a", 1);
        assert_eq!(refused.decisions.iter().map(|one| one.granted).collect::<Vec<_>>(), [true, false]);
        assert_eq!(refused.decisions[0].remaining, 2, "a rejected request charged the other limit");
        assert!(ask(b"b", 2).granted() && ask(b"c", 3).granted());
        let refused = ask(b"d", 4);
        assert!(!refused.decisions[0].granted);
        assert_eq!(refused.decisions[1].remaining, 1, "a rejected request charged its client");
    });
}

#[test]
fn cost_above_the_rate_is_never_granted() {
    Stores::start().each(|name, take| {
        let take = |permits| take(&[overall(name, 3, 1_000, permits)], START).decisions[0];
        assert_eq!(take(4).wait, Wait::Never);
        assert!(take(3).granted && take(0).granted);
        assert_eq!(take(0).remaining, 0);
    });
}

/// A check updates the bucket like a refusal, if the clock went back or the rule became slower.
#[test]
fn granted_check_dates_the_bucket_after_the_clock_went_back() {
    Stores::start().each(|name, take| {
        let charge = |permits| overall(name, 3, 1_000, permits);
        assert!(take(&[charge(2)], START).granted());
        let back = START - 3_600_000;
        assert!(take(&[Charge { kind: ChargeKind::Check, ..charge(1) }], back).granted());
        assert!(!take(&[charge(3)], back + 999).granted());
        assert!(take(&[charge(3)], back + 1_000).granted());
    });
}

#[test]
fn clock_set_back_an_hour_grants_nothing_extra() {
    Stores::start().each(|name, take| {
        let take = |at: u64| take(&[overall(name, 2, 1_000, 2)], at).decisions[0];
        assert!(take(START).granted);
        let back = START - 3_600_000;
        assert_eq!(take(back).wait, Wait::Millis(1_000));
        assert!(!take(back + 999).granted);
        assert!(take(back + 1_000).granted);
    });
}

/// A random step: time passes (or jumps back), then a request charges some of the buckets.
#[derive(Clone, Debug)]
struct Step {
    passes: i64,
    permits: Vec<u32>,
    quota: usize,
    kind: ChargeKind,
    /// The number of steps since the request that is given back, if it was granted.
    undo: Option<usize>,
}

fn step(rate: u64, interval: u64) -> impl Strategy<Value = Step> {
    let interval = interval.cast_signed();
    let passes = prop_oneof![
        4 => Just(0),
        6 => 0..=interval / 8 + 1,
        2 => 0..=2 * interval,
        1 => -2 * interval..=0,
    ];
    let most = u32::try_from(rate).expect("a rate");
    let permits = prop::collection::vec(prop_oneof![4 => Just(1), 2 => 0..=most, 1 => 0..=most + 1], 1..=3);
    let undo = prop_oneof![4 => Just(None), 1 => (0..4_usize).prop_map(Some)];
    (passes, permits, 0..8_usize, kind(), undo).prop_map(|(passes, permits, quota, kind, undo)| Step {
        passes,
        permits,
        quota,
        kind,
        undo,
    })
}

/// Generates kinds of charges, most of which take permits.
pub fn kind() -> impl Strategy<Value = ChargeKind> {
    let checks = prop_oneof![Just(ChargeKind::Check), Just(ChargeKind::NoDebt)];
    prop_oneof![12 => Just(ChargeKind::Take), 2 => checks, 3 => Just(ChargeKind::Unconditional)]
}

/// Generates usual rates and intervals.
fn usual() -> impl Strategy<Value = (u64, u64)> + Clone {
    let rate = prop_oneof![1..=20_u64, Just(513), 1..=100_000_u64];
    // Time is virtual, but Redis expires keys by real time: the intervals are longer than a test.
    let interval = prop_oneof![5_000..=6_000_u64, 10_000..=100_000_u64, Just(86_400_000)];
    (rate, interval)
}

/// Generates the steps of a bucket with one of these rates and intervals.
fn life(subject: &Subject, quotas: impl Strategy<Value = (u64, u64)>) -> impl Strategy<Value = (Quota, Vec<Step>)> {
    let algorithm = subject.algorithm;
    quotas.prop_flat_map(move |(rate, interval)| {
        let steps = prop::collection::vec(step(rate, interval), 1..60);
        (steps, algorithm(rate))
            .prop_map(move |(steps, algorithm)| (Quota::new(rate, interval, algorithm).expect("a quota"), steps))
    })
}

#[test]
fn scripts_and_embedded_store_decide_equally() {
    let stores = Stores::start();
    for subject in subjects() {
        stores.decide_alike(&subject, 96, usual());
    }
}

#[test]
fn algorithms_keep_their_guarantees_and_waits_are_exact() {
    let stores = Stores::start();
    for subject in subjects() {
        stores.keep_the_law(&subject, 48, usual());
    }
}

impl Stores {
    /// Runs the same steps on both stores, with changed quotas, clock jumps and undone requests.
    fn decide_alike(&self, subject: &Subject, cases: u32, quotas: impl Strategy<Value = (u64, u64)>) {
        let [_, redis] = &self.all[..] else { return };
        let outcome = config(cases).run(&life(subject, quotas), |(written, steps)| {
            // With hundreds of buckets, the embedded store removes those that are full. Redis still has them if the clock then goes
            // back.
            let (memory, name) = (&replay_memory(), fresh_name());
            let mut now = START;
            let mut granted = Vec::new();
            for (index, step) in steps.iter().enumerate() {
                now = now.saturating_add_signed(step.passes);
                let quota = (subject.changed)(written, step.quota);
                // Clients of a limiter share its hash, and so the remembered longer intervals.
                let own = if quota.interval() == written.interval() { quota } else { written };
                let charge = |(bucket, permits): (u8, &u32)| match bucket {
                    0 => charge_of(&format!("{name}:all"), None, quota, *permits),
                    bucket => charge_of(&format!("{name}:own"), Some(&[bucket]), own, *permits),
                };
                let kind = |charge: Charge| Charge { kind: step.kind, ..charge };
                let charges: Vec<Charge> = (0..).zip(&step.permits).map(charge).map(kind).collect();
                let (one, other) = (self.take(memory, &charges, now), self.take(redis, &charges, now));
                prop_assert_eq!(&one, &other, "step {}: {:?}, {:?}", index, quota, step);
                granted.extend(one.granted().then(|| one.granted_charges(&charges)));
                let undone = step.undo.and_then(|back| granted.len().checked_sub(back + 1));
                if let Some(granted) = undone.map(|last| granted.remove(last)) {
                    self.give_back(memory, &granted, now);
                    self.give_back(redis, &granted, now);
                }
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Runs steps on each store; every refused request retries after its wait, and 1 ms earlier.
    fn keep_the_law(&self, subject: &Subject, cases: u32, quotas: impl Strategy<Value = (u64, u64)> + Clone) {
        for store in &self.all {
            let outcome = config(cases).run(&life(subject, quotas.clone()), |(quota, steps)| {
                let name = fresh_name();
                let take = |permits, now| self.take(store, &[charge_of(&name, None, quota, permits)], now).decisions[0];
                let mut life = Life { quota, granted: Vec::new(), now: START, left: 0 };
                for step in steps {
                    life.now += step.passes.unsigned_abs();
                    let permits = step.permits[0];
                    match take(permits, life.now).wait {
                        Wait::Now => life.granted.push((life.now, permits.into())),
                        Wait::Never => prop_assert!(permits > quota.capacity()),
                        Wait::Millis(wait) => {
                            let early = take(permits, life.now + wait - 1);
                            prop_assert!(!early.granted, "granted before the returned wait of {} ms", wait);
                            life.now += wait;
                            prop_assert!(
                                take(permits, life.now).granted,
                                "refused after the returned wait of {} ms",
                                wait
                            );
                            life.granted.push((life.now, permits.into()));
                        }
                    }
                    life.left = take(0, life.now).remaining.into();
                    (subject.law)(&life)?;
                }
                Ok(())
            });
            outcome.unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

/// Creates a runner that stores failing cases next to this file.
pub fn config(cases: u32) -> proptest::test_runner::TestRunner {
    let persistence = proptest::test_runner::FileFailurePersistence::Direct("tests/it/laws.regressions");
    proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: support::case_count(cases),
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(persistence)),
        ..ProptestConfig::default()
    })
}
