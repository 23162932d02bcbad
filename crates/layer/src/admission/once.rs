//! Decisions that are made once for an id: a repeated request gets the first decision, if it was granted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::Attempt;
use tidegate_rules::charge::Charge;
use tidegate_rules::rules::Charges;
use tidegate_store::{OnceId, Store, TakenOnce};

/// The id of a request, and the result of an earlier request with the id.
#[derive(Debug)]
pub struct OnceAsk {
    id: OnceId,
    /// A number for the charge of each limit, by the position of the limit.
    numbers: Vec<u8>,
    earlier: OnceLock<TakenOnce>,
    has_receipt: AtomicBool,
}

impl OnceAsk {
    /// Creates the id of a request. `numbers` has a number for the charge of each limit, by the position of the limit.
    pub fn new(id: OnceId, numbers: Vec<u8>) -> Self {
        Self { id, numbers, earlier: OnceLock::new(), has_receipt: AtomicBool::new(false) }
    }

    /// Returns the result of an earlier request with the id. Then the admission of this request has no meaning.
    pub fn earlier(&self) -> Option<&TakenOnce> {
        self.earlier.get()
    }

    /// Returns `true` if the decision about this request has left a receipt.
    pub fn has_receipt(&self) -> bool {
        self.has_receipt.load(Relaxed)
    }

    /// Asks the store, with `ticketed` instead of the charges if there are any.
    pub(super) async fn take(
        &self,
        store: &Store,
        charges: &mut Charges<'_>,
        ticketed: Option<Vec<Charge>>,
    ) -> Attempt {
        let numbers: Vec<u8> =
            charges.limit_positions().map(|index| self.numbers.get(index).copied().unwrap_or_default()).collect();
        let requested = ticketed.as_deref().unwrap_or(charges.as_slice());
        let limits = match store.take_once(requested, &numbers, &self.id).await {
            Ok(TakenOnce::Decided(outcome)) => {
                self.has_receipt.store(outcome.granted(), Relaxed);
                charges.decide(outcome);
                Ok(())
            }
            Ok(earlier) => {
                self.record(earlier);
                charges.forget_decisions();
                Ok(())
            }
            Err(error) => Err(error),
        };
        Attempt { limits, slot: None }
    }

    /// Returns `true` if there is a result of an earlier request. Without a reply of the store, the decision will show it.
    pub(super) async fn look_up(&self, store: &Store) -> bool {
        if let Ok(Some(earlier)) = store.find_receipt(&self.id).await {
            self.record(earlier);
        }
        self.earlier.get().is_some()
    }

    fn record(&self, earlier: TakenOnce) {
        // The first result stays.
        _ = self.earlier.set(earlier);
    }
}
