//! This gateway's share of each limit: one of as many parts as gateways share the store.
//!
//! During a handover two gateways divide one share. The old one drains with a quarter of it, rounded down; the new one has
//! the rest until the old one has ended. Both have the buckets that were in use at the handover, so together they grant no
//! more than the share.

use std::collections::HashMap;
use std::sync::Arc;

use crate::limit::{Charge, Limiter, Quota};

/// The parameters of the shares, and the shares in use by the name of the limiter.
#[derive(Debug)]
pub(super) struct Shares {
    /// How many gateways share the store, this one included.
    known: u32,
    /// The fewest that are assumed.
    least: u32,
    /// How many gateways before this one still drain.
    #[cfg(feature = "gateway")]
    predecessors: u8,
    /// Whether this gateway drains, and another one has taken its place.
    #[cfg(feature = "gateway")]
    has_successor: bool,
    by_name: HashMap<String, Share>,
}

#[derive(Clone, Debug)]
struct Share {
    whole: Arc<Limiter>,
    part: Arc<Limiter>,
    /// Whether the share is less than a permit, as it can be for a gateway that drains.
    is_empty: bool,
}

impl Shares {
    pub(super) fn new(least: u32) -> Self {
        Self {
            known: 1,
            least: least.max(1),
            #[cfg(feature = "gateway")]
            predecessors: 0,
            #[cfg(feature = "gateway")]
            has_successor: false,
            by_name: HashMap::new(),
        }
    }

    /// How many gateways are known; at least one.
    pub(super) fn known(&self) -> u32 {
        self.known
    }

    /// How many gateways the shares are for.
    pub(super) fn gateways(&self) -> u32 {
        self.known.max(self.least)
    }

    /// Sets how many gateways are known; returns whether that is new.
    pub(super) fn set_known(&mut self, gateways: u32) -> bool {
        let before = std::mem::replace(&mut self.known, gateways.max(1));
        self.reset_if(before != self.known)
    }

    /// This gateway's share of a charge; `None` if that is less than a permit. A shadow, which must not reject a request, has
    /// one at least.
    pub(super) fn of(&mut self, charge: &Charge) -> Option<Charge> {
        let share = self.share(&charge.limiter);
        (charge.shadow || !share.is_empty).then(|| Charge { limiter: Arc::clone(&share.part), ..charge.clone() })
    }

    /// The limiter that this gateway decides by.
    pub(super) fn limiter(&mut self, whole: &Arc<Limiter>) -> Arc<Limiter> {
        Arc::clone(&self.share(whole).part)
    }

    fn share(&mut self, whole: &Arc<Limiter>) -> &Share {
        let is_current = self.by_name.get(&whole.name).is_some_and(|share| Arc::ptr_eq(&share.whole, whole));
        if !is_current {
            let (quota, is_empty) = self.quota(&whole.quota);
            let part = Arc::new(Limiter::new(whole.name.clone(), whole.mode, quota));
            self.by_name.insert(whole.name.clone(), Share { whole: Arc::clone(whole), part, is_empty });
        }
        &self.by_name[&whole.name]
    }

    /// The share of a quota, and whether that is less than a permit.
    #[cfg(feature = "gateway")]
    fn quota(&self, whole: &Quota) -> (Quota, bool) {
        let share = (0..self.predecessors).fold(whole.share(self.gateways()), |share, _| share.without_quarter());
        match self.has_successor {
            true => share.quarter().map_or((share.share(u32::MAX), true), |quarter| (quarter, false)),
            false => (share, false),
        }
    }

    #[cfg(not(feature = "gateway"))]
    fn quota(&self, whole: &Quota) -> (Quota, bool) {
        (whole.share(self.gateways()), false)
    }

    fn reset_if(&mut self, is_new: bool) -> bool {
        if is_new {
            self.by_name.clear();
        }
        is_new
    }
}

/// Handovers.
#[cfg(feature = "gateway")]
impl Shares {
    /// How many gateways divide this share with a successor: this one, and those before it that still drain.
    pub(super) fn predecessors_of_successor(&self) -> u8 {
        self.predecessors.saturating_add(1)
    }

    /// Sets how many gateways before this one still drain.
    pub(super) fn set_predecessors(&mut self, predecessors: u8) {
        let before = std::mem::replace(&mut self.predecessors, predecessors.min(MAX_PREDECESSORS));
        self.reset_if(before != self.predecessors);
    }

    /// Another gateway takes this one's place. A gateway that drains keeps its quarter when its predecessor ends,
    /// since its successor counts on that.
    pub(super) fn set_has_successor(&mut self) {
        let before = std::mem::replace(&mut self.has_successor, true);
        self.reset_if(!before);
    }

    /// No gateway before this one drains any more.
    pub(super) fn end_predecessors(&mut self) {
        if !self.has_successor {
            self.set_predecessors(0);
        }
    }
}

/// More gateways than this never drain at the same time; a larger number is that of no gateway.
#[cfg(feature = "gateway")]
const MAX_PREDECESSORS: u8 = 16;
