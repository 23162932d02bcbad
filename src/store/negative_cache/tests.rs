//! A refusal that is remembered is one that the store would repeat.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::advance;

use super::clock_watch::MAX_READING_AGE;
use super::entries::MAX_BYTES;
use super::*;
use crate::clock::ManualClock;
use crate::limit::redisson::Sharing;
use crate::limit::{Algorithm, ClientId, Decision, Limiter, Mode, Quota, Wait};
use crate::store::Memory;

fn limiter(algorithm: Algorithm) -> Arc<Limiter> {
    let quota = Quota::new(10, 60_000, algorithm).expect("a quota");
    Arc::new(Limiter::new("lim".into(), Mode::Overall, quota))
}

fn charge(limiter: &Arc<Limiter>, permits: u32) -> Charge {
    Charge { limiter: Arc::clone(limiter), client: None, permits, shadow: false }
}

fn refusal(wait: Wait) -> Decision {
    Decision::new(2, wait, 9_000)
}

fn remember(entries: &Entries, charge: &Charge, wait: Wait, generation: entries::Generation) {
    let (decision, now) = (refusal(wait), Instant::now());
    let decided_at = Timestamp::from_millis(1_000);
    let refused = Refused { decided_at, asked: now, received_at: now, permits: charge.permits, decision: &decision };
    entries.insert(charge, &refused, generation);
}

fn refuse(entries: &Entries, limiter: &Arc<Limiter>, permits: u32, wait: Wait) {
    remember(entries, &charge(limiter, permits), wait, entries.generation());
}

fn says(entries: &Entries, limiter: &Arc<Limiter>, permits: u32) -> Option<(u64, Decision)> {
    let known = entries.find(&[charge(limiter, permits)], Instant::now())?;
    Some((known.now.as_millis(), known.decisions[0]?))
}

async fn pass(millis: u64) {
    advance(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_holds_for_its_cost_and_more_until_a_millisecond_before_its_wait_is_over() {
    let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
    refuse(&entries, &limiter, 3, Wait::Millis(700));
    pass(200).await;
    let (now, decision) = says(&entries, &limiter, 3).expect("a refusal");
    assert_eq!((now, decision.wait, decision.reset), (1_200, Wait::Millis(500), 8_800));
    assert!(says(&entries, &limiter, 4).is_some() && says(&entries, &limiter, 2).is_none());
    pass(498).await;
    assert!(says(&entries, &limiter, 3).is_some());
    pass(1).await;
    assert!(says(&entries, &limiter, 3).is_none());
}

/// Who asks again after the wait that it was told must not be too early; who asks before it is over may be refused unasked.
#[tokio::test(start_paused = true)]
async fn a_slow_answer_shortens_what_is_remembered_and_not_the_wait_that_is_told() {
    let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
    let (decision, asked) = (refusal(Wait::Millis(700)), Instant::now());
    pass(100).await;
    let decided_at = Timestamp::from_millis(1_000);
    let refused = Refused { decided_at, asked, received_at: Instant::now(), permits: 1, decision: &decision };
    entries.insert(&charge(&limiter, 1), &refused, entries.generation());
    let (now, decision) = says(&entries, &limiter, 1).expect("a refusal");
    assert_eq!((now, decision.wait), (1_000, Wait::Millis(700)));
    pass(599).await;
    assert!(says(&entries, &limiter, 1).is_none());
}

#[tokio::test(start_paused = true)]
async fn one_request_a_second_asks_again_and_what_it_hears_counts() {
    let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
    refuse(&entries, &limiter, 1, Wait::Millis(60_000));
    for _ in 0..3 {
        assert!(says(&entries, &limiter, 1).is_some());
        pass(1_000).await;
        assert!(says(&entries, &limiter, 1).is_none(), "nobody asks");
        assert!(says(&entries, &limiter, 1).is_some(), "two ask");
    }
    let charges = [charge(&limiter, 1)];
    let granted = Decision { granted: true, wait: Wait::Now, ..refusal(Wait::Now) };
    let granted = Outcome::with_granted(Timestamp::default(), vec![granted], true);
    entries.remove_granted(&charges, Instant::now(), Some(&granted));
    assert!(says(&entries, &limiter, 1).is_none());
    let before = Instant::now();
    pass(1).await;
    refuse(&entries, &limiter, 1, Wait::Never);
    entries.remove_granted(&charges, before, Some(&granted));
    assert!(says(&entries, &limiter, 1).is_some(), "who took the last permit spoils what the next was told");
    entries.remove_granted(&charges, Instant::now(), None);
    assert!(says(&entries, &limiter, 1).is_none(), "a store that fails is believed to refuse");
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_is_known_at_once_and_so_is_another_rule() {
    let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
    let before = entries.generation();
    refuse(&entries, &limiter, 1, Wait::Millis(5_000));
    entries.remove_refunded([charge(&limiter, 1)].iter());
    assert!(says(&entries, &limiter, 1).is_none());
    // Asked before, answered after.
    remember(&entries, &charge(&limiter, 1), Wait::Millis(5_000), before);
    assert!(says(&entries, &limiter, 1).is_none());
    refuse(&entries, &limiter, 1, Wait::Millis(5_000));
    let changed = Arc::new(Limiter::new("lim".into(), Mode::Overall, limiter.quota));
    assert!(says(&entries, &changed, 1).is_none());
}

/// Regression test: a refund kept the refusals of all buckets out of the cache that the store answered at that time.
#[tokio::test(start_paused = true)]
async fn refund_keeps_refusals_of_other_buckets() {
    let (entries, own, other) = (Entries::default(), limiter(Algorithm::TokenBucket), limiter(Algorithm::TokenBucket));
    refuse(&entries, &other, 2, Wait::Millis(5_000));
    let before = entries.generation();
    entries.remove_refunded([charge(&own, 1)].iter());
    assert!(says(&entries, &other, 2).is_some());
    remember(&entries, &charge(&other, 1), Wait::Millis(5_000), before);
    assert!(says(&entries, &other, 1).is_some());
    remember(&entries, &charge(&own, 1), Wait::Millis(5_000), before);
    assert!(says(&entries, &own, 1).is_none());
}

#[tokio::test(start_paused = true)]
async fn many_refunds_take_bounded_memory() {
    let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
    let of = |client: u32| Charge { client: Some(ClientId::Value(client.to_be_bytes().into())), ..charge(&limiter, 1) };
    let before = entries.generation();
    for client in 0..100_000 {
        entries.remove_refunded([of(client)].iter());
    }
    assert!(entries.bytes() < 256 * 1024, "{} bytes", entries.bytes());
    for client in 0..100_000 {
        remember(&entries, &of(client), Wait::Millis(5_000), before);
    }
    assert_eq!(entries.len(), 0, "a refusal from before a refund is cached");
    remember(&entries, &of(0), Wait::Millis(5_000), entries.generation());
    assert_eq!(entries.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn shared_limiters_are_remembered_for_a_moment_and_shadows_never_refuse() {
    let entries = Entries::default();
    let shared = limiter(Algorithm::Redisson(Sharing::Configure));
    refuse(&entries, &shared, 1, Wait::Millis(5_000));
    assert!(says(&entries, &shared, 1).is_some());
    pass(100).await;
    assert!(says(&entries, &shared, 1).is_none());
    let library = limiter(Algorithm::Redisson(Sharing::Library));
    refuse(&entries, &library, 1, Wait::Millis(5_000));
    assert!(says(&entries, &library, 1).is_none());
    let own = limiter(Algorithm::TokenBucket);
    refuse(&entries, &own, 1, Wait::Millis(5_000));
    assert!(entries.find(&[Charge { shadow: true, ..charge(&own, 1) }], Instant::now()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_clients_is_remembered_up_to_a_bound_and_room_is_made_of_what_is_over() {
    let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
    let refuse = |client: u32, wait| {
        // As long as a key that a client sends may be: what is kept of it is as long as ever.
        let client = Some(ClientId::Value([&client.to_be_bytes()[..], &[b'x'; 512]].concat().into()));
        remember(&entries, &Charge { client, ..charge(&limiter, 1) }, Wait::Millis(wait), entries.generation());
    };
    let mut most = 0;
    for round in 0..3 {
        (0..65_000).for_each(|client| refuse(round * 65_000 + client, 10_000));
        most = most.max(entries.len());
        assert!(entries.bytes() <= MAX_BYTES, "{} bytes", entries.bytes());
        pass(10_000).await;
    }
    (0..100).for_each(|client| refuse(1_000_000 + client, 10_000));
    assert!((50_000..57_400).contains(&most) && (100..most).contains(&entries.len()), "{most}, {}", entries.len());
}

proptest! {
    #[test]
    fn a_refusal_is_its_buckets_and_no_others(
        one in client(),
        two in client(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let (entries, limiter) = (Entries::default(), limiter(Algorithm::TokenBucket));
            let of = |client: &Option<ClientId>| Charge { client: client.clone(), ..charge(&limiter, 1) };
            remember(&entries, &of(&one), Wait::Millis(60_000), entries.generation());
            prop_assert!(entries.find(&[of(&one)], Instant::now()).is_some());
            prop_assert_eq!(entries.find(&[of(&two)], Instant::now()).is_some(), one == two);
            Ok(())
        })?;
    }
}

/// Few enough that two are often the same.
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

/// A store remote_memory whose clock can be set.
struct RemoteMemory {
    memory: Memory,
    clock: Arc<ManualClock>,
}

impl Remote for RemoteMemory {
    fn slot(&self, _: &Charge) -> Option<u16> {
        None
    }

    fn clock(&self, _: &Charge) -> usize {
        0
    }

    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    fn departures(&self) -> u64 {
        0
    }

    async fn take(&self, charges: &[Charge], _: Option<Timestamp>, _: Instant) -> Result<Outcome, StoreError> {
        self.memory.take(charges)
    }

    async fn take_one(&self, charge: &Charge, _: Option<Timestamp>, _: Instant) -> Result<Outcome, StoreError> {
        self.memory.take(std::slice::from_ref(charge))
    }

    async fn give_back(&self, granted: &[Granted], _: Option<Timestamp>) -> Result<(), StoreError> {
        self.memory.give_back(granted);
        Ok(())
    }

    async fn time(&self, _: &Charge) -> Result<Timestamp, StoreError> {
        Ok(crate::clock::Clock::now(&*self.clock))
    }
}

fn remote_memory() -> (NegativeCache<RemoteMemory>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
    let memory = Memory::new(Arc::clone(&clock) as Arc<dyn crate::clock::Clock>, None);
    let store = RemoteMemory { memory, clock: Arc::clone(&clock) };
    (NegativeCache::new(store, Arc::new(Metrics::new())), clock)
}

/// Is it granted, and was the store asked?
async fn ask(cache: &NegativeCache<RemoteMemory>, charges: &[Charge]) -> (bool, bool) {
    match cache.known_refusal(charges) {
        Some(_) => (false, false),
        None => {
            let taken = cache.take(charges, None, cache.store().deadline()).await;
            (taken.expect("a decision").granted(), true)
        }
    }
}

/// It took as long as the refusal was remembered, and an interval more: 2.90 s of 2 s.
#[tokio::test(start_paused = true)]
async fn after_a_clock_that_went_back_the_first_grant_comes_one_interval_later() {
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
        clock.set(Timestamp::from_millis(crate::clock::Clock::now(&*clock).as_millis() - back));
        let jumped = Instant::now();
        while !step().await {}
        let waited = jumped.elapsed();
        assert!(waited <= Duration::from_millis(2_000 + 10) + MAX_READING_AGE, "{waited:?}, {back} ms back");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_goes_on_is_looked_at_now_and_then_and_nothing_is_forgotten() {
    let (cache, clock) = remote_memory();
    let quota = Quota::new(1, 60_000, Algorithm::TokenBucket).expect("a quota");
    let limiter = Arc::new(Limiter::new("lim".into(), Mode::Overall, quota));
    let (mut granted, mut asked) = (0, 0);
    for _ in 0..20_000 {
        let (yes, was_asked) = ask(&cache, &[charge(&limiter, 1)]).await;
        (granted, asked) = (granted + u32::from(yes), asked + u32::from(was_asked));
        clock.advance_millis(1);
        pass(1).await;
    }
    assert_eq!((granted, asked), (1, 1 + 20), "once a second, with_store the first two");
}
