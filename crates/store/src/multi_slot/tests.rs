//! A sequence of groups has the outcome of a single decision.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::*;
use crate::Memory;
use tidegate_limit::clock::{ManualClock, Timestamp};
use tidegate_limit::{Algorithm, Mode, Quota};
use tidegate_metrics::Metrics;
use tidegate_rules::charge::Limiter;

/// A store with a bucket that can be unreachable.
struct Nodes {
    memory: Memory,
    unreachable: Mutex<Option<&'static str>>,
}

impl ChargeTarget for Nodes {
    /// Charges the first shard, if a limiter has shards.
    async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        let charges: Vec<Charge> = charges.iter().map(|charge| charge.on_shard(Some(0))).collect();
        match *self.unreachable.lock() {
            Some(unreachable) if charges.iter().any(|charge| charge.limiter.name == unreachable) => {
                Err(StoreError::Unreachable)
            }
            _ => self.memory.take(&charges),
        }
    }

    async fn give_back(&self, granted: Vec<Granted>) {
        self.memory.give_back(&granted);
    }
}

fn nodes() -> Nodes {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
    Nodes { memory: Memory::new(clock, None), unreachable: Mutex::default() }
}

fn charge(name: &str, rate: u64, permits: u32, shadow: bool) -> Charge {
    let quota = Quota::new(rate, 60_000, Algorithm::TokenBucket).expect("a quota");
    let limiter = Arc::new(Limiter::new(name.to_owned(), Mode::Overall, quota));
    Charge { shadow, ..Charge::new(limiter, None, permits) }
}

/// Returns whether the request was granted, and for each limit whether it granted and its remaining permits.
async fn decide(nodes: &Nodes, charges: &[Charge]) -> Result<(bool, Vec<(bool, u32)>), StoreError> {
    let hash_slot = |charge: &Charge| charge.limiter.name.bytes().next().map(u16::from);
    let outcome = charge_in_sequence(charges, &groups(charges, hash_slot), nodes).await?;
    Ok((outcome.granted(), outcome.decisions.iter().map(|decision| (decision.granted, decision.remaining)).collect()))
}

#[test]
fn charges_in_one_hash_slot_form_a_group_and_shadows_are_last() {
    let hash_slot = |charge: &Charge| charge.limiter.name.bytes().next().map(u16::from);
    let charges = [("s", true), ("a", false), ("b", false), ("a2", true), ("b2", false)];
    let charges = charges.map(|(name, shadow)| charge(name, 9, 1, shadow));
    assert_eq!(groups(&charges, hash_slot), [vec![1, 3], vec![2, 4], vec![0]]);
    assert_eq!(groups(&charges, |_| None), Vec::<Group>::new());
    let in_shards = Limiter::new("{a}".into(), Mode::Overall, charges[0].limiter.quota).sharded(3);
    let in_shards = Charge { limiter: Arc::new(in_shards), ..charges[1].clone() };
    assert_eq!(groups(&[charges[1].clone(), in_shards.clone(), in_shards], |_| Some(1)), [[0], [1], [2]]);
}

#[tokio::test]
async fn refusal_of_a_later_group_gives_charges_back() {
    let nodes = nodes();
    let charges = [charge("a", 5, 2, false), charge("b", 3, 2, false), charge("c", 9, 2, false)];
    assert_eq!(decide(&nodes, &charges).await, Ok((true, vec![(true, 3), (true, 1), (true, 7)])));
    for _ in 0..3 {
        assert_eq!(decide(&nodes, &charges).await, Ok((false, vec![(true, 3), (false, 1), (true, 7)])));
    }
    assert_eq!(decide(&nodes, &[charge("c", 9, 7, false)]).await, Ok((true, vec![(true, 0)])));
    // The last group is only read, and would refuse as well.
    assert_eq!(decide(&nodes, &charges).await, Ok((false, vec![(true, 3), (false, 1), (false, 0)])));
}

#[tokio::test]
async fn failure_of_a_later_group_gives_charges_back() {
    let nodes = nodes();
    let charges = [charge("a", 5, 5, false), charge("b", 5, 5, false)];
    *nodes.unreachable.lock() = Some("b");
    assert_eq!(decide(&nodes, &charges).await, Err(StoreError::Unreachable));
    *nodes.unreachable.lock() = None;
    assert_eq!(decide(&nodes, &charges).await, Ok((true, vec![(true, 0), (true, 0)])));
}

#[tokio::test]
async fn unreachable_group_of_shadows_rejects_no_request() {
    let nodes = nodes();
    let charges = [charge("s", 1, 1, true), charge("a", 2, 1, false)];
    *nodes.unreachable.lock() = Some("s");
    for remaining in [1, 0] {
        assert_eq!(decide(&nodes, &charges).await, Ok((true, vec![(true, 0), (true, remaining)])));
    }
    assert_eq!(decide(&nodes, &charges).await.map(|(granted, _)| granted), Ok(false));
}

/// Regression test: a request that no upstream received gave back permits of others.
#[tokio::test]
async fn unreachable_shadow_was_not_charged() {
    let nodes = nodes();
    let charges = [charge("s", 1, 1, true), charge("a", 2, 1, false)];
    *nodes.unreachable.lock() = Some("s");
    let hash_slot = |charge: &Charge| charge.limiter.name.bytes().next().map(u16::from);
    let outcome = charge_in_sequence(&charges, &groups(&charges, hash_slot), &nodes).await.expect("a decision");
    let names = outcome.granted_charges(&charges).into_iter().map(|grant| grant.charge.limiter.name.clone());
    assert_eq!(names.collect::<Vec<_>>(), ["a"]);
}

/// Other shards may have permits.
#[tokio::test]
async fn shard_that_is_only_read_does_not_refuse() {
    let nodes = nodes();
    let wide = charge("{w}", 6, 2, false);
    let limiter = Limiter::new("{w}".to_owned(), Mode::Overall, wide.limiter.quota).sharded(3);
    let wide = Charge { limiter: Arc::new(limiter), ..wide };
    assert_eq!(decide(&nodes, std::slice::from_ref(&wide)).await, Ok((true, vec![(true, 0)])));
    let charges = [charge("a", 1, 2, false), wide];
    assert_eq!(decide(&nodes, &charges).await, Ok((false, vec![(false, 1), (true, 0)])));
}

#[tokio::test]
async fn group_of_shadows_rejects_no_request() {
    let nodes = nodes();
    let charges = [charge("s", 1, 1, true), charge("a", 5, 1, false)];
    assert_eq!(decide(&nodes, &charges).await, Ok((true, vec![(true, 0), (true, 4)])));
    assert_eq!(decide(&nodes, &charges).await, Ok((true, vec![(false, 0), (true, 3)])));
}

/// A cluster that migrates all hash slots. The hash slot of a bucket is the first letter of its name.
struct MigratingStore {
    memory: Memory,
    /// Whether calls that give permits back time out.
    is_silent: bool,
    /// The signal that the bucket named `later` waits for.
    proceed: Notify,
}

impl Remote for MigratingStore {
    fn hash_slot(&self, charge: &Charge) -> Option<u16> {
        charge.limiter.name.bytes().next().map(u16::from)
    }

    fn clock(&self, _: &Charge) -> usize {
        0
    }

    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    fn call_count(&self) -> u64 {
        0
    }

    async fn take(&self, charges: &[Charge], _: Instant) -> Result<Outcome, StoreError> {
        match charges {
            [_] => self.memory.take(charges),
            _ => Err(StoreError::ErrorReply("TRYAGAIN".to_owned())),
        }
    }

    async fn take_one(&self, charge: &Charge, _: Instant) -> Result<Outcome, StoreError> {
        if charge.limiter.name == "later" {
            self.proceed.notified().await;
        }
        self.memory.take(std::slice::from_ref(charge))
    }

    async fn give_back(&self, granted: &[Granted]) -> Result<(), StoreError> {
        if self.is_silent {
            sleep_until(self.deadline()).await;
            return Err(StoreError::Timeout);
        }
        self.memory.give_back(granted);
        Ok(())
    }

    async fn time(&self, _: &Charge) -> Result<Timestamp, StoreError> {
        Err(StoreError::Timeout)
    }
}

fn migrating(is_silent: bool) -> NegativeCache<MigratingStore> {
    let store = MigratingStore { memory: nodes().memory, is_silent, proceed: Notify::new() };
    NegativeCache::new(store, Arc::new(Metrics::new()))
}

/// Regression test: each group had its own deadline, so three groups took three seconds.
#[tokio::test(start_paused = true)]
async fn all_groups_are_given_back_within_one_deadline() {
    let (cache, begin) = (migrating(true), Instant::now());
    let charges = ["a", "b", "c"].map(|name| charge(name, 5, 1, false));
    let outcome = take(&cache, &charges).await.expect("a decision");
    let given_back = give_back(&cache, &outcome.granted_charges(&charges)).await;
    assert_eq!((given_back, begin.elapsed()), (Err(StoreError::Timeout), Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn refunds_do_not_delay_a_decision_past_its_deadline() {
    let (cache, begin) = (migrating(true), Instant::now());
    let charges = [charge("a", 5, 1, false), charge("b", 5, 1, false), charge("c", 1, 2, false)];
    assert!(!take(&cache, &charges).await.expect("a decision").granted());
    assert_eq!(begin.elapsed(), Duration::from_secs(1));
}

/// Regression test: a request in between was refused for a permit that was given back, and the cached refusal also
/// rejected all later requests.
#[tokio::test(start_paused = true)]
async fn permit_given_back_during_migration_is_free_immediately() {
    let cache = migrating(false);
    let charges = [charge("last", 1, 1, false), charge("later", 1, 2, false)];
    let only = &charges[..1];
    let in_between = async {
        assert!(!take(&cache, only).await.expect("a decision").granted());
        assert!(cache.known_refusal(only).is_some());
        cache.store().proceed.notify_one();
    };
    let (both, ()) = tokio::join!(take(&cache, &charges), in_between);
    assert!(!both.expect("a decision").granted());
    assert!(cache.known_refusal(only).is_none());
    assert!(take(&cache, only).await.expect("a decision").granted());
}
