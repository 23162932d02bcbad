//! A handover during an outage: the next gateway gets the local buckets and the owed permits, and a part of each share.

use std::sync::Arc;

use tokio::sync::watch;

use super::debts::Payment;
use super::{Fallback, debts};
use crate::clock::Timestamp;
use crate::limit::{Charge, Limiter};
use crate::store::Memory;

/// The state of a gateway for its successor, besides buckets and debts.
#[derive(Clone, Debug)]
pub(crate) struct LocalState {
    pub(crate) gateways: u32,
    /// The id of this gateway in the store. The next gateway keeps it, so that both are counted as one.
    pub(crate) id: String,
    /// How many gateways before the next one may still decide, each by a part of the share.
    pub(crate) predecessors: u8,
}

/// For the gateway that is succeeded.
impl Fallback {
    /// Starts to decide by a quarter of each share.
    pub(crate) fn begin_handover(&self) -> LocalState {
        let mut shares = self.shares.lock();
        shares.set_has_successor();
        let id = self.id.get_or_init(debts::random_id).clone();
        LocalState { gateways: shares.known(), id, predecessors: shares.predecessors_of_successor() }
    }

    /// Turns all that is owed into payments, and returns them with the time by the clock that dated their grants.
    pub(crate) fn payments(&self) -> (Vec<Payment>, Timestamp) {
        let now = self.clock.now();
        (self.debts.lock().turn_into_payments(now), now)
    }

    /// Leaves these payments to the next gateway.
    pub(crate) fn forget_payments(&self, payments: &[u64]) {
        self.debts.lock().forget(payments);
    }

    /// The buckets of this gateway.
    pub(crate) fn buckets(&self) -> &Memory {
        &self.buckets
    }
}

/// For the next gateway.
impl Fallback {
    /// Assumes that this number of gateways share the store, unless the store has counted them.
    pub(crate) fn assume(&self, gateways: u32) {
        if self.counted.borrow().is_none() {
            self.shares.lock().set_known(gateways);
        }
    }

    /// Takes the place of another gateway.
    pub(crate) fn take_over(&self, state: LocalState) {
        if !state.id.is_empty() {
            _ = self.id.set(state.id);
            self.assume(state.gateways);
        }
        self.shares.lock().set_predecessors(state.predecessors);
    }

    /// Starts to decide by the whole share: the gateway before this one has ended.
    pub(crate) fn end_predecessors(&self) {
        self.shares.lock().end_predecessors();
    }

    /// Adds a bucket of the gateway before this one; returns whether there was capacity for it.
    pub(crate) fn import(&self, whole: &Arc<Limiter>, owner: [u8; 16], numbers: &[i64]) -> bool {
        let share = self.shares.lock().limiter(whole);
        self.buckets.import(&share, owner, numbers)
    }

    /// Takes over a payment of the gateway before this one.
    pub(crate) fn adopt(&self, payment: Payment) {
        self.debts.lock().adopt(payment);
        self.new_debts_sender.send_replace(());
    }

    /// Charges the local buckets with the permits that the gateway before this one granted during its drain.
    pub(crate) fn charge_granted(&self, payment: &Payment) {
        for debt in &payment.debts {
            let limiter = self.shares.lock().limiter(&debt.limiter);
            let permits = debt.grants.iter().fold(0_u32, |sum, (_, permits)| sum.saturating_add(*permits));
            self.buckets.charge_granted(&Charge { limiter, client: debt.client.clone(), permits, shadow: false });
        }
    }

    /// The time by the clock that dates grants.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How many gateways the store has counted, now and whenever that changes; `None` until it has.
    pub(crate) fn counted(&self) -> watch::Receiver<Option<u32>> {
        self.counted.subscribe()
    }
}
