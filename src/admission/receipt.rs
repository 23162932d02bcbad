//! What a request was charged, so that it can be given back if no upstream receives it.

use super::LimitStatus;
use crate::limit::{Charge, Granted};
use crate::rules::{Charges, Positions};
use crate::store::Store;

/// What a request was charged, so that it can be given back.
#[derive(Debug, Default)]
pub(crate) struct Receipt {
    /// For each charge, the position of its limit.
    positions: Positions,
    asked: Vec<Charge>,
    status: LimitStatus,
}

impl Receipt {
    /// Of a request that was admitted with these charges; `status` is what their limits said, or some of them.
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
            return store.give_back_alone(&granted);
        }
        if let Err(error) = store.give_back(&granted).await {
            tracing::debug!(%error, "permits were not given back, and return by themselves");
        }
    }

    /// The charges that were made, each at the moment of its grant or slot.
    fn granted(&self) -> Vec<Granted> {
        let made = self.positions.iter().zip(&self.asked).filter_map(|(position, charge)| {
            let decision = self.status.decision(*position).filter(|said| said.granted && charge.permits > 0)?;
            let at = self.status.now.plus_millis(decision.ahead + decision.delay);
            Some(Granted { charge: charge.on_shard(decision.shard), at, overflow: decision.overflow })
        });
        made.collect()
    }
}
