//! The queue of requests that wait for a connection to an endpoint. The client that holds the fewest connections is
//! first; among several such clients, the one that has waited longest.
//!
//! Every operation takes O(log n) steps for n waiting requests.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::share::{Client, Share};

/// The waiting requests. `T` passes a connection to a request.
#[derive(Debug)]
pub(super) struct SlotQueue<T> {
    max: usize,
    share: Share,
    len: usize,
    next_position: u64,
    clients: HashMap<Client, ClientQueue<T>>,
    /// The waiting clients, by rank.
    order: BTreeMap<Rank, Client>,
}

/// The number of connections that a client holds, and the position of its first waiting request. Ranks are unique,
/// because positions are.
type Rank = (usize, u64);

/// The waiting requests of one client. Never empty.
#[derive(Debug)]
struct ClientQueue<T> {
    rank: Rank,
    requests: BTreeMap<u64, T>,
}

impl<T> SlotQueue<T> {
    /// Creates a queue of at most `max` requests.
    pub(super) fn new(max: usize) -> Self {
        let (clients, order) = (HashMap::new(), BTreeMap::new());
        Self { max, share: Share::new(max), len: 0, next_position: 0, clients, order }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns `true` if no client can add a request.
    pub(super) fn is_full(&self) -> bool {
        self.len >= self.max
    }

    /// Adds a request of a client that holds `held` connections, and returns its position. Returns `None` if the queue
    /// is full, or if the client has used up its share of the queue. Unknown clients have no share.
    pub(super) fn push(&mut self, client: Client, held: usize, request: T) -> Option<u64> {
        let own = client.and_then(|_| self.clients.get(&client)).map_or(0, |queue| queue.requests.len());
        if !self.share.allows(own, self.max - self.len) {
            return None;
        }
        let position = self.next_position;
        self.next_position += 1;
        self.len += 1;
        let rank = (held, position);
        let queue = self.clients.entry(client).or_insert_with(|| ClientQueue { rank, requests: BTreeMap::new() });
        queue.requests.insert(position, request);
        self.order.insert(queue.rank, client);
        Some(position)
    }

    /// Removes a request of this client, if it is still waiting.
    pub(super) fn remove(&mut self, client: Client, position: u64) {
        let Some(queue) = self.clients.get_mut(&client) else { return };
        if queue.requests.remove(&position).is_some() {
            self.len -= 1;
            let held = queue.rank.0;
            self.set_held(client, held);
        }
    }

    /// Returns the client that gets the next connection, and how many connections it holds.
    pub(super) fn first(&self) -> Option<(Client, usize)> {
        self.order.first_key_value().map(|((held, _), client)| (*client, *held))
    }

    /// Removes the first request of this client.
    pub(super) fn pop(&mut self, client: Client) -> Option<T> {
        let queue = self.clients.get_mut(&client)?;
        let (_, request) = queue.requests.pop_first()?;
        self.len -= 1;
        let held = queue.rank.0;
        self.set_held(client, held);
        Some(request)
    }

    /// Updates the rank of a client that now holds `held` connections, if it has waiting requests.
    pub(super) fn set_held(&mut self, client: Client, held: usize) {
        let Some(queue) = self.clients.get_mut(&client) else { return };
        self.order.remove(&queue.rank);
        match queue.requests.first_key_value() {
            Some((first, _)) => {
                queue.rank = (held, *first);
                self.order.insert(queue.rank, client);
            }
            None => _ = self.clients.remove(&client),
        }
    }
}
