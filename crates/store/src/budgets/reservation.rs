//! The open reservations of one budget for one request.

use super::Sent;
use crate::{Backend, Store, backend};
use tidegate_metrics::LimitMetrics;
use tidegate_rules::charge::{Charge, ChargeKind, Granted, Turn};

/// An open reservation, or several of one bucket for one request. If it is dropped without a settlement, all of it is charged.
#[derive(Debug)]
pub struct Reservation {
    store: Store,
    first: Charge,
    /// Whether the store has made the first reservation, and not the share of this gateway.
    is_in_store: bool,
    /// The reservations that were added.
    more: Vec<Charge>,
    /// The grants that this gateway's share of the limit has made instead of reservations in Redis.
    local: Vec<Granted>,
    /// The cost; `None` if it is unknown.
    cost: Option<u32>,
    metrics: Option<LimitMetrics>,
}

impl Reservation {
    pub(super) fn new(store: Store, charge: &Charge, metrics: Option<LimitMetrics>) -> Self {
        let (more, local) = (Vec::new(), Vec::new());
        Self { store, first: charge.clone(), is_in_store: true, more, local, cost: None, metrics }
    }

    /// Creates a reservation that the share of this gateway has granted.
    pub(super) fn of_share(store: Store, granted: Granted, metrics: Option<LimitMetrics>) -> Self {
        let (first, more, local) = (granted.charge.clone(), Vec::new(), vec![granted]);
        Self { store, first, is_in_store: false, more, local, cost: None, metrics }
    }

    /// The reserved permits.
    pub fn permits(&self) -> u32 {
        self.in_store().chain(self.local.iter().map(|granted| &granted.charge)).fold(0, add)
    }

    /// Returns the charge that reserves more permits of the same bucket. It has its own name: a caller that leaves cancels only
    /// this reservation.
    pub fn charge_for_more(&self, permits: u32) -> Charge {
        let kind = ChargeKind::Reserve(self.store.new_reservation());
        Charge { permits, kind, turn: Turn::Any, ..self.first.clone() }
    }

    /// Adds a reservation that the store has made. In Redis, to be called in a Tokio runtime.
    pub fn add(&mut self, charge: Charge) {
        self.store.keep_open(&charge);
        self.more.push(charge);
    }

    /// Adds permits that the share of this gateway has granted.
    pub fn add_local(&mut self, granted: Granted) {
        self.local.push(granted);
    }

    /// Charges the cost, and ends the reservation. Permits above those that were reserved can be debt.
    pub fn settle(mut self, permits: u32) {
        self.cost = Some(permits);
    }

    /// Like [`settle`](Self::settle), for a stream that the gateway has ended, since the budget had no more permits.
    pub fn settle_ended(self, permits: u32) {
        if let Some(metrics) = &self.metrics {
            metrics.stream_ended();
        }
        self.settle(permits);
    }

    fn in_store(&self) -> impl Iterator<Item = &Charge> {
        self.is_in_store.then_some(&self.first).into_iter().chain(&self.more)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let permits = self.permits();
        let cost = self.cost.unwrap_or(permits);
        if let Some(metrics) = &self.metrics {
            metrics.cost_settled(cost, cost.saturating_sub(permits));
            if self.cost.is_none() {
                metrics.usage_missing();
            }
        }
        let reserved = self.in_store().fold(0, add);
        let local = std::mem::take(&mut self.local);
        let of_local = local.iter().map(|granted| &granted.charge).fold(0, add);
        // The reservations in the store pay first. The part that was not reserved is debt there, if there are any.
        let in_store = if self.is_in_store { Some((&self.first, &self.more[..])) } else { self.more.split_first() };
        let of_local = if in_store.is_some() { cost.saturating_sub(reserved).min(of_local) } else { cost };
        self.store.settle_locally(local, of_local);
        for charge in self.in_store() {
            backend!(self.store, |_| {}, |redis| redis.store().drop_reservation(charge));
        }
        if let Some((first, more)) = in_store {
            self.store.send_settlements(first, cost - of_local, more, Sent::Once(self.metrics.clone()));
        }
    }
}

fn add(sum: u32, charge: &Charge) -> u32 {
    sum.saturating_add(charge.permits)
}
