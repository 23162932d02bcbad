//! This gateway's share of each limit: the limit divided by the number of gateways.
//!
//! During a handover two gateways divide one share. The old gateway drains with a quarter of the share, rounded down;
//! the new gateway has the rest until the old one has ended. Both start with the buckets in use at the handover, so
//! together they grant no more than the share.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tidegate_limit::Quota;
use tidegate_rules::charge::{Charge, Limiter};

/// The number of shares up to which none are removed.
const MIN_SHARES: usize = 64;

/// The parameters of the shares, and the current shares by limiter.
#[derive(Debug)]
pub(super) struct Shares {
    /// The number of gateways that share the store, including this one.
    gateway_count: u32,
    /// The minimum number of gateways to assume.
    least: u32,
    /// The number of predecessors that still drain.
    predecessors: u8,
    /// Whether this gateway drains and has a successor.
    has_successor: bool,
    /// The shares by the address of the limiter. The limits of a tier have equal names.
    by_limiter: HashMap<usize, Share>,
    /// The number of shares at which the shares of unused limiters are removed.
    max_shares: usize,
}

#[derive(Clone, Debug)]
struct Share {
    /// Keeps the address from being reused.
    whole: Weak<Limiter>,
    part: Arc<Limiter>,
    /// Whether the share is less than a permit, which is possible while a gateway drains.
    is_empty: bool,
}

impl Shares {
    pub(super) fn new(least: u32) -> Self {
        Self {
            gateway_count: 1,
            least: least.max(1),
            predecessors: 0,
            has_successor: false,
            by_limiter: HashMap::new(),
            max_shares: MIN_SHARES,
        }
    }

    /// Returns the number of known gateways; at least one.
    pub(super) fn gateway_count(&self) -> u32 {
        self.gateway_count
    }

    /// Returns the number of parts into which limits are divided.
    pub(super) fn gateways(&self) -> u32 {
        self.gateway_count.max(self.least)
    }

    /// Sets the number of known gateways. Returns `true` if the number has changed.
    pub(super) fn set_gateway_count(&mut self, gateways: u32) -> bool {
        let before = std::mem::replace(&mut self.gateway_count, gateways.max(1));
        self.reset_if(before != self.gateway_count)
    }

    /// Returns the charge on this gateway's share; `None` if the share is less than a permit. A shadow always has a
    /// share, since it must not reject a request.
    pub(super) fn share_of(&mut self, charge: &Charge) -> Option<Charge> {
        let share = self.share(&charge.limiter);
        (charge.shadow || !share.is_empty).then(|| Charge { limiter: Arc::clone(&share.part), ..charge.clone() })
    }

    /// Returns the limiter of this gateway's share.
    pub(super) fn limiter(&mut self, whole: &Arc<Limiter>) -> Arc<Limiter> {
        Arc::clone(&self.share(whole).part)
    }

    fn share(&mut self, whole: &Arc<Limiter>) -> &Share {
        let address = Arc::as_ptr(whole).addr();
        if !self.by_limiter.contains_key(&address) {
            self.remove_unused();
            let (quota, is_empty) = self.quota(&whole.quota);
            let part = Arc::new(Limiter::new(whole.name.clone(), whole.mode, quota));
            self.by_limiter.insert(address, Share { whole: Arc::downgrade(whole), part, is_empty });
        }
        &self.by_limiter[&address]
    }

    /// Removes the shares of limiters that no rule and no request uses any more, if there are many shares.
    fn remove_unused(&mut self) {
        if self.by_limiter.len() >= self.max_shares {
            self.by_limiter.retain(|_, share| share.whole.strong_count() > 0);
            self.max_shares = (2 * self.by_limiter.len()).max(MIN_SHARES);
        }
    }

    /// Returns the share of a quota, and whether it is less than a permit.
    fn quota(&self, whole: &Quota) -> (Quota, bool) {
        let share = (0..self.predecessors).fold(whole.share(self.gateways()), |share, _| share.without_quarter());
        match self.has_successor {
            true => share.quarter().map_or((share.share(u32::MAX), true), |quarter| (quarter, false)),
            false => (share, false),
        }
    }

    /// Returns this gateway's share of a bound on requests in flight. May be zero while this gateway drains.
    pub(super) fn of_bound(&self, bound: u32) -> u32 {
        let share = (bound / self.gateways()).max(1);
        let share = (0..self.predecessors).fold(share, |share, _| share - share / 4);
        if self.has_successor { share / 4 } else { share }
    }

    fn reset_if(&mut self, is_new: bool) -> bool {
        if is_new {
            self.by_limiter.clear();
        }
        is_new
    }
}

/// The methods for handovers.
impl Shares {
    /// Returns the number of gateways that divide the share with a successor: this gateway, and predecessors that
    /// still drain.
    pub(super) fn predecessors_of_successor(&self) -> u8 {
        self.predecessors.saturating_add(1)
    }

    /// Sets the number of predecessors that still drain.
    pub(super) fn set_predecessors(&mut self, predecessors: u8) {
        let before = std::mem::replace(&mut self.predecessors, predecessors.min(MAX_PREDECESSORS));
        self.reset_if(before != self.predecessors);
    }

    /// Records that this gateway has a successor. A draining gateway keeps its quarter when its predecessor ends, since
    /// its successor relies on that.
    pub(super) fn set_has_successor(&mut self) {
        let before = std::mem::replace(&mut self.has_successor, true);
        self.reset_if(!before);
    }

    /// Records that all predecessors have ended.
    pub(super) fn end_predecessors(&mut self) {
        if !self.has_successor {
            self.set_predecessors(0);
        }
    }
}

/// The maximum number of gateways that drain at the same time. Larger numbers from other processes are reduced to it.
const MAX_PREDECESSORS: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_limit::{Algorithm, Mode};

    fn limiter(rate: u64) -> Arc<Limiter> {
        let quota = Quota::new(rate, 10_000, Algorithm::TokenBucket).expect("a quota");
        Arc::new(Limiter::new("{tidegate:a}:b".into(), Mode::Overall, quota))
    }

    /// Regression test: the limits of the tiers replaced each other's share at each request.
    #[test]
    fn tiers_of_one_limit_keep_their_shares() {
        let (mut shares, tiers) = (Shares::new(2), [limiter(10), limiter(20)]);
        let first = tiers.each_ref().map(|tier| shares.limiter(tier));
        let second = tiers.each_ref().map(|tier| shares.limiter(tier));
        assert!((0..2).all(|tier| Arc::ptr_eq(&first[tier], &second[tier])));
        assert_eq!(first.map(|part| part.quota.capacity()), [5, 10]);
    }

    /// Regression test: the limits that a reload had removed kept their shares.
    #[test]
    fn shares_of_unused_limiters_are_removed() {
        let (mut shares, kept) = (Shares::new(2), limiter(10));
        let part = shares.limiter(&kept);
        (0..10_000).for_each(|_| _ = shares.limiter(&limiter(20)));
        assert!(shares.by_limiter.len() <= MIN_SHARES);
        assert!(Arc::ptr_eq(&part, &shares.limiter(&kept)));
    }
}
