//! Verifies credentials, and rejects requests whose credentials are not accepted. Limits by address count these
//! requests, so that guesses are limited.

use super::LayerState;
use super::active::Active;
use super::decide::{local_response, not_identified};
use super::record::RequestRecord;
use crate::admission::{Admitted, Receipt, admit};
#[cfg(feature = "gateway")]
use crate::clock::unix_seconds;
#[cfg(feature = "gateway")]
use crate::credentials::IdentityNeeds;
use crate::facts::Facts;
#[cfg(feature = "gateway")]
use crate::identity::IdentityFault;
use crate::local_response::LocalResponse;
use crate::route::Route;
use crate::ruleset::CompiledRoute;
#[cfg(feature = "gateway")]
use crate::ruleset::RuleSet;
use crate::store::Store;

impl LayerState {
    /// Verifies the credentials of a request. Fetches the key set of tokens if it does not contain the key of the token.
    #[cfg(feature = "gateway")]
    pub(super) async fn verify(
        &self,
        rules: &RuleSet,
        needs: IdentityNeeds,
        facts: &mut Facts<'_>,
        record: &mut RequestRecord<'_>,
    ) {
        facts.identity = Some(Box::new(rules.identify(needs, facts, unix_seconds())));
        // Boxed, so that other requests do not pay for its memory.
        if facts.identity_fault() == Some(IdentityFault::UnknownKey) && Box::pin(rules.refresh_key_set()).await {
            facts.identity = Some(Box::new(rules.identify(needs, facts, unix_seconds())));
        }
        record.record_identity(needs, facts.identity.as_deref(), &self.metrics);
    }

    /// Charges the limits by address. Returns the response: of the limit that rejects the request, or 401 or 503.
    pub(super) async fn reject_unidentified<'r>(
        &self,
        (active, store): (&'r Active, &Store),
        (route, compiled): (&'r Route, &'r CompiledRoute),
        facts: &Facts<'_>,
        record: &mut RequestRecord<'r>,
    ) -> LocalResponse {
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
