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

/// Verifies the credentials of a request. Returns `true` if the result may change with a new key set of tokens: the known
/// set does not contain the key of the token.
#[cfg(feature = "gateway")]
pub(super) fn verify(rules: &RuleSet, needs: IdentityNeeds, facts: &mut Facts<'_>) -> bool {
    facts.identity = Some(Box::new(rules.identify(needs, facts, unix_seconds())));
    facts.identity_fault() == Some(IdentityFault::UnknownKey)
}

/// Fetches the key set of tokens, unless it was just fetched, and verifies the credentials again.
#[cfg(feature = "gateway")]
pub(super) async fn verify_again(rules: &RuleSet, needs: IdentityNeeds, facts: &mut Facts<'_>) {
    // Also without a fetch: another request's fetch may have ended after the first verification.
    rules.refresh_key_set().await;
    verify(rules, needs, facts);
}

impl LayerState {
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
