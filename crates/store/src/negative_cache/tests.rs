//! A cached refusal is one that the store would repeat.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::advance;

use super::clock_watch::MAX_READING_AGE;
use super::entries::MAX_BYTES;
use super::*;
use crate::Memory;
use tidegate_limit::algorithm::leaky_bucket::Queue;
use tidegate_limit::clock::ManualClock;
use tidegate_limit::redisson::Sharing;
use tidegate_limit::{Algorithm, Mode, Quota, Wait};
use tidegate_rules::charge::{ClientId, Decision, Limiter, Turn};

fn limiter(algorithm: Algorithm) -> Arc<Limiter> {
    let quota = Quota::new(10, 60_000, algorithm).expect("a quota");
    Arc::new(Limiter::new("lim".into(), Mode::Overall, quota))
}

fn charge(limiter: &Arc<Limiter>, permits: u32) -> Charge {
    Charge::new(Arc::clone(limiter), None, permits)
}

fn refusal(wait: Wait) -> Decision {
    Decision::new(2, wait, 9_000)
}

fn insert(entries: &Entries, charge: &Charge, wait: Wait, generation: entries::Generation) {
    let (decision, now) = (refusal(wait), Instant::now());
    let decided_at = Timestamp::from_millis(1_000);
    let (permits, patience) = (charge.permits, charge.patience());
    let refused = Refused { decided_at, sent_at: now, received_at: now, permits, patience, decision: &decision };
    entries.insert(charge, &refused, generation);
}

fn refuse(entries: &Entries, limiter: &Arc<Limiter>, permits: u32, wait: Wait) {
    insert(entries, &charge(limiter, permits), wait, entries.generation());
}

fn cached(entries: &Entries, limiter: &Arc<Limiter>, permits: u32) -> Option<(u64, Decision)> {
    let refusal = entries.find(&[charge(limiter, permits)], Instant::now())?;
    Some((refusal.now.as_millis(), refusal.decisions[0]))
}

async fn pass(millis: u64) {
    advance(Duration::from_millis(millis)).await;
}

/// The limiters of rates that requests set are built for each request.
#[tokio::test(start_paused = true)]
async fn refusals_of_equal_rates_belong_together() {
    let (entries, base) = (Entries::default(), limiter(Algorithm::Gcra { burst: 20 }));
    let at_rate = |rate: u32| Arc::new(base.at_rate(rate));
    for rate in 1..=5_000 {
        refuse(&entries, &at_rate(rate), 1, Wait::Millis(700));
    }
    assert!((1..=5_000).all(|rate| cached(&entries, &at_rate(rate), 1).is_some()));
    assert!(cached(&entries, &at_rate(5_001), 1).is_none());
    assert!(cached(&entries, &limiter(Algorithm::Gcra { burst: 20 }), 1).is_none(), "another limiter");
}

#[tokio::test(start_paused = true)]
async fn refusal_holds_until_a_millisecond_before_its_wait_ends() {
    let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
    refuse(&entries, &limiter, 3, Wait::Millis(700));
    pass(200).await;
    let (now, decision) = cached(&entries, &limiter, 3).expect("a refusal");
    assert_eq!((now, decision.wait, decision.reset), (1_200, Wait::Millis(500), 8_800));
    assert!(cached(&entries, &limiter, 4).is_some() && cached(&entries, &limiter, 2).is_none());
    pass(498).await;
    assert!(cached(&entries, &limiter, 3).is_some());
    pass(1).await;
    assert!(cached(&entries, &limiter, 3).is_none());
}

#[tokio::test(start_paused = true)]
async fn refused_time_slot_is_too_late_for_earlier_deadlines() {
    let entries = Entries::default();
    let limiter = limiter(Algorithm::LeakyBucket(Queue { length: 9, max_wait: 10_000 }));
    let charge_within = |millis| Charge { turn: Turn::Within { millis }, ..charge(&limiter, 1) };
    let wait = |charge: Charge| {
        let refusal = entries.find(&[charge], Instant::now())?;
        Some(refusal.decisions[0].wait)
    };
    insert(&entries, &charge_within(500), Wait::Millis(700), entries.generation());
    assert_eq!(wait(charge_within(500)), Some(Wait::Millis(700)));
    assert_eq!(wait(charge_within(200)), Some(Wait::Millis(1_000)));
    assert_eq!((wait(charge_within(501)), wait(charge(&limiter, 1))), (None, None));
    refuse(&entries, &limiter, 1, Wait::Millis(100));
    assert_eq!(wait(charge_within(501)), Some(Wait::Millis(9_599)));
    insert(&entries, &charge_within(500), Wait::Millis(9_600), entries.generation());
    assert_eq!(wait(charge(&limiter, 1)), Some(Wait::Millis(100)), "a refusal of fewer charges replaced it");
}

/// A client that waits as reported must not be too early; a client that asks earlier may be refused without a call.
#[tokio::test(start_paused = true)]
async fn slow_reply_shortens_the_entry_but_not_the_wait() {
    let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
    let (decision, sent_at) = (refusal(Wait::Millis(700)), Instant::now());
    pass(100).await;
    let decided_at = Timestamp::from_millis(1_000);
    let received_at = Instant::now();
    let refused = Refused { decided_at, sent_at, received_at, permits: 1, patience: 0, decision: &decision };
    entries.insert(&charge(&limiter, 1), &refused, entries.generation());
    let (now, decision) = cached(&entries, &limiter, 1).expect("a refusal");
    assert_eq!((now, decision.wait), (1_000, Wait::Millis(700)));
    pass(599).await;
    assert!(cached(&entries, &limiter, 1).is_none());
}

#[tokio::test(start_paused = true)]
async fn one_request_a_second_asks_the_store() {
    let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
    refuse(&entries, &limiter, 1, Wait::Millis(60_000));
    for _ in 0..3 {
        assert!(cached(&entries, &limiter, 1).is_some());
        pass(1_000).await;
        assert!(cached(&entries, &limiter, 1).is_none(), "not asked");
        assert!(cached(&entries, &limiter, 1).is_some(), "asked twice");
    }
    let charges = [charge(&limiter, 1)];
    entries.remove_granted(charges.iter(), Instant::now());
    assert!(cached(&entries, &limiter, 1).is_none());
    let before = Instant::now();
    pass(1).await;
    refuse(&entries, &limiter, 1, Wait::Never);
    entries.remove_granted(charges.iter(), before);
    assert!(cached(&entries, &limiter, 1).is_some(), "an older grant removes a newer refusal");
}

/// The store may have granted the permits.
#[tokio::test(start_paused = true)]
async fn failure_of_the_store_removes_the_refusal() {
    let ((cache, _), quota) = (remote_memory(), Quota::adopted(Sharing::Adopt(None)));
    let limiter = Arc::new(Limiter::new("lim".into(), Mode::Overall, quota));
    refuse(&cache.refusals.entries, &limiter, 1, Wait::Millis(60_000));
    let charges = [charge(&limiter, 1)];
    assert!(cache.known_refusal(&charges).is_some());
    cache.take(&charges, cache.store().deadline()).await.expect_err("a limiter without a rate");
    assert!(cache.known_refusal(&charges).is_none());
}

#[tokio::test(start_paused = true)]
async fn refund_or_new_rule_removes_the_refusal() {
    let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
    let before = entries.generation();
    refuse(&entries, &limiter, 1, Wait::Millis(5_000));
    entries.remove_refunded([charge(&limiter, 1)].iter());
    assert!(cached(&entries, &limiter, 1).is_none());
    // Sent before the refund, received after it.
    insert(&entries, &charge(&limiter, 1), Wait::Millis(5_000), before);
    assert!(cached(&entries, &limiter, 1).is_none());
    refuse(&entries, &limiter, 1, Wait::Millis(5_000));
    let changed = Arc::new(Limiter::new("lim".into(), Mode::Overall, limiter.quota));
    assert!(cached(&entries, &changed, 1).is_none());
}

/// Regression test: a refund kept the refusals of all buckets out of the cache that the store returned at that time.
#[tokio::test(start_paused = true)]
async fn refund_keeps_refusals_of_other_buckets() {
    let (entries, own, other) = (Entries::default(), limiter(Algorithm::TokenBucket), limiter(Algorithm::TokenBucket));
    refuse(&entries, &other, 2, Wait::Millis(5_000));
    let before = entries.generation();
    entries.remove_refunded([charge(&own, 1)].iter());
    assert!(cached(&entries, &other, 2).is_some());
    insert(&entries, &charge(&other, 1), Wait::Millis(5_000), before);
    assert!(cached(&entries, &other, 1).is_some());
    insert(&entries, &charge(&own, 1), Wait::Millis(5_000), before);
    assert!(cached(&entries, &own, 1).is_none());
}

#[tokio::test(start_paused = true)]
async fn many_refunds_take_bounded_memory() {
    let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
    let charge_of =
        |client: u32| Charge { client: Some(ClientId::Value(client.to_be_bytes().into())), ..charge(&limiter, 1) };
    let before = entries.generation();
    for client in 0..100_000 {
        entries.remove_refunded([charge_of(client)].iter());
    }
    assert!(entries.bytes() < 256 * 1024, "{} bytes", entries.bytes());
    for client in 0..100_000 {
        insert(&entries, &charge_of(client), Wait::Millis(5_000), before);
    }
    assert_eq!(entries.len(), 0, "a refusal from before a refund is cached");
    insert(&entries, &charge_of(0), Wait::Millis(5_000), entries.generation());
    assert_eq!(entries.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn shared_limiters_are_cached_briefly() {
    let entries = Entries::default();
    let redisson_limiter = limiter(Algorithm::Redisson(Sharing::Configure));
    refuse(&entries, &redisson_limiter, 1, Wait::Millis(5_000));
    assert!(cached(&entries, &redisson_limiter, 1).is_some());
    pass(100).await;
    assert!(cached(&entries, &redisson_limiter, 1).is_none());
    let library = limiter(Algorithm::Redisson(Sharing::Library));
    refuse(&entries, &library, 1, Wait::Millis(5_000));
    assert!(cached(&entries, &library, 1).is_none());
    let own = limiter(Algorithm::TokenBucket);
    refuse(&entries, &own, 1, Wait::Millis(5_000));
    assert!(entries.find(&[Charge { shadow: true, ..charge(&own, 1) }], Instant::now()).is_none());
}

#[tokio::test(start_paused = true)]
async fn flood_of_clients_stays_within_the_memory_bound() {
    let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
    let refuse = |client: u32, wait| {
        // Client keys of this length do not make entries larger.
        let client = Some(ClientId::Value([&client.to_be_bytes()[..], &[b'x'; 512]].concat().into()));
        insert(&entries, &Charge { client, ..charge(&limiter, 1) }, Wait::Millis(wait), entries.generation());
    };
    let mut max_len = 0;
    for round in 0..3 {
        (0..65_000).for_each(|client| refuse(round * 65_000 + client, 10_000));
        max_len = max_len.max(entries.len());
        assert!(entries.bytes() <= MAX_BYTES, "{} bytes", entries.bytes());
        pass(10_000).await;
    }
    (0..100).for_each(|client| refuse(1_000_000 + client, 10_000));
    assert!(
        (50_000..57_400).contains(&max_len) && (100..max_len).contains(&entries.len()),
        "{max_len}, {}",
        entries.len()
    );
}

proptest! {
    #[test]
    fn refusal_applies_to_its_bucket_only(
        first in client(),
        second in client(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
            let charge_of = |client: &Option<ClientId>| Charge { client: client.clone(), ..charge(&limiter, 1) };
            insert(&entries, &charge_of(&first), Wait::Millis(60_000), entries.generation());
            prop_assert!(entries.find(&[charge_of(&first)], Instant::now()).is_some());
            prop_assert_eq!(entries.find(&[charge_of(&second)], Instant::now()).is_some(), first == second);
            Ok(())
        })?;
    }
}

/// Few clients, so that two are often equal.
fn client() -> impl Strategy<Value = Option<ClientId>> {
    prop_oneof![
        Just(None),
        prop::collection::vec(0..2_u8, 0..3).prop_map(|value| Some(ClientId::Value(value.into()))),
        "[ab]{0,2}".prop_map(|id| Some(ClientId::Instance(id.into()))),
        (0..2_u8, 31..=32_u8).prop_map(|(host, prefix)| {
            let network = ipnet::Ipv4Net::new([192, 0, 2, host].into(), prefix).expect("a network");
            Some(ClientId::Address(network.into()))
        }),
    ]
}

/// A remote store whose clock can be set.
struct RemoteMemory {
    memory: Memory,
    clock: Arc<ManualClock>,
}

impl Remote for RemoteMemory {
    fn hash_slot(&self, _: &Charge) -> Option<u16> {
        None
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
        self.memory.take(charges)
    }

    async fn take_one(&self, charge: &Charge, _: Instant) -> Result<Outcome, StoreError> {
        self.memory.take(std::slice::from_ref(charge))
    }

    async fn give_back(&self, granted: &[Granted]) -> Result<(), StoreError> {
        self.memory.give_back(granted);
        Ok(())
    }

    async fn time(&self, _: &Charge) -> Result<Timestamp, StoreError> {
        Ok(tidegate_limit::clock::Clock::now(&*self.clock))
    }
}

fn remote_memory() -> (NegativeCache<RemoteMemory>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
    let memory = Memory::new(Arc::clone(&clock) as Arc<dyn tidegate_limit::clock::Clock>, None);
    let store = RemoteMemory { memory, clock: Arc::clone(&clock) };
    (NegativeCache::new(store, Arc::new(Metrics::new())), clock)
}

/// Returns whether the request is granted, and whether the store was asked.
async fn ask(cache: &NegativeCache<RemoteMemory>, charges: &[Charge]) -> (bool, bool) {
    match cache.known_refusal(charges) {
        Some(_) => (false, false),
        None => {
            let taken = cache.take(charges, cache.store().deadline()).await;
            (taken.expect("a decision").granted(), true)
        }
    }
}

/// Regression test: the cache delayed the first grant beyond one interval (2.90 s instead of 2 s).
#[tokio::test(start_paused = true)]
async fn clock_set_back_delays_grants_by_one_interval() {
    for (rate, before, back) in [(1, 500, 3_600_000), (1, 1_900, 500), (5, 10, 100), (2, 1_000, 60_000)] {
        let (cache, clock) = remote_memory();
        let quota = Quota::new(rate, 2_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("lim".into(), Mode::Overall, quota));
        let charges = [charge(&limiter, 1)];
        let step = async || {
            clock.advance_millis(5);
            pass(5).await;
            ask(&cache, &charges).await.0
        };
        while ask(&cache, &charges).await.0 {}
        for _ in 0..before / 5 {
            assert!(!step().await);
        }
        clock.set(Timestamp::from_millis(tidegate_limit::clock::Clock::now(&*clock).as_millis() - back));
        let jumped = Instant::now();
        while !step().await {}
        let waited = jumped.elapsed();
        assert!(waited <= Duration::from_millis(2_000 + 10) + MAX_READING_AGE, "{waited:?}, {back} ms back");
    }
}

#[tokio::test(start_paused = true)]
async fn forward_clock_keeps_the_cache() {
    let (cache, clock) = remote_memory();
    let quota = Quota::new(1, 60_000, Algorithm::TokenBucket).expect("a quota");
    let limiter = Arc::new(Limiter::new("lim".into(), Mode::Overall, quota));
    let (mut granted, mut store_calls) = (0, 0);
    for _ in 0..20_000 {
        let (yes, was_asked) = ask(&cache, &[charge(&limiter, 1)]).await;
        (granted, store_calls) = (granted + u32::from(yes), store_calls + u32::from(was_asked));
        clock.advance_millis(1);
        pass(1).await;
    }
    assert_eq!((granted, store_calls), (1, 1 + 20), "once a second, after the first two");
}
