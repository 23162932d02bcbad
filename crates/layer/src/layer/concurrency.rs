//! Admits a request to a route with `concurrency`.

use super::LayerState;
use super::active::Snapshot;
use super::body::ClientInFlight;
use super::record::RequestRecord;
use crate::admission::{Admitted, Denial, NewRequest, admit};
use crate::rejected::Cause;
use tidegate_rules::limits::concurrency::Concurrency;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::rules::Charges;

impl LayerState {
    /// Admits a request by its limits and with a slot. Records the slot, and what remains for the client.
    ///
    /// # Errors
    /// See [`Denial`].
    pub(super) async fn admit_with_slot(
        &self,
        Snapshot { active, store }: Snapshot<'_>,
        facts: &Facts<'_>,
        concurrency: &Concurrency,
        charges: &mut Charges<'_>,
        record: &mut RequestRecord<'_>,
    ) -> Result<Admitted, Denial> {
        let Some(found) = record.found else { return admit(store, &self.queues, charges, None).await };
        let waits = record.waits(found, facts);
        let Some(metrics) = found.compiled.in_flight() else { return admit(store, &self.queues, charges, waits).await };
        let client = active.rules.client_in_flight(concurrency, facts);
        let client = client.as_ref();
        let deadline = record.deadline(found, facts);
        let (queues, waits) = (&self.queues, waits.map(|waits| *waits));
        let request = NewRequest { store, queues, charges, waits, concurrency, client, metrics, deadline };
        let admitted = request.admit().await;
        let quota = concurrency.per_client.zip(client).and_then(|(per_client, client)| {
            let remaining = match &admitted {
                Ok((_, slot)) => slot.remaining(),
                Err(Denial::Busy { full }) => full.client.then_some(0)?,
                // Not decided by the slots, which only this gateway has counted then.
                Err(_) => per_client.saturating_sub(store.slots(&concurrency.name).of_client(client)),
            };
            Some((per_client, remaining))
        });
        let (admitted, slot) = match admitted {
            Ok((admitted, slot)) => (Ok(admitted), Some(Box::new(slot))),
            Err(denial) => (Err(denial), None),
        };
        if let Err(Denial::Busy { full }) = &admitted {
            record.record_busy();
            self.count_rejected(Cause::Concurrency, client.filter(|_| full.client), store, record);
        }
        record.record_slot(ClientInFlight { slot, quota });
        admitted
    }
}
