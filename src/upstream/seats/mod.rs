//! How many connections to one endpoint may be in use, which client uses them, and who waits for one.
//!
//! A client takes another seat only while it holds fewer than are free. One client alone can hold half of them, two a
//! third each, and so on: a client that holds none finds one free until there are as many greedy clients as seats. Within
//! that, waiting requests are served in the order of their arrival. The queue is shared by the same rule.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Failure;
use super::settings::UpstreamSettings;

/// Who uses a connection: an address, or an IPv6 network. Requests of no known client (a trusted proxy
/// that names none) are not held to a share.
pub(crate) type Client = Option<IpNet>;

/// The seats of one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Seats(Arc<SeatCounts>);

#[derive(Debug)]
struct SeatCounts {
    taken: Mutex<Taken>,
    queue: usize,
    queue_timeout: Duration,
}

/// Invariant: while the lock is free, no waiting request could take a seat.
#[derive(Debug)]
struct Taken {
    free: usize,
    /// The seats of each client that holds any.
    held: HashMap<IpNet, usize>,
    /// In the order of their tickets.
    queue: VecDeque<Queued>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Queued {
    ticket: u64,
    client: Client,
    seat: oneshot::Sender<Seat>,
}

/// The right to use one connection. On drop, it goes to the first in the queue who may have it.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Seats,
    client: Client,
}

/// A place in the queue, given up on drop.
struct QueuedRequest<'s> {
    seats: &'s Seats,
    ticket: u64,
    seat: oneshot::Receiver<Seat>,
}

// === impl Seats ===

impl Seats {
    pub(crate) fn new(settings: &UpstreamSettings) -> Self {
        let taken =
            Taken { free: settings.max_connections, held: HashMap::new(), queue: VecDeque::new(), next_ticket: 0 };
        Self(Arc::new(SeatCounts {
            taken: Mutex::new(taken),
            queue: settings.queue,
            queue_timeout: settings.queue_timeout,
        }))
    }

    /// A seat, if one is free and the client's share lets it have one more.
    pub(crate) fn try_take(&self, client: Client) -> Option<Seat> {
        self.0.taken.lock().try_take(client).then(|| self.seat(client))
    }

    /// Waits for a seat. Dropping the future leaves the queue.
    pub(crate) async fn take(&self, client: Client) -> Result<Seat, Failure> {
        let mut place = match self.try_take(client) {
            Some(seat) => return Ok(seat),
            None => self.queue(client).ok_or(Failure::QueueFull)?,
        };
        let seat = timeout(self.0.queue_timeout, &mut place.seat).await;
        seat.ok().and_then(Result::ok).ok_or(Failure::QueueTimedOut)
    }

    /// How many more connections are open than may be, where so many are idle.
    pub(crate) fn excess(&self, idle: usize) -> usize {
        idle.saturating_sub(self.0.taken.lock().free)
    }

    fn queue(&self, client: Client) -> Option<QueuedRequest<'_>> {
        let (sender, seat) = oneshot::channel();
        let ticket = self.0.taken.lock().enqueue(client, sender, self.0.queue)?;
        Some(QueuedRequest { seats: self, ticket, seat })
    }

    fn seat(&self, client: Client) -> Seat {
        Seat { seats: self.clone(), client }
    }

    fn release(&self, client: Client) {
        let mut next = {
            let mut taken = self.0.taken.lock();
            taken.put_back(client);
            taken.next()
        };
        // Without the lock: the seat of one who has just left comes back at once.
        while let Some(Queued { client, seat, .. }) = next {
            _ = seat.send(self.seat(client));
            next = self.0.taken.lock().next();
        }
    }
}

// === impl Taken ===

impl Taken {
    /// Takes one, if the client may have it.
    fn try_take(&mut self, client: Client) -> bool {
        if self.free == 0 {
            return false;
        }
        if let Some(client) = client {
            match self.held.entry(client) {
                Entry::Vacant(entry) => _ = entry.insert(1),
                Entry::Occupied(held) if *held.get() >= self.free => return false,
                Entry::Occupied(mut held) => *held.get_mut() += 1,
            }
        }
        self.free -= 1;
        true
    }

    fn put_back(&mut self, client: Client) {
        self.free += 1;
        if let Some(client) = client
            && let Entry::Occupied(mut held) = self.held.entry(client)
        {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }

    /// The first in the queue who may have a seat, which is taken for it.
    fn next(&mut self) -> Option<Queued> {
        let position = (0..self.queue.len()).find(|position| self.try_take(self.queue[*position].client))?;
        self.queue.remove(position)
    }

    /// Puts a client at the end of the queue, which so many may wait in; returns its ticket.
    fn enqueue(&mut self, client: Client, seat: oneshot::Sender<Seat>, size: usize) -> Option<u64> {
        let free = size.saturating_sub(self.queue.len());
        let own = client.map_or(0, |_| self.queue.iter().filter(|queued| queued.client == client).count());
        if free == 0 || (own > 0 && own >= free) {
            return None;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.queue.push_back(Queued { ticket, client, seat });
        Some(ticket)
    }

    fn leave(&mut self, ticket: u64) {
        if let Ok(position) = self.queue.binary_search_by_key(&ticket, |queued| queued.ticket) {
            self.queue.remove(position);
        }
    }
}

// === impl Seat ===

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.release(self.client);
    }
}

// === impl QueuedRequest ===

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        self.seats.0.taken.lock().leave(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(max_connections: usize, queue: usize) -> Seats {
        let settings = UpstreamSettings::new("api".into(), Vec::new());
        Seats::new(&UpstreamSettings { max_connections, queue, ..settings })
    }

    fn client(number: usize) -> Client {
        Some(format!("192.0.2.{number}/32").parse().unwrap())
    }

    /// All that a client gets without waiting.
    fn all(seats: &Seats, client: Client) -> Vec<Seat> {
        std::iter::from_fn(|| seats.try_take(client)).collect()
    }

    #[test]
    fn each_greedy_client_has_as_many_as_it_leaves_to_others() {
        for (size, clients, each) in [(1, 1, 1), (2, 1, 1), (3, 1, 2), (256, 1, 128), (256, 3, 64), (256, 15, 16)] {
            let seats = seats(size, 0);
            let mut held: Vec<_> = (0..clients).map(|_| Vec::new()).collect();
            for _ in 0..size {
                held.iter_mut().enumerate().for_each(|(number, held)| held.extend(seats.try_take(client(number))));
            }
            assert!(held.iter().all(|held| held.len().abs_diff(each) <= 1), "{size} for {clients}: {}", held[0].len());
            let left = seats.0.taken.lock().free;
            assert!(size == 1 || left + 1 >= each, "{size} for {clients}: {left}");
        }
    }

    #[test]
    fn who_comes_late_finds_a_seat_and_what_is_nobodys_has_no_share() {
        let seats = seats(64, 0);
        let greedy = all(&seats, client(1));
        let later = all(&seats, client(2));
        assert_eq!((greedy.len(), later.len()), (32, 16));
        assert_eq!(all(&seats, None).len(), 16);
        drop((greedy, later));
        assert_eq!(seats.0.taken.lock().free, 64);
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

    #[test]
    fn a_seat_goes_to_the_first_who_may_have_it() {
        let seats = seats(4, 8);
        let mut greedy = all(&seats, client(1));
        let mut others: Vec<_> = (2..4).map(|number| seats.try_take(client(number)).unwrap()).collect();
        assert_eq!(greedy.len(), 2);
        let mut places: Vec<_> = [1, 4, 4].map(|number| seats.queue(client(number)).unwrap()).into();
        others.pop(); // one is free, and the greedy client still holds two
        assert!(places[0].seat.try_recv().is_err());
        let four = places[1].seat.try_recv().unwrap();
        assert!(places[2].seat.try_recv().is_err());
        greedy.clear();
        assert!(places[0].seat.try_recv().is_ok() && places[2].seat.try_recv().is_ok());
        drop(four);
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
}
