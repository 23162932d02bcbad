//! Receipts of requests with an id, and post-paid limits, as they are written for another gateway.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limiter::{SerializedClient, SerializedLimiter};
use super::{Line, MAX_STATE, SentState};
use crate::memory::{Memory, Receipt};
use crate::post_paid::PostPaidLimits;
use crate::receipts::RECEIPT_TTL_MILLIS;
use tidegate_limit::Wait;
use tidegate_limit::clock::{Timestamp, poll_time};
use tidegate_rules::charge::{Charge, Decision, Granted, Limiter};

/// The upper bound of the charges of a receipt. No gateway writes more.
const MAX_CHARGES: usize = 64;

/// A receipt, with times in milliseconds relative to the sender's present.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SerializedReceipt {
    /// The keyed hashes of the id and of the request.
    id: u128,
    request: u128,
    /// The time until it expires.
    millis: u64,
    is_returned: bool,
    /// For each charge the number from its caller, the remaining permits, and the time until the next one returns: all that a
    /// repeated request gets.
    decisions: Vec<(u8, u32, u64)>,
    grants: Vec<SerializedGrant>,
}

/// Permits that were taken.
#[derive(Debug, Serialize, Deserialize)]
struct SerializedGrant {
    limiter: SerializedLimiter,
    client: Option<SerializedClient>,
    permits: u32,
    at: i64,
}

impl SerializedReceipt {
    pub(super) fn new(id: u128, expires_at: Timestamp, receipt: &Receipt, now: Timestamp) -> Self {
        let decision = |(number, decision): &(u8, Decision)| (*number, decision.remaining, decision.reset);
        // Overflow buckets are not handed over.
        let grants = receipt.granted.iter().filter(|grant| !grant.overflow);
        Self {
            id,
            request: receipt.request,
            millis: expires_at.millis_since(now),
            is_returned: receipt.is_returned,
            decisions: receipt.decisions.iter().map(decision).collect(),
            grants: grants.filter_map(|grant| SerializedGrant::new(grant, now)).collect(),
        }
    }

    /// Adds the receipt to a store, with times by its clock. Returns `false` if it is invalid, or if the store has it or no
    /// capacity.
    pub(super) fn import(self, memory: &Memory, limiters: &HashMap<&str, &Arc<Limiter>>) -> bool {
        if self.decisions.len().max(self.grants.len()) > MAX_CHARGES {
            return false;
        }
        let now = memory.now();
        let granted = self.grants.into_iter().map(|grant| grant.read(limiters, now)).collect::<Option<_>>();
        let Some(granted) = granted else { return false };
        let decision = |(number, remaining, reset)| (number, Decision::new(remaining, Wait::Now, reset));
        let decisions = self.decisions.into_iter().map(decision).collect();
        let receipt = Receipt { request: self.request, decisions, granted, is_returned: self.is_returned };
        memory.import_receipt(self.id, receipt, now.plus_millis(self.millis.min(RECEIPT_TTL_MILLIS)))
    }
}

impl SerializedGrant {
    /// Returns `None` for a limiter whose rate is elsewhere, of which an embedded store has none.
    fn new(Granted { charge, at, .. }: &Granted, now: Timestamp) -> Option<Self> {
        let (limiter, client) =
            (SerializedLimiter::new(&charge.limiter)?, charge.client.as_ref().map(SerializedClient::new));
        Some(Self { limiter, client, permits: charge.permits, at: at.signed_millis_since(now) })
    }

    fn read(self, limiters: &HashMap<&str, &Arc<Limiter>>, now: Timestamp) -> Option<Granted> {
        let limiter = self.limiter.find(limiters)?;
        let client = self.client.map(SerializedClient::read);
        if matches!(client, Some(None)) {
            return None;
        }
        let at = Timestamp::from_millis(now.as_millis().saturating_add_signed(self.at));
        Some(Granted { charge: Charge::new(limiter, client.flatten(), self.permits), at, overflow: false })
    }
}

impl SentState {
    /// Adds the receipts of an embedded store, the newest first.
    pub(super) fn add_receipts(&mut self, memory: &Memory) {
        let (mut left_out, now) = (0, memory.now());
        memory.each_receipt(|id, expires_at, receipt| {
            let line = Line::Receipt(SerializedReceipt::new(id, expires_at, receipt, now));
            left_out += usize::from(!line.write(&mut self.bytes, MAX_STATE));
        });
        if left_out > 0 {
            tracing::warn!(ids = left_out, "some ids of granted requests are not handed over: there are too many");
        }
    }

    /// Adds the limits that this process knows as post-paid.
    pub(super) fn add_post_paid(&mut self, limits: &PostPaidLimits) {
        for (limit, remaining) in limits.all(poll_time()) {
            let millis = u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX);
            _ = Line::PostPaid { limit, millis }.write(&mut self.bytes, MAX_STATE);
        }
    }
}

/// Makes a limit post-paid, as it was for the predecessor.
pub(super) fn import_post_paid(limits: &PostPaidLimits, limit: &str, millis: u64) {
    limits.add(limit, Duration::from_millis(millis), poll_time());
}
