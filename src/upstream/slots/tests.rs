//! UpstreamSlots: how clients share them, and in which order waiting clients get them.

use proptest::prelude::*;

use super::*;

fn seats(max_connections: usize, queue: usize) -> UpstreamSlots {
    let settings = UpstreamSettings::new("api".into(), Vec::new());
    UpstreamSlots::new(&UpstreamSettings { max_connections, queue, ..settings })
}

fn client(number: usize) -> Client {
    Some(format!("192.0.2.{number}/32").parse().unwrap())
}

/// All that a client gets without waiting.
fn all(seats: &UpstreamSlots, client: Client) -> Vec<UpstreamSlot> {
    std::iter::from_fn(|| seats.try_take(client)).collect()
}

#[test]
fn each_greedy_client_has_as_many_as_it_leaves_to_others() {
    for (size, clients, each) in [(1, 1, 1), (2, 1, 1), (3, 1, 2), (256, 1, 128), (1024, 3, 256), (1024, 5, 170)] {
        let seats = seats(size, 0);
        let mut held: Vec<_> = (0..clients).map(|_| Vec::new()).collect();
        for _ in 0..size {
            held.iter_mut().enumerate().for_each(|(number, held)| held.extend(seats.try_take(client(number))));
        }
        assert!(held.iter().all(|held| held.len().abs_diff(each) <= 1), "{size} for {clients}: {}", held[0].len());
        let left = seats.0.taken.lock().free;
        assert!(size == 1 || left + 1 >= each.min(128), "{size} for {clients}: {left}");
    }
}

#[test]
fn who_comes_late_finds_a_seat_and_what_is_nobodys_has_no_share() {
    let seats = seats(512, 0);
    let greedy = all(&seats, client(1));
    let later = all(&seats, client(2));
    assert_eq!((greedy.len(), later.len()), (256, 128));
    assert_eq!(all(&seats, None).len(), 128);
    drop((greedy, later));
    assert_eq!(seats.0.taken.lock().free, 512);
    assert!(seats.0.taken.lock().held.is_empty());
}

#[test]
fn the_queue_is_shared_alike() {
    let seats = seats(1, 8);
    let _held = all(&seats, client(1));
    let waiting: Vec<_> = std::iter::from_fn(|| seats.queue(client(1))).collect();
    assert_eq!(waiting.len(), 4);
    assert!(seats.queue(client(2)).is_some());
    drop(waiting);
    assert!(seats.0.taken.lock().queue.is_empty());
}

/// Regression test: ten clients that came one after the other took all seats.
#[test]
fn hundred_greedy_clients_leave_a_seat_to_others() {
    let seats = seats(256, 0);
    let greedy: Vec<_> = (0..100).map(|number| all(&seats, client(number))).collect();
    assert!(greedy.iter().all(|held| !held.is_empty()));
    assert_eq!(greedy[0].len(), 128);
    assert!(seats.try_take(client(100)).is_some());
}

#[test]
fn freed_seat_goes_to_the_client_that_holds_fewest() {
    let seats = seats(8, 16);
    let mut greedy = all(&seats, client(1));
    assert_eq!(greedy.len(), 4);
    let _others: Vec<_> = (2..6).map(|number| seats.try_take(client(number)).unwrap()).collect();
    let mut waiting: Vec<_> = [1, 2, 7, 8].map(|number| seats.queue(client(number)).unwrap()).into();
    let mut served = || waiting.iter_mut().map(|place| place.seat.try_recv().ok()).collect::<Vec<_>>();
    for turn in [2, 3] {
        greedy.pop();
        let served = served();
        assert!(served[turn].is_some() && served.iter().flatten().count() == 1, "{served:?}");
        std::mem::forget(served); // it keeps its seat
    }
    // The others hold a seat, and what is free is reserved.
    greedy.pop();
    assert!(served().iter().all(Option::is_none));
}

/// Regression test: each of these requests looked at all that waited before it.
#[test]
fn large_queue_serves_each_client_in_order() {
    const CLIENTS: usize = 50_000;
    let seats = seats(1, CLIENTS * 2);
    let of = |number: usize| {
        let address = std::net::Ipv4Addr::from_bits(u32::try_from(number).unwrap());
        Some(IpNet::from(std::net::IpAddr::from(address)))
    };
    let mut held = seats.try_take(None).unwrap();
    let waiting: Vec<_> = (0..CLIENTS * 3 / 2).map(|place| seats.queue(of(place % CLIENTS)).unwrap()).collect();
    let mut waiting: Vec<_> = waiting.into_iter().enumerate().filter(|(place, _)| place % 3 > 0).collect();
    for (place, request) in &mut waiting {
        drop(held);
        held = request.seat.try_recv().unwrap_or_else(|_| panic!("request {place} is not served"));
    }
    drop((held, waiting));
    assert!(seats.0.taken.lock().queue.is_empty());
}

/// A request that waits, and its client.
struct Waiting<'s> {
    client: Client,
    request: QueuedRequest<'s>,
}

proptest! {
    /// At each step as many seats are taken as may be, and they go to the clients that hold the fewest.
    #[test]
    fn waiting_clients_are_served_by_seats_then_arrival(
        size in 1..24_usize,
        steps in prop::collection::vec((0..6_usize, any::<prop::sample::Index>(), 0..3_u8), 1..200),
    ) {
        let seats = seats(size, 64);
        let mut held: Vec<(Client, UpstreamSlot)> = Vec::new();
        let mut waiting: Vec<Waiting<'_>> = Vec::new();
        let of = |number: usize| if number == 5 { None } else { client(number) };
        for (number, index, action) in steps {
            let client = of(number);
            match action {
                0 if !held.is_empty() => drop(held.swap_remove(index.index(held.len()))),
                1 if !waiting.is_empty() => drop(waiting.remove(index.index(waiting.len()))),
                _ => match seats.try_take(client) {
                    Some(seat) => held.push((client, seat)),
                    None => waiting.extend(seats.queue(client).map(|request| Waiting { client, request })),
                },
            }
            let counts = |held: &[(Client, UpstreamSlot)], client: Client| {
                held.iter().filter(|(of, _)| client.is_some() && *of == client).count()
            };
            // What the rule gives, one seat after the other.
            let mut free = size - held.len();
            loop {
                let next = (0..waiting.len()).min_by_key(|place| counts(&held, waiting[*place].client));
                let Some(next) = next.filter(|next| seats.0.taken.lock().share.allows(counts(&held, waiting[*next].client), free)) else { break };
                let Waiting { client, mut request } = waiting.remove(next);
                let seat = request.seat.try_recv();
                prop_assert!(seat.is_ok(), "{client:?} is not served");
                held.extend(seat.ok().map(|seat| (client, seat)));
                free -= 1;
            }
            for Waiting { client, request } in &mut waiting {
                prop_assert!(request.seat.try_recv().is_err(), "{client:?} is served");
            }
            prop_assert_eq!(seats.0.taken.lock().free, free);
        }
        drop((held, waiting));
        let taken = seats.0.taken.lock();
        prop_assert!(taken.free == size && taken.held.is_empty() && taken.queue.is_empty());
    }
}

#[test]
fn who_has_left_is_given_nothing() {
    let seats = seats(1, 8);
    let held = seats.try_take(client(1));
    let (first, mut second) = (seats.queue(client(1)).unwrap(), seats.queue(client(2)).unwrap());
    drop(first);
    drop(held);
    assert!(second.seat.try_recv().is_ok());
    // A seat that was given to a place and not taken out of it is not lost.
    let held = seats.try_take(client(1));
    let third = seats.queue(client(3)).unwrap();
    drop(held);
    drop(third);
    assert!(seats.try_take(client(1)).is_some());
}
