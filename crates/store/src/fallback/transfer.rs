//! A handover during an outage: the next gateway gets the local buckets, the debts, and a part of each share.

use std::sync::Arc;

use tokio::sync::watch;

use super::debts::Payment;
use super::{Fallback, debts};
use crate::Memory;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::{Charge, Limiter, Quota};

/// The state of a gateway for its successor, in addition to buckets and debts.
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
        let id = self.id.get_or_init(debts::random_id).clone();
        LocalState { gateways: shares.gateway_count(), id, predecessors: shares.predecessors_of_successor() }
    }

    /// Turns all debts into payments. Returns the payments and the time of the clock that dated their grants.
    pub fn payments(&self) -> (Vec<Payment>, Timestamp) {
        let now = self.clock.now();
        (self.debts.lock().turn_into_payments(now), now)
    }

    /// Leaves these payments to the next gateway.
    pub fn forget_payments(&self, payments: &[u64]) {
        self.debts.lock().forget(payments);
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

    /// Takes over a payment of the predecessor.
    pub fn adopt(&self, payment: Payment) {
        self.debts.lock().adopt(payment);
        self.new_debts_sender.send_replace(());
    }

    /// Charges the local buckets with the permits that the predecessor granted during its drain.
    pub fn charge_granted(&self, payment: &Payment) {
        for debt in &payment.debts {
            let limiter = self.shares.lock().limiter(&debt.limiter);
            let permits = debt.grants.iter().fold(0_u32, |sum, (_, permits)| sum.saturating_add(*permits));
            let charge = Charge { kind: debt.kind, ..Charge::new(limiter, debt.client.clone(), permits) };
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
