//! Rejects requests whose credentials are not accepted. Limits by address count these requests, so that guesses are
//! limited.

use super::LayerState;
use super::active::Active;
use super::decide::{local_response, not_identified};
use super::record::RequestRecord;
use crate::admission::{Admitted, Receipt, admit};
use crate::facts::Facts;
use crate::local_response::LocalResponse;
use crate::route::Route;
use crate::ruleset::CompiledRoute;
use crate::store::Store;

impl LayerState {
    /// Charges the limits by address. Returns the response: of the limit that rejects the request, or 401 or 503.
    pub(super) async fn reject_unidentified<'r>(
        &self,
        (active, store): (&'r Active, &Store),
        (route, compiled): (&'r Route, &'r CompiledRoute),
        facts: &Facts<'_>,
        record: &mut RequestRecord<'r>,
    ) -> LocalResponse {
        #[cfg(feature = "gateway")]
        record.omit_lines();
        let charges = match self.charges((active, store), route, facts, record) {
            Ok(charges) => charges,
            Err(rejection) => return rejection,
        };
        record.start_decision(&charges, store);
        let waits = record.waits((route, compiled), facts);
        let admitted = admit(store, &self.queues, &charges, waits).await;
        self.record_admitted(&charges, &admitted, (compiled, store), record);
        match admitted {
            Err(denial) => local_response(&charges, denial),
            Ok(Admitted { status, .. }) => {
                let rejection = not_identified(route, facts).unwrap_or(LocalResponse::Internal);
                record.settle_rejection(Receipt::new(charges, status), store, rejection).await
            }
        }
    }
}
