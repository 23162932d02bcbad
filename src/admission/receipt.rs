//! The charges of an admitted request. They are given back if no upstream receives the request. Limits with `charge_on`
//! are settled with the status of the response.

use std::slice;

use futures_util::future::join_all;
use http::StatusCode;

use super::LimitStatus;
use crate::limit::{Charge, Decision, Granted};
use crate::rule::{Limit, OnStoreFailure};
use crate::rules::{Charges, Positions};
use crate::store::Store;

/// The charges of an admitted request, which can be given back.
#[derive(Debug, Default)]
pub(crate) struct Receipt {
    /// For each charge, the position of its limit.
    positions: Positions,
    asked: Vec<Charge>,
    status: LimitStatus,
}

impl Receipt {
    /// Creates the receipt of a request that was admitted with these charges. `status` has the decisions of their
    /// limits.
    pub(crate) fn new(charges: Charges<'_>, status: LimitStatus) -> Self {
        let (positions, asked) = charges.into_parts();
        Self { positions, asked, status }
    }

    /// Gives all charges back, once.
    pub(crate) async fn give_back(self, store: &Store) {
        self.give_back_some(store, |_| true).await;
    }

    /// Gives back the charges of the limits at these positions of the route. To be called once.
    async fn give_back_some(&self, store: &Store, which: impl Fn(usize) -> bool) {
        let granted = self.granted(which);
        if granted.is_empty() {
            return;
        }
        if self.status.fallback_cause.is_some() {
            return store.give_back_locally(&granted);
        }
        if let Err(error) = store.give_back(&granted).await {
            tracing::debug!(%error, "failed to give permits back, they return later");
        }
    }

    /// Charges the limits with `charge_on` that include the status of the response, and gives back the reserved permits of
    /// those that do not. Gives all other charges back unless the request `was_sent`. Returns the charges and their current
    /// decisions.
    pub(crate) async fn settle<'r>(
        mut self,
        store: &Store,
        limits: &'r [Limit],
        status: StatusCode,
        was_sent: bool,
    ) -> (Charges<'r>, LimitStatus) {
        let is_due = |position: usize| limits.get(position)?.charge_on.as_ref().map(|on| on.includes(status));
        self.give_back_some(store, |position| !is_due(position).unwrap_or(was_sent)).await;
        let of_outcome = self.positions.iter().zip(&self.asked).filter_map(|(position, charge)| {
            let (is_due, limit) = (is_due(*position)?, &limits[*position]);
            Some((*position, limit, charge, is_due))
        });
        let settled = of_outcome.map(async |(position, limit, charge, is_due)| {
            let decision = match (charge.checks_only, is_due) {
                (true, true) => charge_now(store, limit, charge).await,
                (false, false) => self.status.decision(position).map(|decision| refunded(decision, charge)),
                _ => None,
            };
            decision.map(|decision| (position, decision))
        });
        for (position, decision) in join_all(settled).await.into_iter().flatten() {
            self.status.set_decision(position, decision);
        }
        (Charges::from_parts(limits, self.positions, self.asked), self.status)
    }

    /// Returns the charges that were made, each with the time of its grant or time slot.
    fn granted(&self, which: impl Fn(usize) -> bool) -> Vec<Granted> {
        let asked = self.positions.iter().zip(&self.asked).filter(|(position, _)| which(**position));
        let made = asked.filter_map(|(position, charge)| {
            let decision = self.status.decision(*position).filter(|said| said.granted && charge.taken() > 0)?;
            let at = self.status.now.plus_millis(decision.ahead + decision.delay);
            Some(Granted { charge: charge.on_shard(decision.shard), at, overflow: decision.overflow })
        });
        made.collect()
    }
}

/// Charges a limit after the response. If fewer permits remain than the request costs, takes those that remain: other
/// requests have passed the check in the meantime. Returns `None` if the limit could not be charged.
async fn charge_now(store: &Store, limit: &Limit, charge: &Charge) -> Option<Decision> {
    let due = Charge { checks_only: false, ..charge.clone() };
    let decision = take_one(store, limit, &due).await?;
    if decision.granted || decision.remaining == 0 || decision.remaining >= due.permits {
        return Some(decision);
    }
    take_one(store, limit, &Charge { permits: decision.remaining, ..due }).await
}

/// Makes one charge; by this gateway's share of the limit if the store does not decide and the limit allows it.
async fn take_one(store: &Store, limit: &Limit, charge: &Charge) -> Option<Decision> {
    let charge = slice::from_ref(charge);
    let outcome = match store.take(charge).await {
        Err(_) if limit.on_store_failure == OnStoreFailure::Local => store.take_locally(charge),
        outcome => outcome,
    };
    let outcome = outcome.inspect_err(|error| tracing::debug!(%error, "failed to charge the outcome of a request"));
    outcome.ok()?.decisions.into_iter().next()
}

/// Returns the decision after the permits of a charge were given back.
fn refunded(decision: &Decision, charge: &Charge) -> Decision {
    let full = charge.on_shard(decision.shard).limiter.quota.full();
    let remaining = decision.remaining.saturating_add(charge.permits).min(full);
    Decision { remaining, reset: if remaining == full { 0 } else { decision.reset }, ..*decision }
}
