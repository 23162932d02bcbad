//! Connection slots of an endpoint: limits the connections in use, shares them fairly, and queues requests.
//!
//! Clients share the slots by the rule of [`Share`], which reserves some for clients without a slot. A slot that
//! becomes free goes to the waiting client that holds the fewest slots ([`SlotQueue`]).

mod queue;
mod share;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::queue::SlotQueue;
pub(crate) use self::share::Client;
use self::share::Share;
use super::UpstreamError;
use super::settings::UpstreamSettings;
use super::target::TargetState;

/// The connection slots of one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamSlots(Arc<SharedSlots>);

#[derive(Debug)]
struct SharedSlots {
    usage: Mutex<SlotUsage>,
    queue_timeout: Duration,
    total: usize,
    target: Arc<TargetState>,
}

/// The use of the slots.
///
/// Invariant: while the lock is free, no waiting request could take a slot.
#[derive(Debug)]
struct SlotUsage {
    free: usize,
    share: Share,
    /// The number of slots that each client holds, if any.
    held: HashMap<IpNet, usize>,
    queue: SlotQueue<oneshot::Sender<UpstreamSlot>>,
}

/// The right to use one upstream connection. On drop, goes to the first waiting client, if its share allows that.
#[derive(Debug)]
pub(crate) struct UpstreamSlot {
    slots: UpstreamSlots,
    client: Client,
}

/// A waiting request. On drop, leaves the queue.
struct QueuedRequest<'s> {
    slots: &'s UpstreamSlots,
    client: Client,
    position: u64,
    slot: oneshot::Receiver<UpstreamSlot>,
}

// === impl UpstreamSlots ===

impl UpstreamSlots {
    pub(crate) fn new(settings: &UpstreamSettings, target: Arc<TargetState>) -> Self {
        let free = settings.max_connections;
        let (share, queue) = (Share::new(free), SlotQueue::new(settings.queue));
        let usage = Mutex::new(SlotUsage { free, share, held: HashMap::new(), queue });
        Self(Arc::new(SharedSlots { usage, queue_timeout: settings.queue_timeout, total: free, target }))
    }

    /// Returns the number of slots in use.
    pub(crate) fn in_use(&self) -> usize {
        self.0.total.saturating_sub(self.0.usage.lock().free)
    }

    /// Takes a slot, if one is free and the client's share allows it.
    pub(crate) fn try_acquire(&self, client: Client) -> Option<UpstreamSlot> {
        self.0.usage.lock().try_take(client).then(|| self.slot(client))
    }

    /// Waits for a slot. Dropping the future leaves the queue.
    pub(crate) async fn acquire(&self, client: Client) -> Result<UpstreamSlot, UpstreamError> {
        let mut queued = match self.try_acquire(client) {
            Some(slot) => return Ok(slot),
            None => self.enqueue(client)?,
        };
        let slot = timeout(self.0.queue_timeout, &mut queued.slot).await;
        // A free slot that the client may not take is reserved for clients that hold none.
        let timed_out = || UpstreamError::QueueTimedOut { by_client: self.0.usage.lock().free > 0 };
        slot.ok().and_then(Result::ok).ok_or_else(timed_out)
    }

    /// Returns the number of open connections above the limit, if `idle` connections are idle.
    pub(crate) fn excess(&self, idle: usize) -> usize {
        idle.saturating_sub(self.0.usage.lock().free)
    }

    fn enqueue(&self, client: Client) -> Result<QueuedRequest<'_>, UpstreamError> {
        let (sender, slot) = oneshot::channel();
        let mut usage = self.0.usage.lock();
        let held = usage.held(client);
        let position = usage.queue.push(client, held, sender);
        let position = position.ok_or_else(|| UpstreamError::QueueFull { by_client: !usage.queue.is_full() })?;
        Ok(QueuedRequest { slots: self, client, position, slot })
    }

    fn slot(&self, client: Client) -> UpstreamSlot {
        self.0.target.request_started();
        UpstreamSlot { slots: self.clone(), client }
    }

    fn release(&self, client: Client) {
        let mut next = {
            let mut usage = self.0.usage.lock();
            usage.put_back(client);
            usage.next()
        };
        // The lock is free here: if the request has just left the queue, dropping its slot calls `release` again.
        while let Some((client, slot)) = next {
            _ = slot.send(self.slot(client));
            next = self.0.usage.lock().next();
        }
    }
}

// === impl SlotUsage ===

impl SlotUsage {
    fn held(&self, client: Client) -> usize {
        client.and_then(|client| self.held.get(&client)).map_or(0, |held| *held)
    }

    /// Takes a slot for the client, if one is free and the client's share allows it.
    fn try_take(&mut self, client: Client) -> bool {
        if self.free == 0 {
            return false;
        }
        if let Some(client) = client {
            match self.held.get_mut(&client) {
                None => _ = self.held.insert(client, 1),
                Some(held) if !self.share.allows(*held, self.free) => return false,
                Some(held) => *held += 1,
            }
        }
        self.free -= 1;
        self.held_changed(client);
        true
    }

    fn put_back(&mut self, client: Client) {
        self.free += 1;
        if let Some(client) = client
            && let Some(held) = self.held.get_mut(&client)
        {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&client);
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

    /// Takes a slot for the first waiting client, if its share allows that. Otherwise no other client's share allows it
    /// either: all others hold at least as many slots.
    fn next(&mut self) -> Option<(Client, oneshot::Sender<UpstreamSlot>)> {
        let (client, held) = self.queue.first()?;
        if !self.share.allows(held, self.free) {
            return None;
        }
        let slot = self.queue.pop(client)?;
        self.try_take(client);
        Some((client, slot))
    }
}

// === impl UpstreamSlot ===

impl Drop for UpstreamSlot {
    fn drop(&mut self) {
        self.slots.0.target.request_ended();
        self.slots.release(self.client);
    }
}

// === impl QueuedRequest ===

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        self.slots.0.usage.lock().queue.remove(self.client, self.position);
    }
}
