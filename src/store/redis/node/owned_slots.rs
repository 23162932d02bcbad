//! Which hash slots a node has, as far as is known; and how it is told that this may be out of date.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::super::slots::{HASH_SLOTS, slot_of};
use crate::limit::{ClientId, Limiter};

/// The slots of a node.
#[derive(Debug)]
pub(crate) struct OwnedSlots {
    /// All, if there is none.
    set: Mutex<Option<Box<[bool]>>>,
    /// Changes whenever it gets new ones.
    gained: watch::Sender<()>,
    /// Notified when the slots of all nodes are to be looked at again.
    doubts: Arc<Notify>,
}

impl OwnedSlots {
    /// Those of a Redis that is alone.
    pub(crate) fn all() -> Self {
        Self { set: Mutex::default(), gained: watch::Sender::new(()), doubts: Arc::default() }
    }

    /// Those of a node of a cluster: none yet.
    pub(crate) fn none(doubts: Arc<Notify>) -> Self {
        Self { set: Mutex::new(Some(no_slots())), gained: watch::Sender::new(()), doubts }
    }

    /// From now on it has these, by their numbers. Returns whether it has got new ones.
    pub(crate) fn set(&self, new: Box<[bool]>) -> bool {
        let mut set = self.set.lock();
        let has_more = set.as_ref().is_none_or(|old| new.iter().zip(old).any(|(new, old)| *new && !old));
        *set = Some(new);
        drop(set);
        if has_more {
            self.gained.send_replace(());
        }
        has_more
    }

    /// From now on it has this one too.
    pub(crate) fn gain(&self, slot: u16) {
        if !self.put(slot, true) {
            self.gained.send_replace(());
        }
    }

    /// From now on it has this one no more.
    pub(crate) fn lose(&self, slot: u16) {
        self.put(slot, false);
    }

    /// Returns what was there before.
    fn put(&self, slot: u16, has: bool) -> bool {
        let mut set = self.set.lock();
        let known = set.as_mut().and_then(|set| set.get_mut(usize::from(slot)));
        known.is_none_or(|known| std::mem::replace(known, has))
    }

    /// Is the bucket of this client in one of them?
    pub(crate) fn has(&self, limiter: &Limiter, client: Option<&ClientId>) -> bool {
        self.set.lock().as_ref().is_none_or(|set| set[usize::from(slot_of(limiter, client))])
    }

    /// Changes whenever there are new ones.
    pub(crate) fn gained(&self) -> watch::Receiver<()> {
        self.gained.subscribe()
    }

    /// Has it none at all?
    pub(crate) fn are_none(&self) -> bool {
        self.set.lock().as_ref().is_some_and(|set| !set.contains(&true))
    }

    /// Returns when there are some.
    pub(crate) async fn are_some(&self) {
        // Fails only without a sender, which is in `self`.
        _ = self.gained().wait_for(|()| !self.are_none()).await;
    }

    /// Something does not fit.
    pub(crate) fn doubt(&self) {
        self.doubts.notify_one();
    }
}

/// A set of none.
pub(crate) fn no_slots() -> Box<[bool]> {
    vec![false; usize::from(HASH_SLOTS)].into_boxed_slice()
}
