//! A handover during an outage: the next gateway gets the local buckets, the local grants, and a part of each share.

use std::sync::Arc;

use tokio::sync::watch;

use super::Fallback;
use super::local_grants::LateCharge;
use crate::Memory;
use tidegate_limit::Quota;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{Charge, Limiter};

/// The state of a gateway for its successor, in addition to buckets and local grants.
#[derive(Clone, Debug)]
pub struct LocalState {
    pub gateways: u32,
    /// The id of this gateway in the store. The next gateway keeps it, so that both are counted as one.
    pub id: String,
    /// The number of predecessors of the next gateway that may still decide, each by a part of the share.
    pub predecessors: u8,
}

/// For the predecessor.
impl Fallback {
    /// Starts to decide by a quarter of each share.
    pub fn begin_handover(&self) -> LocalState {
        let mut shares = self.shares.lock();
        shares.set_has_successor();
        let id = self.id.get_or_init(super::random_id).clone();
        LocalState { gateways: shares.gateway_count(), id, predecessors: shares.predecessors_of_successor() }
    }

    /// Turns all local grants into late charges. Returns them and the time of the clock that dated their grants.
    pub fn late_charges(&self) -> (Vec<LateCharge>, Timestamp) {
        let now = self.clock.now();
        (self.local_grants.lock().turn_into_late_charges(now), now)
    }

    /// Leaves these late charges to the next gateway.
    pub fn forget_late_charges(&self, late_charges: &[u64]) {
        self.local_grants.lock().forget(late_charges);
    }

    /// Returns the local buckets.
    pub fn buckets(&self) -> &Memory {
        &self.buckets
    }
}

/// For the successor.
impl Fallback {
    /// Assumes this number of gateways, until the store has reported their number.
    pub fn assume(&self, gateways: u32) {
        if self.counted.borrow().is_none() {
            self.shares.lock().set_gateway_count(gateways);
        }
    }

    /// Takes over the state of the predecessor.
    pub fn take_over(&self, state: LocalState) {
        if !state.id.is_empty() {
            _ = self.id.set(state.id);
            self.assume(state.gateways);
        }
        self.shares.lock().set_predecessors(state.predecessors);
    }

    /// Starts to decide by the whole share, since the predecessor has ended.
    pub fn end_predecessors(&self) {
        self.shares.lock().end_predecessors();
    }

    /// Adds a bucket of the predecessor. `quotas` are further shares that clients of the limit had there. Returns
    /// `true` if the bucket was added.
    pub fn import(&self, whole: &Arc<Limiter>, quotas: &[Quota], owner: [u8; 16], numbers: &[i64]) -> bool {
        let share = self.shares.lock().limiter(whole);
        self.buckets.import(&share, quotas, owner, numbers)
    }

    /// Takes over a late charge of the predecessor.
    pub fn adopt(&self, late_charge: LateCharge) {
        self.local_grants.lock().adopt(late_charge);
        self.new_grants_sender.send_replace(());
    }

    /// Charges the local buckets with the permits that the predecessor granted during its drain.
    pub fn charge_granted(&self, late_charge: &LateCharge) {
        for bucket in &late_charge.buckets {
            let limiter = self.shares.lock().limiter(&bucket.limiter);
            let permits = bucket.grants.iter().fold(0_u32, |sum, grant| sum.saturating_add(grant.permits));
            let charge = Charge { kind: bucket.kind, ..Charge::new(limiter, bucket.client.clone(), permits) };
            self.buckets.charge_granted(&charge);
        }
    }

    /// Returns the time of the clock that dates grants.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the number of gateways that the store reports, and its changes; `None` until the first report.
    pub fn counted(&self) -> watch::Receiver<Option<u32>> {
        self.counted.subscribe()
    }
}
