//! The charges of an admitted request, which are given back if no upstream receives the request.

use super::LimitStatus;
use crate::limit::{Charge, Granted};
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

    /// Gives the charges back, once.
    pub(crate) async fn give_back(self, store: &Store) {
        let granted = self.granted();
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

    /// Returns the charges that were made, each with the time of its grant or time slot.
    fn granted(&self) -> Vec<Granted> {
        let made = self.positions.iter().zip(&self.asked).filter_map(|(position, charge)| {
            let decision = self.status.decision(*position).filter(|said| said.granted && charge.permits > 0)?;
            let at = self.status.now.plus_millis(decision.ahead + decision.delay);
            Some(Granted { charge: charge.on_shard(decision.shard), at, overflow: decision.overflow })
        });
        made.collect()
    }
}
