//! Counts the clients of requests that something other than a limit rejects, for operators. Limits count theirs with their
//! decisions.

use super::LayerState;
use super::active::Snapshot;
use super::record::RequestRecord;
use crate::local_response::LocalResponse;
use crate::rejected::Cause;
use crate::ruleset::RuleSet;
use tidegate_rules::charge::ClientId;
use tidegate_rules::request::facts::Facts;
use tidegate_store::Store;

impl LayerState {
    /// Counts a rejected request of a client; `None` stands for all clients together.
    pub(super) fn count_rejected(
        &self,
        cause: Cause,
        client: Option<&ClientId>,
        store: &Store,
        record: &RequestRecord<'_>,
    ) {
        if let (Some(rejected), Some(found)) = (&self.options.rejected, record.found) {
            rejected.record(self.worker.unwrap_or(0), found.compiled.cause_id(cause), client, store);
        }
    }

    /// Records and counts the ban, if it is why the request is rejected.
    pub(super) fn record_ban(
        &self,
        Snapshot { active, store }: Snapshot<'_>,
        facts: &Facts<'_>,
        response: &LocalResponse,
        record: &mut RequestRecord<'_>,
    ) {
        if let LocalResponse::Banned { .. } = response {
            record.record_ban(&self.metrics);
            self.count_rejected_address(Cause::Banned, &active.rules, facts, store, record);
        }
    }

    /// Counts a request whose credentials the route does not accept, unless they cannot be verified at present.
    pub(super) fn count_not_identified(
        &self,
        rules: &RuleSet,
        facts: &Facts<'_>,
        store: &Store,
        (response, record): (&LocalResponse, &RequestRecord<'_>),
    ) {
        let cause = match response {
            LocalResponse::NotIdentified { fault, .. } if !fault.is_temporary() => Cause::NotIdentified,
            LocalResponse::NotAllowed { .. } => Cause::NotAllowed,
            _ => return,
        };
        self.count_rejected_address(cause, rules, facts, store, record);
    }

    /// Counts a rejected request by the address of its client, which is known without its credentials.
    fn count_rejected_address(
        &self,
        cause: Cause,
        rules: &RuleSet,
        facts: &Facts<'_>,
        store: &Store,
        record: &RequestRecord<'_>,
    ) {
        if self.options.rejected.is_some() {
            self.count_rejected(cause, rules.client_by_address(facts).as_ref(), store, record);
        }
    }
}
