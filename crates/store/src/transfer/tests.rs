//! Two stores, one of which hands over to the other.

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::{OnceId, RECEIPT_TTL_MILLIS, ReturnedOnce, TakenOnce};
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::clock::{Clock, ManualClock, SystemClock, Timestamp};
use tidegate_limit::{Algorithm, Mode, Quota, examples};
use tidegate_rules::charge::{Charge, ChargeKind, ClientId, OnLost};
use tidegate_rules::settings::store::{RedisSettings, RedisUrl, StoreSettings};

/// A store whose Redis is unreachable.
fn unreachable_redis() -> Store {
    let settings = RedisSettings::new(RedisUrl::new("redis://127.0.0.1:1".to_owned()));
    Store::open(&StoreSettings::Redis(settings), Arc::default()).expect("a store")
}

fn limiter(name: &str, mode: Mode, rate: u64, algorithm: Algorithm) -> Arc<Limiter> {
    let quota = Quota::new(rate, 60_000, algorithm).expect("a quota");
    Arc::new(Limiter::new(name.to_owned(), mode, quota))
}

fn all_algorithms() -> Vec<Arc<Limiter>> {
    let day = Calendar::new(Unit::Day, "Europe/Rome").expect("a calendar");
    let long =
        |algorithm| if let Algorithm::FixedWindow(_) = algorithm { Algorithm::FixedWindow(day) } else { algorithm };
    let named = |algorithm: Algorithm| limiter(&format!("{{a}}:{}", algorithm.name()), Mode::PerClient, 12, algorithm);
    examples(12).map(long).map(named).collect()
}

fn clients() -> [ClientId; 3] {
    let address = ClientId::Address(IpAddr::V4(Ipv4Addr::LOCALHOST).into());
    [address, ClientId::Value(b"key-1".as_slice().into()), ClientId::Value(b"key-2".as_slice().into())]
}

fn charge(limiter: &Arc<Limiter>, client: Option<&ClientId>) -> Charge {
    Charge::new(Arc::clone(limiter), client.cloned(), 1)
}

/// Sends this number of requests; returns how many the store grants locally.
fn granted(store: &Store, charge: &Charge, requests: usize) -> usize {
    let take = |_: &usize| match &store.0 {
        Backend::Memory(memory) => memory.take(std::slice::from_ref(charge)).expect("a decision").granted(),
        Backend::Redis(_) => store.take_locally(std::slice::from_ref(charge)).expect("a decision").granted(),
    };
    (0..requests).filter(take).count()
}

fn fallback(store: &Store) -> &crate::fallback::Fallback {
    let Backend::Redis(redis) = &store.0 else { panic!("a store in this process") };
    redis.store().fallback()
}

fn read(sent: &SentState) -> StoreState {
    StoreState::new(sent.bytes.clone()).expect("a state")
}

/// Hands over to a store with these rules.
fn hand_over(old: &Store, limiters: &[Arc<Limiter>]) -> Store {
    let (new, sent) = (unreachable_redis(), old.begin_handover(&OperatorData::default()));
    new.take_over(&read(&sent), limiters);
    old.finish_handover(&sent);
    new
}

#[test]
fn three_handovers_grant_one_share_of_each_limit() {
    let limiters = all_algorithms();
    for number_of_gateways in [1, 3] {
        let mut stores = vec![unreachable_redis()];
        fallback(&stores[0]).assume(number_of_gateways);
        let share = 12 / usize::try_from(number_of_gateways).expect("few");
        let mut grants = vec![0; limiters.len() * 3];
        for handover in 0..4 {
            for (index, limiter) in limiters.iter().enumerate() {
                for (number, client) in clients().iter().enumerate() {
                    let charge = charge(limiter, Some(client));
                    // The old gateways still drain, and grant permits to open connections.
                    let requests = if handover == 3 { 20 } else { 1 };
                    let of_all = stores.iter().map(|store| granted(store, &charge, requests)).sum::<usize>();
                    grants[index * 3 + number] += of_all;
                }
            }
            stores.push(hand_over(stores.last().expect("a store"), &limiters));
        }
        for (index, grants) in grants.iter().enumerate() {
            let name = &limiters[index / 3].name;
            // The first request takes no share: it is forwarded immediately, and the others wait for their slots.
            let share = if name.ends_with("leaky_bucket") { share + 1 } else { share };
            // A permit of a cold bucket stays in use up to three times as long.
            let least = if name.ends_with("warm_up") { share / 6 } else { share / 2 };
            assert!((least..=share).contains(grants), "{name} of {number_of_gateways}: {grants}");
        }
        assert_eq!(fallback(stores.last().expect("a store")).gateways(), number_of_gateways);
    }
}

#[test]
fn successor_has_the_whole_share_when_the_old_gateway_has_ended() {
    let limiters = [limiter("{a}:l", Mode::Overall, 20, Algorithm::TokenBucket)];
    let charge = charge(&limiters[0], None);
    let old = unreachable_redis();
    assert_eq!(granted(&old, &charge, 2), 2);
    let new = hand_over(&old, &limiters);
    // A quarter of the share is 5, and 2 are in use; the rest is 15.
    assert_eq!((granted(&old, &charge, 30), granted(&new, &charge, 30)), (3, 13));
    let last = old.last_grants().expect("local grants");
    new.predecessor_ended(Some(&read(&last)));
    assert_eq!(granted(&new, &charge, 30), 2);
    assert_eq!(fallback(&new).owed_permits(), 20);
}

#[test]
fn share_below_four_permits_is_the_successors() {
    let limiters = [limiter("{a}:l", Mode::Overall, 3, Algorithm::TokenBucket)];
    let charge = charge(&limiters[0], None);
    let old = unreachable_redis();
    let new = hand_over(&old, &limiters);
    let shadow = Charge { shadow: true, ..charge.clone() };
    assert!(old.take_locally(&[shadow]).expect("a decision").granted());
    let outcome = old.take_locally(std::slice::from_ref(&charge)).expect("a decision");
    assert_eq!(outcome.decisions[0].wait, tidegate_limit::Wait::Millis(1_000));
    assert_eq!((granted(&old, &charge, 10), granted(&new, &charge, 10)), (0, 3));
}

#[test]
fn local_grants_move_once_with_the_limiter_of_the_sender() {
    let (old, limiters) = (unreachable_redis(), all_algorithms());
    let clients = clients();
    for (limiter, client) in limiters.iter().flat_map(|limiter| clients.iter().map(move |client| (limiter, client))) {
        assert_eq!(granted(&old, &charge(limiter, Some(client)), 2), 2);
    }
    let sent = old.begin_handover(&OperatorData::default());
    let before: Vec<_> = sent.late_charges.clone();
    let new = unreachable_redis();
    new.take_over(&read(&sent), &[]); // its rules have none of these limits
    new.take_over(&read(&sent), &[]); // again
    old.finish_handover(&sent);
    let owed_permits = u64::try_from(2 * clients.len() * limiters.len()).expect("few");
    assert_eq!((fallback(&old).owed_permits(), fallback(&new).owed_permits()), (0, owed_permits));
    let (late_charges, _) = fallback(&new).late_charges();
    assert_eq!(late_charges.iter().map(|late_charge| late_charge.id).collect::<Vec<_>>(), before);
    let local_grants: Vec<_> = late_charges.iter().flat_map(|late_charge| &late_charge.buckets).collect();
    for (limiter, client) in limiters.iter().flat_map(|limiter| clients.iter().map(move |client| (limiter, client))) {
        let is_it = |bucket: &&&crate::fallback::local_grants::BucketGrants| {
            bucket.limiter == *limiter && bucket.client.as_ref() == Some(client)
        };
        assert_eq!(local_grants.iter().filter(is_it).count(), 1, "{}", limiter.name);
    }
}

/// Regression test: local grants were grouped by their rate, and all grants of a late charge are written with one
/// limiter.
#[test]
fn grants_of_tiers_with_equal_rates_keep_their_intervals() {
    let tier = |interval| {
        let quota = Quota::new(10, interval, Algorithm::TokenBucket).expect("a quota");
        Arc::new(Limiter::new("{a}:l".to_owned(), Mode::PerClient, quota))
    };
    let (old, tiers) = (unreachable_redis(), [tier(60_000), tier(3_600_000)]);
    for (tier, client) in tiers.iter().zip(&clients()) {
        assert_eq!(granted(&old, &charge(tier, Some(client)), 1), 1);
    }
    let new = hand_over(&old, &[]);
    let (late_charges, _) = fallback(&new).late_charges();
    let local_grants: Vec<_> = late_charges.iter().flat_map(|late_charge| &late_charge.buckets).collect();
    for (tier, client) in tiers.iter().zip(&clients()) {
        let bucket = local_grants.iter().find(|bucket| bucket.client.as_ref() == Some(client)).expect("local grants");
        assert_eq!(bucket.limiter, *tier);
    }
}

#[test]
fn embedded_buckets_move_to_a_successor_with_the_same_limits() {
    let limiters = all_algorithms();
    let (old, new) = (Store::memory(), Store::memory());
    let clients = clients();
    for limiter in &limiters {
        assert_eq!(granted(&old, &charge(limiter, Some(&clients[1])), 5), 5);
    }
    let changed = [
        limiter("{a}:token_bucket", Mode::PerClient, 20, Algorithm::TokenBucket), // another rate
        limiter("{a}:gcra", Mode::PerClient, 12, Algorithm::TokenBucket),         // another algorithm
        limiter("{a}:sliding_window", Mode::Overall, 12, Algorithm::SlidingWindow { segments: 6 }), // another mode
    ];
    new.take_over(&read(&old.begin_handover(&OperatorData::default())), &changed);
    let remaining = |limiter: &Arc<Limiter>, client| granted(&new, &charge(limiter, client), 30);
    assert_eq!(remaining(&changed[0], Some(&clients[1])), 15);
    assert_eq!(remaining(&changed[0], Some(&clients[2])), 20);
    assert_eq!(remaining(&changed[1], Some(&clients[1])), 12);
    assert_eq!(remaining(&changed[2], None), 12);
}

/// Regression test: the successor evaluated these buckets by the limit's default quota, and removed them as full.
#[test]
fn buckets_of_slow_clients_survive_a_handover_and_a_sweep() {
    for algorithm in [Algorithm::Gcra { burst: 1 }, Algorithm::SlidingWindow { segments: 6 }] {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
        let store = |max| {
            let memory = Memory::bounded(Arc::clone(&clock) as Arc<dyn Clock>, None, max);
            Store(Backend::Memory(Arc::new(memory)))
        };
        let default = limiter("{a}:l", Mode::PerClient, 100, algorithm);
        let quota = Quota::new(1, 3_600_000, algorithm).expect("a quota");
        let slow = Arc::new(Limiter::new("{a}:l".to_owned(), Mode::PerClient, quota));
        let [slow_client, first, second] = clients();
        let (old, new) = (store(2), store(2));
        assert_eq!(granted(&old, &charge(&slow, Some(&slow_client)), 2), 1);
        clock.advance_millis(300_000);
        new.take_over(&read(&old.begin_handover(&OperatorData::default())), std::slice::from_ref(&default));
        // The second client finds no capacity, so full buckets are removed.
        assert_eq!([&first, &second].map(|client| granted(&new, &charge(&default, Some(client)), 1)), [1, 1]);
        assert_eq!(granted(&new, &charge(&slow, Some(&slow_client)), 1), 0, "{algorithm:?}");
    }
}

#[test]
fn successor_with_another_secret_gets_grants_but_no_buckets() {
    let old = unreachable_redis();
    let limiters = [limiter("{a}:l", Mode::PerClient, 10, Algorithm::TokenBucket)];
    let charge = charge(&limiters[0], Some(&clients()[1]));
    assert_eq!(granted(&old, &charge, 4), 4);
    let new = unreachable_redis();
    _ = fallback(&new).buckets().share_secret(KeySecret::random());
    new.take_over(&read(&old.begin_handover(&OperatorData::default())), &limiters);
    assert_eq!((fallback(&new).owed_permits(), fallback(&new).buckets().len()), (4, 0));
}

#[test]
fn damaged_states_are_rejected_or_ignored() {
    let store = unreachable_redis();
    let sent = store.begin_handover(&OperatorData::default());
    let text = String::from_utf8(sent.bytes).expect("text");
    let with = |old: &str, new: &str| StoreState::new(text.replace(old, new).into_bytes());
    assert!(with("", "").is_ok());
    for (old, new) in [
        ("tidegate_state\":1", "tidegate_state\":2"),
        ("gateways\":1", "gateways\":0"),
        ("gateways\":1", "gateways\":70000"),
        ("secret\":\"", "secret\":\"0"),
        ("id\":\"", "id\":\" "),
        ("{", ""),
    ] {
        assert!(with(old, new).is_err(), "{old} {new}");
    }
    let limiters = [limiter("{a}:l", Mode::PerClient, 10, Algorithm::TokenBucket)];
    let lines = [
        "not json",
        r#"{"later":[1]}"#,
        r#"{"bucket":["00",[1]]}"#,
        r#"{"limit":{"name":"{a}:l","mode":"PER_CLIENT","algorithm":"token_bucket"}}"#,
        r#"{"bucket":["zz",[60000,0,-5,1]]}"#,
        r#"{"bucket":["00000000000000000000000000000000",[60000,0,-5,1]]}"#,
        r#"{"bucket":["04000000000000000000000000000001",[60000,0,-5,-1]]}"#,
        r#"{"payment":{"id":1,"limiter":{"name":"x","mode":"OVERALL","rate":0,"interval":1,"algorithm":"token_bucket","partitions":null},"debts":[]}}"#,
        r#"{"payment":{"id":2,"limiter":{"name":"x","mode":"PER_CLIENT","rate":1,"interval":60000,"algorithm":"token_bucket","partitions":null},"debts":[{"client":null,"grants":[[0,1]]}]}}"#,
    ];
    let state = StoreState::new(format!("{text}{}\n", lines.join("\n")).into_bytes()).expect("a state");
    let imported = state.import(&store, &limiters, true);
    assert_eq!((imported.buckets, imported.late_charges, imported.ignored), (0, 0, lines.len() - 1));
}

#[test]
fn too_many_buckets_leave_the_least_used_behind() {
    let memory = Memory::new(Arc::new(SystemClock::new()), None);
    let limiter = limiter("{a}:l", Mode::PerClient, 16, Algorithm::TokenBucket);
    for number in 0..1_000_u32 {
        let client = ClientId::Value(number.to_le_bytes().into());
        let permits = if number % 10 == 0 { 15 } else { 1 };
        let charge = Charge { permits, ..charge(&limiter, Some(&client)) };
        assert!(memory.take(&[charge]).expect("a decision").granted());
    }
    let (mut permits, mut numbers) = (0, 0);
    let left_out = memory.export(20_000, |_, _, _, bucket| {
        (permits, numbers) = (permits + bucket[3], numbers + 1);
    });
    assert_eq!((left_out + numbers, numbers < 250), (1_000, true), "{numbers}");
    assert_eq!(permits, 100 * 15 + i64::try_from(numbers - 100).expect("more than a hundred"));
}

/// A store in memory whose clock shows this time.
fn memory_at(millis: u64) -> (Store, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(millis)));
    let settings = StoreSettings::Memory { key_secret: None };
    let shown = Some(Arc::clone(&clock) as Arc<dyn Clock>);
    (Store::open_with_clock(&settings, Arc::default(), shown).expect("a store"), clock)
}

#[tokio::test]
async fn embedded_store_hands_over_ids_and_post_paid_limits() {
    let limiters = [limiter("{a}:l", Mode::PerClient, 20, Algorithm::TokenBucket)];
    let (client, [(old, _), (new, clock)]) =
        (&clients()[1], [memory_at(1_800_000_000_000), memory_at(1_900_000_000_000)]);
    let charges = [Charge { permits: 3, ..charge(&limiters[0], Some(client)) }];
    let id = |id: &str, request: &[u8]| OnceId { id: id.as_bytes().into(), request: request.into() };
    let take = async |store: &Store, id: &OnceId| store.take_once(&charges, &[7], id).await.expect("a decision");
    for id in [id("kept", b"x"), id("returned", b"x")] {
        assert!(matches!(take(&old, &id).await, TakenOnce::Decided(outcome) if outcome.granted()));
    }
    old.return_once(b"returned").await.expect("a result");
    old.make_post_paid(&limiters[0]).await;
    let sent = old.begin_handover(&OperatorData::default());
    new.take_over(&read(&sent), &limiters);
    assert!(new.is_post_paid(&limiters[0]));
    clock.advance_millis(59_999);
    let TakenOnce::Repeated(decisions) = take(&new, &id("kept", b"x")).await else { panic!("not repeated") };
    assert_eq!((decisions[0].0, decisions[0].1.remaining, decisions.len()), (7, 17, 1));
    assert_eq!(take(&new, &id("kept", b"y")).await, TakenOnce::OtherRequest);
    assert_eq!(take(&new, &id("returned", b"x")).await, TakenOnce::Returned);
    let remaining = async || new.inspect(&charges[0]).await.expect("a bucket").remaining;
    assert_eq!(remaining().await, 17);
    let returned = [new.return_once(b"kept").await, new.return_once(b"kept").await, new.return_once(b"other").await];
    assert_eq!(returned, [Ok(ReturnedOnce::Now), Ok(ReturnedOnce::Before), Ok(ReturnedOnce::Unknown)]);
    assert_eq!(remaining().await, 20);
    clock.advance_millis(RECEIPT_TTL_MILLIS - 60_000);
    assert_eq!(take(&new, &id("kept", b"x")).await, TakenOnce::Returned);
    clock.advance_millis(1);
    assert!(matches!(take(&new, &id("kept", b"x")).await, TakenOnce::Decided(_)), "it has expired");
}

/// The predecessor still drains: its requests have reserved permits of the budget.
#[tokio::test]
async fn open_reservations_are_settled_by_the_successor() {
    for (on_lost, is_killed, remaining) in
        [(OnLost::Charge, false, 85), (OnLost::Charge, true, 35), (OnLost::Refund, true, 100)]
    {
        let quota = Quota::new(100, 60_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("{a}:l".to_owned(), Mode::PerClient, quota).with_budget(on_lost));
        let client = clients()[1].clone();
        let [old, new] = [(); 2].map(|()| Store::memory());
        let reserve = async |store: &Store, permits| {
            let kind = ChargeKind::Reserve(store.new_reservation());
            let charge = Charge { kind, permits, ..charge(&limiter, Some(&client)) };
            store
                .take(std::slice::from_ref(&charge))
                .await
                .expect("a decision")
                .granted()
                .then(|| store.keep(&charge, None))
        };
        let open = [reserve(&old, 60).await.expect("granted"), reserve(&old, 5).await.expect("granted")];
        let sent = old.begin_handover(&OperatorData::default());
        new.take_over(&read(&sent), std::slice::from_ref(&limiter));
        assert!(reserve(&new, 36).await.is_none(), "the reservations count");
        let [large, small] = open;
        large.settle(10);
        drop(small);
        let last = old.last_grants().expect("settlements");
        new.predecessor_ended(if is_killed { None } else { Some(read(&last)) }.as_ref());
        let check = Charge { kind: ChargeKind::Check, permits: 0, ..charge(&limiter, Some(&client)) };
        assert_eq!(new.take(&[check]).await.expect("a decision").decisions[0].remaining, remaining, "{on_lost:?}");
    }
}
