//! Takes the slot of a request of a route with `concurrency`.

use super::LayerState;
use super::body::ClientInFlight;
use super::record::RequestRecord;
use crate::admission::{NewRequest, RequestInFlight};
use crate::concurrency::Concurrency;
use crate::facts::Facts;
use crate::local_response::LocalResponse;
use crate::route::Route;
use crate::ruleset::{CompiledRoute, RuleSet};
use crate::store::Store;

impl LayerState {
    /// Takes the slot of a request, or waits for one. Records it, and what remains for the client.
    ///
    /// # Errors
    /// The response if the route or the client has too many requests in flight.
    pub(super) async fn take_slot(
        &self,
        rules: &RuleSet,
        store: &Store,
        facts: &Facts<'_>,
        (route, compiled, concurrency): (&Route, &CompiledRoute, &Concurrency),
        record: &mut RequestRecord<'_>,
    ) -> Result<(), LocalResponse> {
        let Some(metrics) = compiled.in_flight() else { return Ok(()) };
        let client = rules.client_in_flight(concurrency, facts);
        #[cfg(feature = "gateway")]
        let deadline = record.deadline((route, compiled), facts);
        #[cfg(not(feature = "gateway"))]
        let (deadline, _) = (None, route); // a layer has no timeouts
        let (queues, client) = (&*self.queues, client.as_ref());
        let new_request = NewRequest { store, queues, concurrency, client, metrics, deadline };
        let taken = new_request.take_slot().await;
        let remaining = taken.as_ref().map_or(0, RequestInFlight::remaining);
        let by_client = taken.as_ref().is_err_and(|full| full.client);
        let quota = concurrency.per_client.filter(|_| client.is_some() && (taken.is_ok() || by_client));
        let quota = quota.map(|per_client| (per_client, remaining));
        record
            .record_slot(ClientInFlight { slot: taken.ok().map(Box::new), quota })
            .then_some(())
            .ok_or(LocalResponse::Busy { by_client })
    }
}
