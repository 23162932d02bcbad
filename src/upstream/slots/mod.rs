//! How many connections to one endpoint may be in use, which client uses them, and who waits for one.
//!
//! Clients share the seats by the rule of [`Share`], which keeps some for clients that hold none. A seat that becomes free
//! goes to the waiting client that holds the fewest ([`SlotQueue`]).

mod queue;
mod share;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::queue::SlotQueue;
pub(crate) use self::share::Client;
use self::share::Share;
use super::UpstreamError;
use super::settings::UpstreamSettings;

/// The seats of one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamSlots(Arc<SharedSlots>);

#[derive(Debug)]
struct SharedSlots {
    taken: Mutex<SlotUsage>,
    queue_timeout: Duration,
}

/// Invariant: while the lock is free, no waiting request could take a seat.
#[derive(Debug)]
struct SlotUsage {
    free: usize,
    share: Share,
    /// The seats of each client that holds any.
    held: HashMap<IpNet, usize>,
    queue: SlotQueue<oneshot::Sender<UpstreamSlot>>,
}

/// The right to use one connection. On drop, it goes to the first waiting client, if its share allows that.
#[derive(Debug)]
pub(crate) struct UpstreamSlot {
    seats: UpstreamSlots,
    client: Client,
}

/// A place in the queue, given up on drop.
struct QueuedRequest<'s> {
    seats: &'s UpstreamSlots,
    client: Client,
    position: u64,
    seat: oneshot::Receiver<UpstreamSlot>,
}

// === impl UpstreamSlots ===

impl UpstreamSlots {
    pub(crate) fn new(settings: &UpstreamSettings) -> Self {
        let free = settings.max_connections;
        let (share, queue) = (Share::new(free), SlotQueue::new(settings.queue));
        let taken = Mutex::new(SlotUsage { free, share, held: HashMap::new(), queue });
        Self(Arc::new(SharedSlots { taken, queue_timeout: settings.queue_timeout }))
    }

    /// A seat, if one is free and the client's share lets it have one more.
    pub(crate) fn try_take(&self, client: Client) -> Option<UpstreamSlot> {
        self.0.taken.lock().try_take(client).then(|| self.seat(client))
    }

    /// Waits for a seat. Dropping the future leaves the queue.
    pub(crate) async fn take(&self, client: Client) -> Result<UpstreamSlot, UpstreamError> {
        let mut place = match self.try_take(client) {
            Some(seat) => return Ok(seat),
            None => self.queue(client).ok_or(UpstreamError::QueueFull)?,
        };
        let seat = timeout(self.0.queue_timeout, &mut place.seat).await;
        seat.ok().and_then(Result::ok).ok_or(UpstreamError::QueueTimedOut)
    }

    /// How many more connections are open than may be, where so many are idle.
    pub(crate) fn excess(&self, idle: usize) -> usize {
        idle.saturating_sub(self.0.taken.lock().free)
    }

    fn queue(&self, client: Client) -> Option<QueuedRequest<'_>> {
        let (sender, seat) = oneshot::channel();
        let mut taken = self.0.taken.lock();
        let held = taken.held(client);
        let position = taken.queue.push(client, held, sender)?;
        Some(QueuedRequest { seats: self, client, position, seat })
    }

    fn seat(&self, client: Client) -> UpstreamSlot {
        UpstreamSlot { seats: self.clone(), client }
    }

    fn release(&self, client: Client) {
        let mut next = {
            let mut taken = self.0.taken.lock();
            taken.put_back(client);
            taken.next()
        };
        // Without the lock: if the request has just left the queue, its seat is released here.
        while let Some((client, seat)) = next {
            _ = seat.send(self.seat(client));
            next = self.0.taken.lock().next();
        }
    }
}

// === impl SlotUsage ===

impl SlotUsage {
    fn held(&self, client: Client) -> usize {
        client.and_then(|client| self.held.get(&client)).map_or(0, |held| *held)
    }

    /// Takes one, if the client may have it.
    fn try_take(&mut self, client: Client) -> bool {
        if self.free == 0 {
            return false;
        }
        if let Some(client) = client {
            match self.held.entry(client) {
                Entry::Vacant(entry) => _ = entry.insert(1),
                Entry::Occupied(held) if !self.share.allows(*held.get(), self.free) => return false,
                Entry::Occupied(mut held) => *held.get_mut() += 1,
            }
        }
        self.free -= 1;
        self.held_changed(client);
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
        self.held_changed(client);
    }

    fn held_changed(&mut self, client: Client) {
        if !self.queue.is_empty() {
            let held = self.held(client);
            self.queue.set_held(client, held);
        }
    }

    /// Takes a seat for the first waiting client, if its share allows that. If it does not, that of no other client does:
    /// all hold as many seats or more.
    fn next(&mut self) -> Option<(Client, oneshot::Sender<UpstreamSlot>)> {
        let (client, held) = self.queue.first()?;
        if !self.share.allows(held, self.free) {
            return None;
        }
        let seat = self.queue.pop(client)?;
        self.try_take(client);
        Some((client, seat))
    }
}

// === impl UpstreamSlot ===

impl Drop for UpstreamSlot {
    fn drop(&mut self) {
        self.seats.release(self.client);
    }
}

// === impl QueuedRequest ===

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        self.seats.0.taken.lock().queue.remove(self.client, self.position);
    }
}
