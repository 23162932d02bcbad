//! What a request was charged, for the case that nobody receives it.

use super::Standing;
use crate::limit::{Charge, Granted};
use crate::rules::{Charges, Positions};
use crate::store::Store;

/// What a request was charged, so that it can be given back.
#[derive(Debug, Default)]
pub(crate) struct Receipt {
    /// For each charge, the position of its limit.
    positions: Positions,
    asked: Vec<Charge>,
    standing: Standing,
}

impl Receipt {
    /// Of a request that was admitted with these charges; `standing` is what their limits said, or some of them.
    pub(crate) fn new(charges: Charges<'_>, standing: Standing) -> Self {
        let (positions, asked) = charges.into_parts();
        Self { positions, asked, standing }
    }

    /// Gives back what a request was charged that nobody received. A receipt serves once.
    pub(crate) async fn give_back(self, store: &Store) {
        let granted = self.granted();
        if granted.is_empty() {
            return;
        }
        if let Err(error) = store.give_back(&granted).await {
            tracing::debug!(%error, "permits were not given back, and return by themselves");
        }
    }

    /// The charges that were made, each at the moment of its grant or slot.
    fn granted(&self) -> Vec<Granted> {
        let made = self.positions.iter().zip(&self.asked).filter_map(|(position, charge)| {
            let decision = self.standing.said(*position).filter(|said| said.granted && charge.permits > 0)?;
            let at = self.standing.now.plus_millis(decision.delay);
            Some(Granted { charge: charge.clone(), at, overflow: decision.overflow })
        });
        made.collect()
    }
}
