//! The charges of an admitted request. They are given back if no upstream receives the request. Limits with `charge_on`
//! are settled with the status of the response.

use futures_util::future::{join, join_all};
use http::StatusCode;

use super::LimitStatus;
use tidegate_limit::{Charge, ChargeKind, Decision, Granted};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::rules::{Charges, LimitPositions};
use tidegate_store::Store;

/// The charges of an admitted request, which can be given back.
#[derive(Debug, Default)]
pub struct Receipt {
    /// For each charge, the position of its limit.
    positions: LimitPositions,
    asked: Vec<Charge>,
    status: LimitStatus,
}

/// The settlement of a charge by the status of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settlement {
    /// The limit is charged now.
    Charge,
    /// The permits are given back, and the response reports them as remaining.
    Refund,
    /// The permits are given back.
    GiveBack,
}

impl Receipt {
    /// Creates the receipt of a request that was admitted with these charges. `status` has the decisions of their
    /// limits.
    pub fn new(charges: Charges<'_>, status: LimitStatus) -> Self {
        let (positions, asked) = charges.into_parts();
        Self { positions, asked, status }
    }

    /// Gives all charges back, once.
    pub async fn give_back(self, store: &Store) {
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

    /// Charges the limits with `charge_on` that include the status of the response, and gives back the reserved permits
    /// of those that do not. Gives all other charges back unless the request `was_sent`. Returns the charges and their
    /// current decisions. A client that leaves does not interrupt the calls to the store, which a task makes.
    pub async fn settle<'r>(
        self,
        store: &Store,
        limits: &'r [Limit],
        status: StatusCode,
        was_sent: bool,
    ) -> (Charges<'r>, LimitStatus) {
        let settlement = |(position, charge): (usize, &Charge)| {
            let is_due = limits.get(position)?.charge_on.as_ref().map(|on| on.includes(status));
            self.settlement(position, charge, is_due, was_sent)
        };
        let settlements = self.positions().zip(&self.asked).map(settlement).collect();
        let settled = self.settle_each(store.clone(), settlements);
        let settled = match store.is_redis() {
            true => tokio::spawn(settled).await.unwrap_or_default(),
            false => settled.await, // never waits
        };
        (Charges::from_parts(limits, settled.positions, settled.asked), settled.status)
    }

    /// Returns how a charge is settled. `is_due` is `None` for limits without `charge_on`.
    fn settlement(&self, position: usize, charge: &Charge, is_due: Option<bool>, was_sent: bool) -> Option<Settlement> {
        if self.status.decision(position).is_some_and(|said| !said.granted) {
            return None; // A shadow refused, and a live limit would have rejected the request.
        }
        let is_check = charge.kind == ChargeKind::Check;
        match is_due {
            None => (!was_sent).then_some(Settlement::GiveBack),
            Some(true) => is_check.then_some(Settlement::Charge),
            Some(false) => (!is_check).then_some(Settlement::Refund),
        }
    }

    /// Settles each charge. `settlements` has an entry for each.
    async fn settle_each(mut self, store: Store, settlements: Vec<Option<Settlement>>) -> Self {
        let of_limits: Vec<_> = self.positions().zip(settlements).collect();
        let gives_back = |position: usize| {
            let settlement = of_limits.iter().find(|(of, _)| *of == position).and_then(|(_, settlement)| *settlement);
            matches!(settlement, Some(Settlement::GiveBack | Settlement::Refund))
        };
        let due =
            of_limits.iter().zip(&self.asked).filter(|((_, settlement), _)| *settlement == Some(Settlement::Charge));
        let charged = due.map(|((position, _), charge)| {
            let store = &store;
            async move { (*position, store.charge_outcome(charge).await) }
        });
        let ((), charged) = join(self.give_back_some(&store, gives_back), join_all(charged)).await;
        for (position, decision) in charged {
            self.status.set_decision(position, decision);
        }
        for ((position, settlement), charge) in of_limits.iter().zip(&self.asked) {
            if let (Some(Settlement::Refund), Some(decision)) = (settlement, self.status.decision(*position)) {
                self.status.set_decision(*position, Some(refunded(decision, charge)));
            }
        }
        self
    }

    /// Returns the position of the limit of each charge.
    fn positions(&self) -> impl Iterator<Item = usize> {
        self.positions.iter().map(|position| usize::from(*position))
    }

    /// Returns the charges that were made, each with the time of its grant or time slot.
    fn granted(&self, which: impl Fn(usize) -> bool) -> Vec<Granted> {
        let asked = self.positions().zip(&self.asked).filter(|(position, _)| which(*position));
        let made = asked.filter_map(|(position, charge)| {
            let decision = self.status.decision(position).filter(|said| said.granted && charge.taken() > 0)?;
            let at = self.status.now.plus_millis(decision.ahead + decision.delay);
            Some(Granted { charge: charge.on_shard(decision.shard), at, overflow: decision.overflow })
        });
        made.collect()
    }
}

/// Returns the decision after the permits of a charge were given back.
fn refunded(decision: &Decision, charge: &Charge) -> Decision {
    let full = charge.on_shard(decision.shard).limiter.quota.full();
    let remaining = decision.remaining.saturating_add(charge.permits).min(full);
    Decision { remaining, reset: if remaining == full { 0 } else { decision.reset }, ..*decision }
}

#[cfg(test)]
mod tests {
    use std::slice;
    use std::sync::Arc;

    use super::*;
    use tidegate_limit::{Algorithm, Limiter, Mode, Quota, Wait};
    use tidegate_rules::limits::rule::ChargeOn;
    use tidegate_rules::limits::status_range::StatusRange;

    /// Regression test: a shadow took the permits that remained, for a request that a live limit would have rejected.
    #[tokio::test]
    async fn shadow_that_refused_is_not_settled() {
        let store = Store::memory();
        let quota = Quota::new(3, 3_600_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("l".to_owned(), Mode::Overall, quota));
        let charge = Charge { shadow: true, ..Charge::new(limiter, None, 2) };
        assert!(store.take(slice::from_ref(&charge)).await.expect("a decision").granted());
        for reserve in [false, true] {
            let statuses = vec![StatusRange { first: 401, last: 401 }];
            let charge_on = Some(Box::new(ChargeOn { statuses, reserve }));
            let limit = Limit { charge_on, ..Limit::new("l".to_owned(), Arc::clone(&charge.limiter)) };
            let kind = if reserve { ChargeKind::Take } else { ChargeKind::Check };
            let asked = vec![Charge { kind, ..charge.clone() }];
            let status: LimitStatus = [(0, Decision::new(1, Wait::Millis(1_000), 1_000))].into_iter().collect();
            let receipt = Receipt { positions: LimitPositions::from_slice(&[0]), asked, status };
            let response = if reserve { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            let (_, status) = receipt.settle(&store, slice::from_ref(&limit), response, true).await;
            assert_eq!(status.decision(0).map(|decision| decision.remaining), Some(1));
            let read = Charge { permits: 0, ..charge.clone() };
            assert_eq!(store.take(&[read]).await.expect("a decision").decisions[0].remaining, 1);
        }
    }
}
