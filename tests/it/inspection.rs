//! Operators inspect and reset buckets in the embedded store and in a real Redis.

use std::slice;
use std::sync::Arc;

use deadpool_redis::redis::cmd;
use proptest::prelude::*;
use tidegate::Timestamp;
use tidegate::internals::ReplayStore;
use tidegate::redisson::Mode;
use tidegate_limit::redisson::Sharing;
use tidegate_limit::{Algorithm, Quota, Wait, examples};
use tidegate_rules::charge::{Charge, ClientId, Decision, Limiter};
use tidegate_store::Inspection;

use crate::laws::{START, Stores};
use crate::support::redis::{RedisServer, fresh_name};
use crate::support::{adopted, case_count, charge_of, per_client};

/// All algorithms; the embedded store decides the shared limiter as a token bucket.
fn algorithms() -> impl Iterator<Item = Algorithm> {
    examples(12).chain([Algorithm::Redisson(Sharing::Configure)])
}

/// A random step: time passes, then a request takes permits, or the bucket is reset.
#[derive(Clone, Copy, Debug)]
struct Step {
    passes: u64,
    permits: u32,
    is_reset: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let passes = prop_oneof![3 => Just(0), 6 => 0..9_000_u64, 2 => 0..200_000_u64];
    let permits = prop_oneof![4 => Just(1_u32), 3 => 1..=11_u32];
    let step = (passes, permits, prop::bool::weighted(0.1));
    prop::collection::vec(step.prop_map(|(passes, permits, is_reset)| Step { passes, permits, is_reset }), 1..40)
}

impl Stores {
    fn inspect(&self, store: &ReplayStore, charge: &Charge, now: u64) -> Inspection {
        store.set_time(Timestamp::from_millis(now));
        self.runtime.block_on(store.store.inspect(charge)).expect("an inspection")
    }

    fn reset(&self, store: &ReplayStore, charge: &Charge) -> bool {
        self.runtime.block_on(store.store.reset(charge)).expect("a reset")
    }

    fn reset_limit(&self, store: &ReplayStore, charge: &Charge) -> u64 {
        self.runtime.block_on(store.store.reset_limit(&charge.limiter)).expect("a reset")
    }
}

/// Compares an inspection with the decision about the same request at the same time.
fn assert_announces(inspected: &Inspection, decision: &Decision, before: u32) -> Result<(), TestCaseError> {
    prop_assert_eq!(inspected.wait, decision.wait);
    prop_assert_eq!(inspected.remaining, before);
    let delay = if decision.granted { decision.delay } else { 0 };
    prop_assert_eq!(inspected.delay, delay);
    Ok(())
}

/// Runs the steps on two buckets of each store, and inspects only the first. Both must decide equally.
fn inspection_announces_decisions(
    stores: &Stores,
    algorithm: Algorithm,
    rate: u64,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let quota = Quota::new(rate, 60_000, algorithm).expect("a quota");
    let name = fresh_name();
    let mut all: Vec<Vec<Inspection>> = Vec::new();
    for store in &stores.all {
        let (mut now, mut inspections) = (START, Vec::new());
        for step in steps {
            now += step.passes;
            if step.is_reset {
                for bucket in ["a", "b"] {
                    let charge = charge_of(&format!("{{{name}:{bucket}}}"), Some(b"c"), quota, 1);
                    stores.reset(store, &charge);
                    let unused = charge_of(&format!("{name}:unused"), Some(b"c"), quota, 1);
                    let [reset, unused] = [charge, unused].map(|charge| stores.inspect(store, &charge, now));
                    prop_assert_eq!(reset, unused);
                }
            }
            let charge = |bucket: &str, permits| charge_of(&format!("{{{name}:{bucket}}}"), Some(b"c"), quota, permits);
            let inspected = stores.inspect(store, &charge("a", step.permits), now);
            let before = stores.take(store, &[charge("b", 0)], now).decisions[0];
            prop_assert_eq!(inspected.reset, before.reset);
            let [first, second] =
                ["a", "b"].map(|bucket| stores.take(store, &[charge(bucket, step.permits)], now).decisions[0]);
            prop_assert_eq!(first, second, "an inspection has changed the bucket");
            assert_announces(&inspected, &first, before.remaining)?;
            inspections.push(Inspection { expires_at: None, ..inspected });
        }
        all.push(inspections);
    }
    if let [memory, redis] = &all[..] {
        prop_assert_eq!(memory, redis);
    }
    Ok(())
}

#[test]
fn inspection_announces_the_next_decision() {
    let stores = Stores::start();
    let config = ProptestConfig { cases: case_count(24), failure_persistence: None, ..ProptestConfig::default() };
    for algorithm in algorithms() {
        proptest!(config.clone(), |(rate in 1..=10_u64, steps in steps())| {
            inspection_announces_decisions(&stores, algorithm, rate, &steps)?;
        });
    }
}

/// The secret of client hashes is unknown until Redis has replied.
#[test]
fn reset_can_be_the_first_call() {
    for _ in 0..5 {
        let stores = Stores::start();
        let quota = Quota::new(5, 60_000, Algorithm::TokenBucket).expect("a quota");
        for store in &stores.all {
            assert!(!stores.reset(store, &charge_of(&fresh_name(), Some(b"c"), quota, 1)), "the bucket is unused");
        }
    }
}

#[test]
fn unused_bucket_is_full() {
    let stores = Stores::start();
    for (store, algorithm) in stores.all.iter().flat_map(|store| algorithms().map(move |algorithm| (store, algorithm)))
    {
        let quota = Quota::new(5, 60_000, algorithm).expect("a quota");
        let inspected = stores.inspect(store, &charge_of(&fresh_name(), Some(b"c"), quota, 1), START);
        assert_eq!((inspected.used, inspected.wait, inspected.expires_at), (0, Wait::Now, None), "{algorithm:?}");
        assert_eq!((inspected.remaining, inspected.reset), (quota.capacity(), 0), "{algorithm:?}");
    }
}

/// Names that are similar to a name, or have special letters of patterns.
const NAMES: [&str; 6] = ["{N:r}:l", "{N:r}:l2", "{N:r2}:l", "{N:*}:l", "{N:r[a-z]}:l", "{N:ra}:l"];

#[test]
fn limit_reset_spares_other_limits() {
    let stores = Stores::start();
    for (store, algorithm) in stores.all.iter().flat_map(|store| algorithms().map(move |algorithm| (store, algorithm)))
    {
        let (quota, own) = (Quota::new(5, 60_000, algorithm).expect("a quota"), fresh_name());
        let names = NAMES.map(|name| name.replace('N', &own));
        let charge = |name: &str, client: u32| {
            let client = match client % 2 {
                0 => ClientId::Value(client.to_le_bytes().into()),
                _ => ClientId::Address(std::net::IpAddr::from(std::net::Ipv4Addr::from_bits(client)).into()),
            };
            Charge { client: Some(client), ..charge_of(name, Some(b"c"), quota, 1) }
        };
        let used = |name: &str, client| stores.inspect(store, &charge(name, client), START).used;
        for name in &names {
            // More than a command removes.
            stores.take_each(store, (0..600).map(|client| charge(name, client)), START);
        }
        assert_eq!(stores.reset_limit(store, &charge(&names[3], 0)), 600, "{algorithm:?}");
        assert_eq!(stores.reset_limit(store, &charge(&names[3], 0)), 0, "{algorithm:?}");
        assert_eq!(stores.reset_limit(store, &charge(&names[0], 0)), 600, "{algorithm:?}");
        for (index, name) in names.iter().enumerate() {
            let is_left = ![0, 3].contains(&index);
            assert_eq!([0, 1, 598, 599].map(|client| used(name, client) > 0), [is_left; 4], "{algorithm:?} {name}");
        }
    }
}

#[test]
fn reset_of_an_overall_limit_frees_all_shards() {
    let stores = Stores::start();
    for store in &stores.all {
        let quota = Quota::new(40, 60_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Limiter::new(format!("{{{}}}:all", fresh_name()), Mode::Overall, quota).sharded(4);
        let charge = Charge::new(Arc::new(limiter), None, 1);
        stores.take_each(store, (0..30).map(|_| charge.clone()), START);
        let inspected = stores.inspect(store, &charge, START + 1);
        assert_eq!((inspected.used, inspected.remaining, inspected.wait), (30, 10, Wait::Now));
        stores.take_each(store, (0..30).map(|_| charge.clone()), START + 2);
        let inspected = stores.inspect(store, &charge, START + 3);
        assert_eq!((inspected.used, inspected.remaining), (40, 0));
        assert!(matches!(inspected.wait, Wait::Millis(wait) if wait < 60_000), "{inspected:?}");
        assert!(stores.reset_limit(store, &charge) > 0);
        assert_eq!(stores.inspect(store, &charge, START + 4).remaining, 40);
    }
}

/// Operators know the hash from the access log.
#[test]
fn client_is_found_by_its_hash() {
    let stores = Stores::start();
    for (store, partitions) in stores.all.iter().flat_map(|store| [1, 16].map(|partitions| (store, partitions))) {
        let quota = Quota::new(3, 60_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Limiter::new(format!("{{{}}}:own", fresh_name()), Mode::PerClient, quota).partitioned(partitions);
        let value = ClientId::Value(b"secret".as_slice().into());
        let charge = Charge::new(Arc::new(limiter), Some(value.clone()), 1);
        assert!(stores.take(store, slice::from_ref(&charge), START).granted());
        let hash = store.store.key_of(&value).expect("a hash");
        let by_hash = Charge { client: Some(ClientId::Hash(hash)), ..charge.clone() };
        let inspected = stores.inspect(store, &by_hash, START);
        assert_eq!((inspected.used, inspected.remaining, inspected.reset), (1, 2, 60_000));
        assert!(stores.reset(store, &by_hash) && !stores.reset(store, &by_hash));
        assert_eq!(stores.inspect(store, &charge, START).used, 0);
    }
}

/// A gateway repeats refusals without asking Redis, and keeps debts of local grants.
#[tokio::test]
async fn reset_client_is_granted_at_once() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store();
    let charge = |client: &[u8]| per_client("{r}:l", client, 1, 600_000, 1);
    let (one, other) = (charge(b"one"), charge(b"other"));
    // Limiters of the same rules: the cache identifies them by their address.
    let other = Charge { limiter: Arc::clone(&one.limiter), ..other };
    for charge in [&one, &other] {
        assert!(store.take(slice::from_ref(charge)).await.expect("a decision").granted());
        assert!(!store.take(slice::from_ref(charge)).await.expect("a decision").granted());
        assert!(store.known_refusal(slice::from_ref(charge)).is_some());
    }
    let hash = store.key_of(one.client.as_ref().expect("a client")).expect("a hash");
    let by_hash = Charge { client: Some(ClientId::Hash(hash)), ..one.clone() };
    for reset in [&one, &by_hash] {
        assert!(store.reset(reset).await.expect("a reset"));
        assert!(store.known_refusal(slice::from_ref(&one)).is_none());
        assert!(store.take(slice::from_ref(&one)).await.expect("a decision").granted());
        assert!(!store.take(slice::from_ref(&one)).await.expect("a decision").granted());
        assert!(!store.take(slice::from_ref(&other)).await.expect("a decision").granted());
    }
    assert_eq!(store.reset_limit(&one.limiter).await, Ok(2));
    assert!(
        store.known_refusal(slice::from_ref(&one)).is_none() && store.known_refusal(slice::from_ref(&other)).is_none()
    );
    assert!(store.take(slice::from_ref(&other)).await.expect("a decision").granted());
}

/// Other programs configure the limiter: the reset removes the log and the counter, and keeps the hash.
#[tokio::test]
async fn reset_keeps_the_hash_of_a_shared_limiter() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    for (mode, client) in [("0", None), ("1", Some("x"))] {
        let name = fresh_name();
        cmd("HSET").arg(&[&name, "rate", "5", "interval", "600000", "type", mode]).exec(&mut redis).expect("a limiter");
        let charge = adopted(&name, None, client, 3);
        assert!(store.take(slice::from_ref(&charge)).await.expect("a decision").granted());
        assert_eq!(store.inspect(&charge).await.expect("an inspection").used, 3);
        for by_limit in [false, true] {
            match by_limit {
                false => assert!(store.reset(&charge).await.expect("a reset")),
                true => assert_eq!(store.reset_limit(&charge.limiter).await, Ok(1)),
            }
            let keys: Vec<String> = cmd("KEYS").arg(format!("*{name}*")).query(&mut redis).expect("keys");
            assert_eq!(keys, [name.as_str()]);
            let inspected = store.inspect(&charge).await.expect("an inspection");
            assert_eq!((inspected.remaining, inspected.used, inspected.wait), (5, 0, Wait::Now));
            assert!(store.take(slice::from_ref(&charge)).await.expect("a decision").granted());
            assert_eq!(store.inspect(&charge).await.expect("an inspection").remaining, 2);
        }
    }
}
