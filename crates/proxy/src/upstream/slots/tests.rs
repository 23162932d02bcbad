//! Tests how clients share slots, and in which order waiting clients get them.

use proptest::prelude::*;

use super::*;
use tidegate_metrics::Metrics;

fn slots(max_connections: usize, queue: usize) -> UpstreamSlots {
    let settings = UpstreamSettings::new("api".into(), Vec::new());
    UpstreamSlots::new(
        &UpstreamSettings { max_connections, queue, ..settings },
        TargetState::for_test(&Metrics::of_gateway(&[])),
    )
}

fn client(number: usize) -> Client {
    Some(format!("192.0.2.{number}/32").parse().unwrap())
}

/// Takes all slots that a client can get without waiting.
fn take_all(slots: &UpstreamSlots, client: Client) -> Vec<UpstreamSlot> {
    std::iter::from_fn(|| slots.try_acquire(client)).collect()
}

#[test]
fn greedy_clients_share_the_slots_evenly() {
    for (size, clients, each) in [(1, 1, 1), (2, 1, 1), (3, 1, 2), (256, 1, 128), (1024, 3, 256), (1024, 5, 170)] {
        let slots = slots(size, 0);
        let mut held: Vec<_> = (0..clients).map(|_| Vec::new()).collect();
        for _ in 0..size {
            held.iter_mut().enumerate().for_each(|(number, held)| held.extend(slots.try_acquire(client(number))));
        }
        assert!(held.iter().all(|held| held.len().abs_diff(each) <= 1), "{size} for {clients}: {}", held[0].len());
        let left = slots.0.usage.lock().free;
        assert!(size == 1 || left + 1 >= each.min(128), "{size} for {clients}: {left}");
    }
}

#[test]
fn slots_count_the_requests_in_flight() {
    let slots = slots(2, 0);
    let in_flight = || slots.0.target.in_flight();
    let held = take_all(&slots, None);
    assert_eq!((held.len(), in_flight()), (2, 2));
    drop(held);
    assert_eq!(in_flight(), 0);
}

#[test]
fn reserve_is_left_to_unknown_clients() {
    let slots = slots(512, 0);
    let greedy = take_all(&slots, client(1));
    let later = take_all(&slots, client(2));
    assert_eq!((greedy.len(), later.len()), (256, 128));
    assert_eq!(take_all(&slots, None).len(), 128);
    drop((greedy, later));
    assert_eq!(slots.0.usage.lock().free, 512);
    assert!(slots.0.usage.lock().held.is_empty());
}

#[test]
fn client_takes_at_most_half_of_the_queue() {
    let slots = slots(1, 8);
    let _held = take_all(&slots, client(1));
    let waiting: Vec<_> = std::iter::from_fn(|| slots.enqueue(client(1)).ok()).collect();
    assert_eq!(waiting.len(), 4);
    assert!(slots.enqueue(client(2)).is_ok());
    drop(waiting);
    assert!(slots.0.usage.lock().queue.is_empty());
}

/// Regression test: ten clients that came one after the other took all slots.
#[test]
fn hundred_greedy_clients_leave_a_slot_to_others() {
    let slots = slots(256, 0);
    let greedy: Vec<_> = (0..100).map(|number| take_all(&slots, client(number))).collect();
    assert!(greedy.iter().all(|held| !held.is_empty()));
    assert_eq!(greedy[0].len(), 128);
    assert!(slots.try_acquire(client(100)).is_some());
}

#[test]
fn freed_slot_goes_to_the_client_that_holds_fewest() {
    let slots = slots(8, 16);
    let mut greedy = take_all(&slots, client(1));
    assert_eq!(greedy.len(), 4);
    let _others: Vec<_> = (2..6).map(|number| slots.try_acquire(client(number)).unwrap()).collect();
    let mut waiting: Vec<_> = [1, 2, 7, 8].map(|number| slots.enqueue(client(number)).unwrap()).into();
    let mut served = || waiting.iter_mut().map(|queued| queued.slot.try_recv().ok()).collect::<Vec<_>>();
    for next in [2, 3] {
        greedy.pop();
        let served = served();
        assert!(served[next].is_some() && served.iter().flatten().count() == 1, "{served:?}");
        std::mem::forget(served); // the client keeps its slot
    }
    // The other clients hold a slot, and the free slots are reserved.
    greedy.pop();
    assert!(served().iter().all(Option::is_none));
}

/// Regression test: adding a request took time proportional to the length of the queue.
#[test]
fn large_queue_serves_each_client_in_order() {
    const CLIENTS: usize = 50_000;
    let slots = slots(1, CLIENTS * 2);
    let client = |number: usize| {
        let address = std::net::Ipv4Addr::from_bits(u32::try_from(number).unwrap());
        Some(IpNet::from(std::net::IpAddr::from(address)))
    };
    let mut held = slots.try_acquire(None).unwrap();
    let waiting: Vec<_> = (0..CLIENTS * 3 / 2).map(|place| slots.enqueue(client(place % CLIENTS)).unwrap()).collect();
    let mut waiting: Vec<_> = waiting.into_iter().enumerate().filter(|(place, _)| place % 3 > 0).collect();
    for (place, request) in &mut waiting {
        drop(held);
        held = request.slot.try_recv().unwrap_or_else(|_| panic!("request {place} is not served"));
    }
    drop((held, waiting));
    assert!(slots.0.usage.lock().queue.is_empty());
}

/// A request that waits, and its client.
struct Waiting<'s> {
    client: Client,
    request: QueuedRequest<'s>,
}

proptest! {
    /// At each step as many slots are taken as the rule allows, and they go to the clients that hold the fewest.
    #[test]
    fn waiting_clients_are_served_by_held_slots_then_arrival(
        size in 1..24_usize,
        steps in prop::collection::vec((0..6_usize, any::<prop::sample::Index>(), 0..3_u8), 1..200),
    ) {
        let slots = slots(size, 64);
        let mut held: Vec<(Client, UpstreamSlot)> = Vec::new();
        let mut waiting: Vec<Waiting<'_>> = Vec::new();
        let of = |number: usize| if number == 5 { None } else { client(number) };
        for (number, index, action) in steps {
            let client = of(number);
            match action {
                0 if !held.is_empty() => drop(held.swap_remove(index.index(held.len()))),
                1 if !waiting.is_empty() => drop(waiting.remove(index.index(waiting.len()))),
                _ => match slots.try_acquire(client) {
                    Some(slot) => held.push((client, slot)),
                    None => waiting.extend(slots.enqueue(client).map(|request| Waiting { client, request })),
                },
            }
            let counts = |held: &[(Client, UpstreamSlot)], client: Client| {
                held.iter().filter(|(of, _)| client.is_some() && *of == client).count()
            };
            // Applies the rule, one slot after the other.
            let mut free = size - held.len();
            loop {
                let next = (0..waiting.len()).min_by_key(|place| counts(&held, waiting[*place].client));
                let share = slots.0.usage.lock().share;
                let allowed = |next: &usize| share.allows(counts(&held, waiting[*next].client), free);
                let Some(next) = next.filter(allowed) else { break };
                let Waiting { client, mut request } = waiting.remove(next);
                let slot = request.slot.try_recv();
                prop_assert!(slot.is_ok(), "{client:?} is not served");
                held.extend(slot.ok().map(|slot| (client, slot)));
                free -= 1;
            }
            for Waiting { client, request } in &mut waiting {
                prop_assert!(request.slot.try_recv().is_err(), "{client:?} is served");
            }
            prop_assert_eq!(slots.0.usage.lock().free, free);
        }
        drop((held, waiting));
        let usage = slots.0.usage.lock();
        prop_assert!(usage.free == size && usage.held.is_empty() && usage.queue.is_empty());
    }
}

#[test]
fn request_that_left_the_queue_gets_no_slot() {
    let slots = slots(1, 8);
    let held = slots.try_acquire(client(1));
    let (first, mut second) = (slots.enqueue(client(1)).unwrap(), slots.enqueue(client(2)).unwrap());
    drop(first);
    drop(held);
    assert!(second.slot.try_recv().is_ok());
    // A slot is not lost if it was sent to a request that then leaves the queue.
    let held = slots.try_acquire(client(1));
    let third = slots.enqueue(client(3)).unwrap();
    drop(held);
    drop(third);
    assert!(slots.try_acquire(client(1)).is_some());
}
