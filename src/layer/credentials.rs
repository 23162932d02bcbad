//! Rejects requests whose credentials are not accepted. Limits by address count these requests, so that guesses are
//! limited. Requests over a limit that does not depend on their credentials are rejected before a signature is verified.

#[cfg(feature = "gateway")]
use http::Method;

use super::LayerState;
#[cfg(feature = "gateway")]
use super::action;
use super::active::Active;
use super::decide::{local_response, not_identified};
use super::record::RequestRecord;
#[cfg(feature = "gateway")]
use crate::admission::Denial;
use crate::admission::{Admitted, Receipt, admit};
use crate::facts::Facts;
use crate::local_response::LocalResponse;
use crate::route::Route;
use crate::ruleset::CompiledRoute;
use crate::store::Store;

impl LayerState {
    /// Rejects a request with a token before its signature is verified, which costs more than a decision: if its address
    /// is banned, or if a limit that does not depend on the credentials is known to refuse the request. Takes no permits.
    #[cfg(feature = "gateway")]
    pub(super) async fn reject_before_verification<'r>(
        &self,
        (active, store): (&'r Active, &Store),
        (route, compiled): (&'r Route, &'r CompiledRoute),
        (method, facts): (&Method, &Facts<'_>),
        record: &mut RequestRecord<'r>,
    ) -> Option<LocalResponse> {
        let charges = active.charges_without_identity(store, route, facts);
        let charges = match charges.inspect_err(|cause| record.record_ban(cause, &self.metrics)) {
            Ok(charges) if charges.is_empty() || !store.may_refuse(charges.as_slice()) => return None,
            Ok(charges) => charges,
            Err(banned) => return Some(banned),
        };
        // Boxed, as it is rare and large.
        let admitted = Box::pin(admit(store, &self.queues, &charges, None)).await;
        let Err(Denial::Limited { .. }) = admitted else { return None };
        record.start_decision(&charges, store);
        self.record_admitted(&charges, &admitted, (compiled, store), record);
        let response = local_response(&charges, admitted.err()?);
        if self.options.on_reject.is_some() || record.is_authorization() {
            return Some(response);
        }
        let values = || action::values(&active.rules, route, facts, record);
        Some(action::reject(route, (method, facts.headers), response, values))
    }

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
