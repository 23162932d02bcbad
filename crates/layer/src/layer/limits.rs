//! The charges of a request, and what the limits of its route decide.

use super::LayerState;
use super::active::Snapshot;
use super::record::RequestRecord;
use crate::admission::{Admitted, Denial, Permit, store_failure};
use crate::headers::retry_after;
use crate::local_response::{LocalResponse, ViolatedLimits};
use crate::ruleset::FoundRoute;
use tidegate_rules::evaluation::Verdict;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::route::Route;
use tidegate_rules::rules::Charges;
use tidegate_store::Store;

/// The charges of a request with the decisions about them, and the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided<'d> {
    pub(super) charges: &'d Charges<'d>,
    pub(super) admitted: &'d Result<Admitted, Denial>,
}

/// The result for a request that is forwarded.
pub(super) struct Passed<'r> {
    pub(super) permit: Permit,
    pub(super) charges: Charges<'r>,
}

impl LayerState {
    pub(super) fn charges<'r>(
        &self,
        snapshot: Snapshot<'r>,
        route: &'r Route,
        facts: &Facts<'_>,
        record: &mut RequestRecord<'_>,
    ) -> Result<Charges<'r>, LocalResponse> {
        let Snapshot { active, store } = snapshot;
        match facts.identity_fault() {
            Some(_) => record.omit_lines(),
            None => record.identify_lines(&active.rules, facts),
        }
        active.charges(store, route, facts).inspect_err(|response| self.record_ban(snapshot, facts, response, record))
    }

    /// Counts and records the decision about a request. A lack of slots is recorded with its bounds.
    pub(super) fn record_decided(&self, decided: Decided<'_>, store: &Store, record: &mut RequestRecord<'_>) {
        let Decided { charges, admitted } = decided;
        let Some(FoundRoute { compiled, .. }) = record.found.filter(|_| !matches!(admitted, Err(Denial::Busy { .. })))
        else {
            return;
        };
        compiled.limits.count(charges, admitted, |refusing| {
            if let (Some(rejected), Some(limit)) = (&self.options.rejected, compiled.limits.id(refusing.index)) {
                rejected.record(self.worker.unwrap_or(0), limit, refusing.charge.client.as_ref(), store);
            }
        });
        if let Some(error) = store_failure(admitted) {
            self.metrics.store_failed(error.cause());
        }
        record.record_client_key(charges, store);
        record.record_decision(charges, admitted);
    }
}

impl Decided<'_> {
    pub(super) fn verdict(self) -> Verdict {
        match self.admitted {
            Ok(_) => Verdict::Granted,
            Err(Denial::Limited { .. }) => Verdict::Refused,
            Err(Denial::Busy { .. }) => Verdict::Busy,
            Err(Denial::StoreFailed(_)) => Verdict::StoreFailed,
        }
    }

    /// Returns the response to a request that is not admitted.
    pub(super) fn response(self) -> LocalResponse {
        match self.admitted {
            Ok(_) => LocalResponse::Internal,
            Err(denial) => local_response(self.charges, denial),
        }
    }
}

/// Returns the response to a request that the limits, the store or the requests in flight deny.
fn local_response(charges: &Charges<'_>, denial: &Denial) -> LocalResponse {
    match denial {
        Denial::StoreFailed(_) => LocalResponse::StoreFailed,
        Denial::Busy { full } => LocalResponse::Busy { by_client: full.client, upstream: None },
        Denial::Limited { wait, .. } => {
            let remaining = charges.refusing().filter_map(|entry| Some(entry.decision?.remaining));
            let violated = charges.refusing().map(|entry| entry.limit.name.as_str());
            let violated = violated.collect::<ViolatedLimits>().with_remaining(remaining.min().unwrap_or(0));
            LocalResponse::Limited { violated, retry_after: retry_after(*wait) }
        }
    }
}
