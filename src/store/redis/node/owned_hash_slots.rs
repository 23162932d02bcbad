//! Which hash slots a node has, as far as is known; and how it is told that this may be out of date.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::super::hash_slots::{HASH_SLOTS, hash_slot_of};
use crate::limit::{ClientId, Limiter};

/// The slots of a node.
#[derive(Debug)]
pub(crate) struct OwnedHashSlots {
    /// All, if there is none.
    set: Mutex<Option<Box<[bool]>>>,
    /// Changes whenever it gets new ones.
    additions: watch::Sender<()>,
    /// Notified when the slots of all nodes are to be looked at again.
    refresh_requests: Arc<Notify>,
}

impl OwnedHashSlots {
    /// Those of a Redis that is alone.
    pub(crate) fn all() -> Self {
        Self { set: Mutex::default(), additions: watch::Sender::new(()), refresh_requests: Arc::default() }
    }

    /// Those of a node of a cluster: none yet.
    pub(crate) fn none(refresh_requests: Arc<Notify>) -> Self {
        Self { set: Mutex::new(Some(no_slots())), additions: watch::Sender::new(()), refresh_requests }
    }

    /// From now on it has these, by their numbers. Returns whether it has got new ones.
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

    /// From now on it has this one too.
    pub(crate) fn add(&self, slot: u16) {
        if !self.replace(slot, true) {
            self.additions.send_replace(());
        }
    }

    /// From now on it has this one no more.
    pub(crate) fn remove(&self, slot: u16) {
        self.replace(slot, false);
    }

    /// Returns what was there before.
    fn replace(&self, slot: u16, has: bool) -> bool {
        let mut set = self.set.lock();
        let known = set.as_mut().and_then(|set| set.get_mut(usize::from(slot)));
        known.is_none_or(|known| std::mem::replace(known, has))
    }

    /// Is the bucket of this client in one of them?
    pub(crate) fn has(&self, limiter: &Limiter, client: Option<&ClientId>) -> bool {
        self.set.lock().as_ref().is_none_or(|set| set[usize::from(hash_slot_of(limiter, client))])
    }

    /// Changes whenever there are new ones.
    pub(crate) fn additions(&self) -> watch::Receiver<()> {
        self.additions.subscribe()
    }

    /// Has it none at all?
    pub(crate) fn is_empty(&self) -> bool {
        self.set.lock().as_ref().is_some_and(|set| !set.contains(&true))
    }

    /// Returns when there are some.
    pub(crate) async fn wait_until_any(&self) {
        // Fails only without a sender, which is in `self`.
        _ = self.additions().wait_for(|()| !self.is_empty()).await;
    }

    /// Something does not fit.
    pub(crate) fn request_refresh(&self) {
        self.refresh_requests.notify_one();
    }
}

/// A set of none.
pub(crate) fn no_slots() -> Box<[bool]> {
    vec![false; usize::from(HASH_SLOTS)].into_boxed_slice()
}
