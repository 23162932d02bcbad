//! Counts, their errors, times and values of rejected clients.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use ipnet::IpNet;

use super::history::History;
use super::recorder::{Recorder, SLOTS};
use super::*;

const MINUTE: u64 = 60_000;
const START: u64 = 1_000 * MINUTE;

fn address(number: u32) -> ClientId {
    ClientId::Address(IpNet::from(std::net::IpAddr::from(Ipv6Addr::from(u128::from(number) << 64))))
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(START + millis)
}

/// Returns the entries with their clients as numbers.
fn numbers(rejected: &RejectedClients, now: Timestamp, minutes: u64) -> Vec<(u32, u64, u64)> {
    let number = |client: Client| match client {
        Client::Address(IpNet::V6(network)) => u32::try_from(u128::from(network.addr()) >> 64).expect("a number"),
        other => panic!("{other:?}"),
    };
    let top = rejected.top(now, minutes).into_iter();
    top.map(|entry| (number(entry.client), entry.count, entry.error)).collect()
}

#[test]
fn few_clients_are_counted_exactly_over_workers_and_minutes() {
    let (rejected, store) = (RejectedClients::new(2), Store::memory());
    let [own, other] = ["own", "other"].map(|limit| LimitId::new("all", limit));
    let record = |worker, limit, client, times: u32| {
        (0..times).for_each(|_| rejected.record(worker, limit, Some(&address(client)), &store));
    };
    record(0, own, 7, 3);
    record(1, own, 7, 4);
    record(1, own, 8, 2);
    rejected.record(0, other, None, &store);
    let top = rejected.top(at(0), 15);
    let counts: Vec<_> = top.iter().map(|entry| (entry.limit == own, entry.count, entry.error)).collect();
    assert_eq!(counts, [(true, 7, 0), (true, 2, 0), (false, 1, 0)]);
    assert_eq!(top[2].client, Client::All);
    record(0, own, 8, 1);
    let counts = |now, minutes| rejected.top(at(now), minutes).iter().map(|entry| entry.count).collect::<Vec<_>>();
    assert_eq!(counts(3 * MINUTE, 5), [7, 3, 1]);
    assert_eq!(counts(3 * MINUTE, 1), [1], "only the last collection is in this window");
    assert_eq!(counts(15 * MINUTE, 15), [7, 3, 1]);
    assert_eq!(counts(16 * MINUTE, 15), [1]);
    assert!(counts(19 * MINUTE, 15).is_empty());
}

#[test]
fn causes_of_a_route_have_their_own_ids() {
    let ids = ["a", "b"].map(|route| Cause::ALL.map(|cause| LimitId::of_cause(route, cause)));
    let limits = Cause::ALL.map(|cause| LimitId::new("a", cause.as_str()));
    let all: std::collections::HashSet<_> = ids.into_iter().flatten().chain(limits).collect();
    assert_eq!(all.len(), 3 * Cause::ALL.len());
}

#[test]
fn errors_are_bounded_with_100_000_clients() {
    let (rejected, store) = (RejectedClients::new(2), Store::memory());
    let limit = LimitId::new("all", "own");
    let mut truth = HashMap::new();
    let mut total = 0;
    for number in 0..100_000_u32 {
        // Twenty clients are rejected far more often than all others.
        for client in [number, 1_000_000 + number % 20] {
            rejected.record(number as usize % 2, limit, Some(&address(client)), &store);
            *truth.entry(client).or_insert(0_u64) += 1;
            total += 1;
        }
        if number % 10_000 == 0 {
            rejected.collect(at(u64::from(number)));
        }
    }
    let entries = numbers(&rejected, at(MINUTE), 15);
    let max_error = total * 35 / (10 * SLOTS as u64);
    assert!(entries[..20].iter().all(|(client, ..)| *client >= 1_000_000), "{:?}", &entries[..21]);
    for (client, count, error) in &entries {
        assert!((count - error..=*count).contains(&truth[client]) && *error <= max_error, "{client} {count} {error}");
    }
    assert!(entries[0].2 > 0, "the sketches were never full");
}

#[test]
fn memory_is_bounded() {
    let (recorder, store) = (Recorder::new(), Store::memory());
    let (hasher, mut history) = (DefaultHashBuilder::default(), History::default());
    let context = Context { hasher: &hasher, keeps_values: true };
    for minute in 0..20 {
        for number in 0..3 * u32::try_from(SLOTS).expect("a number") {
            // The first 300 clients are rejected more often, so that their values are kept.
            for number in [number, number % 300] {
                let value = ClientId::Value(format!("{minute} {number}").into_bytes().into());
                recorder.record(LimitId::new("all", "own"), Some(&value), &store, context);
            }
        }
        history.add(at(minute * MINUTE), recorder.take().expect("rejections"));
    }
    assert!(history.size() < 2_100_000, "{}", history.size());
    assert!((1..=2_048).contains(&history.values()), "{}", history.values());
}

#[test]
fn times_are_kept_while_a_client_is_rejected() {
    let (rejected, store) = (RejectedClients::new(1), Store::memory());
    let reject = |millis, client| {
        rejected.record(0, LimitId::new("all", "own"), Some(&address(client)), &store);
        rejected.collect(at(millis));
    };
    for minute in 0..30 {
        reject(minute * MINUTE, 1);
    }
    reject(29 * MINUTE, 2);
    let times = |now| {
        let top = rejected.top(at(now), 15).into_iter();
        top.map(|entry| (entry.since, entry.last)).collect::<Vec<_>>()
    };
    assert_eq!(times(29 * MINUTE), [(at(0), at(29 * MINUTE)), (at(29 * MINUTE), at(29 * MINUTE))]);
    reject(50 * MINUTE, 1);
    assert_eq!(times(50 * MINUTE), [(at(50 * MINUTE), at(50 * MINUTE))]);
}

#[test]
fn future_minutes_are_forgotten_when_the_clock_is_set_back() {
    let (rejected, store) = (RejectedClients::new(1), Store::memory());
    let reject = |minute, client| {
        rejected.record(0, LimitId::new("all", "own"), Some(&address(client)), &store);
        rejected.collect(at(minute * MINUTE));
    };
    let minutes = || rejected.minutes(0, at(0)).iter().map(|minute| minute.number - START / MINUTE).collect::<Vec<_>>();
    for (minute, client) in [(60, 1), (60, 2), (1, 1), (2, 1)] {
        reject(minute, client);
    }
    assert_eq!(minutes(), [1, 2]);
    let top = rejected.top(at(2 * MINUTE), 15);
    let times: Vec<_> = top.iter().map(|entry| (entry.count, entry.since, entry.last)).collect();
    assert_eq!(times, [(2, at(MINUTE), at(2 * MINUTE))]);
    reject(1, 1);
    assert_eq!((minutes(), numbers(&rejected, at(2 * MINUTE), 15)), (vec![1, 2], vec![(1, 3, 0)]));
}

/// The clients that are rejected most have times even if all places are taken by others.
#[test]
fn times_of_many_clients_are_replaced() {
    let (rejected, store) = (RejectedClients::new(4), Store::memory());
    let limit = LimitId::new("all", "own");
    for worker in 0..4_u32 {
        (0..1_000).for_each(|number| {
            rejected.record(worker as usize, limit, Some(&address(worker * 1_000 + number)), &store);
        });
    }
    rejected.collect(at(1_500));
    (0..9).for_each(|_| rejected.record(0, limit, Some(&address(77_777)), &store));
    (0..5).for_each(|_| rejected.record(0, limit, Some(&address(5)), &store));
    let mut top = rejected.top(at(2_500), 15);
    let entry = top.iter().find(|entry| entry.client.id() == Some(address(5)));
    assert_eq!(entry.map(|entry| entry.last), Some(at(2_500)), "after a client without times");
    let first = top.swap_remove(0);
    assert!((first.count - first.error..=first.count).contains(&9), "{first:?}");
    assert_eq!((first.since, first.last), (at(0), at(0)), "only the minute is known");
    rejected.record(0, limit, Some(&address(77_777)), &store);
    let first = rejected.top(at(MINUTE + 2_500), 15).swap_remove(0);
    assert_eq!((first.since, first.last), (at(0), at(MINUTE + 2_500)));
}

#[test]
fn values_are_kept_only_on_request() {
    let (rejected, store) = (RejectedClients::new(1), Store::memory());
    let mut encoded = vec![b'h'];
    for text in [b"x-key".as_slice(), &[b'k'; 1_000]] {
        encoded.extend_from_slice(&(text.len() as u64).to_le_bytes());
        encoded.extend_from_slice(text);
    }
    let client = ClientId::Value(encoded.into());
    let value = || {
        rejected.record(0, LimitId::new("all", "own"), Some(&client), &store);
        rejected.top(at(0), 15).swap_remove(0).value
    };
    assert_eq!(value(), None);
    rejected.set_keeps_values(true);
    assert_eq!(value().as_deref(), Some(&*("k".repeat(128) + "...")));
    rejected.set_keeps_values(false);
    assert_eq!(value(), None);
}
