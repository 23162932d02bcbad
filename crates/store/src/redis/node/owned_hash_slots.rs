//! The hash slots of a node, as last known, and requests to refresh them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::super::hash_slots::{HASH_SLOTS, hash_slot_of, hash_slot_of_key};
use tidegate_rules::charge::{ClientId, Limiter};

/// The hash slots of a node.
#[derive(Debug)]
pub(crate) struct OwnedHashSlots {
    /// `None` if the node has all hash slots.
    set: Mutex<Option<Box<[bool]>>>,
    /// Changes whenever the node gains hash slots.
    additions: watch::Sender<()>,
    /// Notified when the slot map of the cluster should be refreshed.
    refresh_requests: Arc<Notify>,
}

impl OwnedHashSlots {
    /// Creates the set of all hash slots, for a Redis without a cluster.
    pub(crate) fn all() -> Self {
        Self { set: Mutex::default(), additions: watch::Sender::new(()), refresh_requests: Arc::default() }
    }

    /// Creates an empty set, for a new node of a cluster.
    pub(crate) fn none(refresh_requests: Arc<Notify>) -> Self {
        Self { set: Mutex::new(Some(no_slots())), additions: watch::Sender::new(()), refresh_requests }
    }

    /// Replaces the hash slots. Returns `true` if the node gained some.
    pub(crate) fn set(&self, new: Box<[bool]>) -> bool {
        let mut set = self.set.lock();
        let has_more = set.as_ref().is_none_or(|old| new.iter().zip(old).any(|(new, old)| *new && !old));
        *set = Some(new);
        drop(set);
        if has_more {
            self.additions.send_replace(());
        }
        has_more
    }

    /// Adds a hash slot.
    pub(crate) fn add(&self, hash_slot: u16) {
        if !self.replace(hash_slot, true) {
            self.additions.send_replace(());
        }
    }

    pub(crate) fn remove(&self, hash_slot: u16) {
        self.replace(hash_slot, false);
    }

    /// Sets whether the node has a hash slot. Returns whether it had it before.
    fn replace(&self, hash_slot: u16, has: bool) -> bool {
        let mut set = self.set.lock();
        let owned = set.as_mut().and_then(|set| set.get_mut(usize::from(hash_slot)));
        owned.is_none_or(|owned| std::mem::replace(owned, has))
    }

    /// Returns `true` if the node has the hash slot of this client's bucket.
    pub(crate) fn has(&self, limiter: &Limiter, client: Option<&ClientId>) -> bool {
        self.set.lock().as_ref().is_none_or(|set| set[usize::from(hash_slot_of(limiter, client))])
    }

    /// Returns this hash tag, or with a number at its end if the node does not have its hash slot. Returns `None` if no
    /// tag was found.
    pub(crate) fn own_tag(&self, tag: &str) -> Option<String> {
        let set = self.set.lock();
        let Some(set) = set.as_ref() else { return Some(tag.to_owned()) };
        let tags = (0..HASH_SLOTS).map(|number| format!("{tag}:{number}"));
        tags.into_iter().find(|tag| set[usize::from(hash_slot_of_key(tag))])
    }

    /// Returns a receiver that changes whenever the node gains hash slots.
    pub(crate) fn additions(&self) -> watch::Receiver<()> {
        self.additions.subscribe()
    }

    /// Returns `true` if the node has no hash slots.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.lock().as_ref().is_some_and(|set| !set.contains(&true))
    }

    /// Waits until the node has hash slots.
    pub(crate) async fn wait_until_any(&self) {
        // Fails only without a sender, but `self` has one.
        _ = self.additions().wait_for(|()| !self.is_empty()).await;
    }

    /// Requests a refresh of the slot map.
    pub(crate) fn request_refresh(&self) {
        self.refresh_requests.notify_one();
    }
}

/// Returns an empty set.
pub(crate) fn no_slots() -> Box<[bool]> {
    vec![false; usize::from(HASH_SLOTS)].into_boxed_slice()
}
