//! Responses to requests that the gateway answers itself, after the limits have decided.

use super::record::RequestRecord;
use crate::local_response::LocalResponse;
use tidegate_rules::rules::Charges;
use tidegate_store::Store;

/// The response to a request that the gateway answers itself, after the limits have decided.
pub(super) struct Answered {
    pub(super) response: LocalResponse,
    /// Whether the permits are given back.
    pub(super) refunds: bool,
}

impl<'r> RequestRecord<'r> {
    /// Charges an admitted request by the response of the layer, and returns the response.
    pub(super) async fn charge_local_response(
        &mut self,
        charges: Charges<'r>,
        store: &Store,
        Answered { response, refunds }: Answered,
    ) -> LocalResponse {
        self.charge_by_response(charges, store, response.status(), !refunds).await;
        response
    }
}
