//! Amounts of clients, their errors, and the memory that they use.

use std::net::{IpAddr, Ipv6Addr};

use super::counts::SLOTS;
use super::*;

const MINUTE: u64 = 60_000;

fn client(number: u32) -> IpNet {
    IpNet::from(IpAddr::from(Ipv6Addr::from(u128::from(number) << 64)))
}

fn at(minutes: u64) -> Timestamp {
    Timestamp::from_millis(1_000 * MINUTE + minutes * MINUTE)
}

fn start(workers: usize) -> Talkers {
    let talkers = Talkers::new(workers);
    talkers.set_on(true);
    talkers
}

fn record(talkers: &Talkers, worker: usize, number: u32, used: Use) {
    talkers.recorder(worker).expect("a worker").record(client(number), used);
}

#[test]
fn clients_are_listed_by_each_amount() {
    let talkers = start(2);
    (0..9).for_each(|_| record(&talkers, 0, 1, Use { bytes: 1, permits: 0 }));
    (0..4).for_each(|worker| record(&talkers, worker % 2, 2, Use { bytes: 1_000, permits: 1 }));
    record(&talkers, 1, 3, Use { bytes: 0, permits: 50 });
    let top = |by| {
        let top = talkers.top(at(0), 15, by, 2);
        top.iter().map(|one| (one.client, one.requests.count, one.bytes.count, one.permits.count)).collect::<Vec<_>>()
    };
    let [one, two, three] = [(client(1), 9, 9, 0), (client(2), 4, 4_000, 4), (client(3), 1, 0, 50)];
    assert_eq!(top(Amount::Requests), [one, two]);
    assert_eq!(top(Amount::Bytes), [two, one]);
    assert_eq!(top(Amount::Permits), [three, two]);
    assert_eq!(talkers.top(at(16), 15, Amount::Requests, 2), []);
}

#[test]
fn counts_of_a_clock_ahead_are_forgotten() {
    let talkers = start(1);
    for (minute, number) in [(60, 1), (1, 2), (2, 2)] {
        record(&talkers, 0, number, Use::default());
        talkers.collect(at(minute));
    }
    let top = talkers.top(at(2), 15, Amount::Requests, 9);
    assert_eq!(top.iter().map(|one| (one.client, one.requests.count)).collect::<Vec<_>>(), [(client(2), 2)]);
}

#[test]
fn counts_are_forgotten_when_they_are_switched_off() {
    let talkers = start(1);
    record(&talkers, 0, 1, Use::default());
    talkers.collect(at(0));
    record(&talkers, 0, 1, Use::default());
    talkers.set_on(false);
    talkers.set_on(true);
    assert_eq!(talkers.top(at(0), 15, Amount::Requests, 9), []);
}

#[test]
fn errors_and_memory_are_bounded_with_many_clients() {
    let talkers = start(1);
    let mut total = 0;
    for minute in 0..20 {
        for number in 0..20 * u32::try_from(SLOTS).expect("a number") {
            // One client in two requests is one of twenty.
            let number = if number % 2 == 0 { number % 40 } else { 1_000_000 + minute * 100_000 + number };
            record(&talkers, 0, number, Use { bytes: 100, permits: 1 });
            total += u64::from(minute >= 4);
        }
        talkers.collect(at(u64::from(minute)));
    }
    let size = talkers.history.lock().size();
    assert!(size < 4_000_000, "{size}");
    let top = talkers.top(at(19), 15, Amount::Bytes, 20);
    let truth = total / 40;
    for one in &top {
        let Bounds { count, error } = one.requests;
        assert!((count - error..=count).contains(&truth), "{one:?}");
        assert!(error > 0 && error <= total * 4 / 1_000, "{one:?} {total}");
    }
    assert_eq!(top.len(), 20);
}

#[test]
fn client_that_leaves_a_sketch_keeps_its_bound() {
    let talkers = start(1);
    record(&talkers, 0, 1, Use { bytes: 5, permits: 0 });
    for number in 2..3 * u32::try_from(SLOTS).expect("a number") {
        (0..3).for_each(|_| record(&talkers, 0, number, Use { bytes: 1, permits: 1 }));
    }
    (0..100).for_each(|_| record(&talkers, 0, 1, Use::default()));
    let top = talkers.top(at(0), 15, Amount::Requests, 1);
    let Bounds { count, error } = top[0].bytes;
    assert!(top[0].client == client(1) && (count - error..=count).contains(&5), "{top:?}");
}
