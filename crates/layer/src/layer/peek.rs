//! Shows operators the decision that a call of the rate limit service would get now. Charges nothing.

use futures_util::future::join_all;

use super::call::ActiveDomains;
use crate::overrides::Override;
use tidegate_rules::charge::Decision;
use tidegate_service::{Call, CallCharges};
use tidegate_store::{Inspection, StoreError};

/// The decision that a call would get now.
#[derive(Debug)]
pub struct PeekedCall<'d> {
    /// The charges, with the decisions that they would get.
    pub charges: CallCharges<'d>,
    /// The bucket of each charge.
    pub buckets: Vec<Result<Inspection, StoreError>>,
    /// For each descriptor, the override that bans its client, or changes its limit.
    pub in_force: Vec<Option<Override>>,
}

impl ActiveDomains {
    /// Returns the decision that a call would get now. The call has passed [`validate`](Call::validate). Returns `None` if no domain has its name.
    pub async fn peek<'d>(&'d self, call: &Call<'_>) -> Option<PeekedCall<'d>> {
        let domain = self.find(call.domain)?.domain;
        let (mut found, store) = (domain.find_limits(call), self.store());
        let mut in_force = vec![None; call.descriptors.len()];
        if let Some(overrides) = self.overrides() {
            for (shown, effect) in in_force.iter_mut().zip(overrides.of_call(domain.route(), &found, store)) {
                *shown = effect.cloned();
            }
            overrides.change_call(domain.route(), &mut found, store);
        }
        let mut charges = CallCharges::new(found);
        let buckets = join_all(charges.charges.as_slice().iter().map(|charge| store.inspect(charge))).await;
        for (position, bucket) in buckets.iter().enumerate() {
            if let Ok(bucket) = bucket {
                charges.charges.set_decision(position, Decision::new(bucket.remaining, bucket.wait, bucket.reset));
            }
        }
        Some(PeekedCall { charges, buckets, in_force })
    }
}
