//! Verifies the credentials of a request. Before, a request over a limit that does not depend on its credentials is
//! rejected, since a signature or the hash of a password costs more than a decision.

use super::LayerState;
use super::active::Snapshot;
use super::limits::Decided;
use super::record::RequestRecord;
use crate::admission::{Denial, admit};
use crate::local_response::LocalResponse;
use crate::ruleset::RuleSet;
use tidegate_limit::clock::unix_seconds;
use tidegate_metrics::{Credential, Metrics};
use tidegate_rules::evaluation::Evaluation;
use tidegate_rules::request::identity::{Identity, IdentityFault, IdentityKind, IdentityKinds};
use tidegate_rules::rules::{Identified, is_incomplete};

impl LayerState {
    /// Rejects a request whose address is banned, or that a limit which does not depend on its credentials is known to
    /// refuse. Takes no permits.
    ///
    /// # Errors
    /// The response to the rejected request.
    pub(super) async fn reject_before_verification<'r>(
        &self,
        snapshot: Snapshot<'r>,
        evaluation: &Evaluation<'r, '_>,
        record: &mut RequestRecord<'r>,
    ) -> Result<(), LocalResponse> {
        let (Some(route), facts, store) = (record.route(), &evaluation.facts, snapshot.store) else {
            return Ok(());
        };
        let charges = snapshot.active.charges_without_identity(store, route, facts);
        let mut charges = charges.inspect_err(|response| self.record_ban(snapshot, facts, response, record))?;
        if charges.is_empty() || !store.may_refuse(charges.as_slice()) {
            return Ok(());
        }
        // Boxed, as it is rare and large.
        let admitted = Box::pin(admit(store, &self.queues, &mut charges, None)).await;
        let Err(Denial::Limited { .. }) = &admitted else { return Ok(()) };
        record.start_decision(&charges, store);
        let decided = Decided { charges: &charges, admitted: &admitted };
        self.record_decided(decided, store, record);
        Err(self.respond(snapshot, evaluation.refused(), evaluation, Some(decided), record))
    }

    /// Verifies the credentials of these kinds.
    pub(super) async fn verify(&self, rules: &RuleSet, kinds: IdentityKinds, evaluation: &mut Evaluation<'_, '_>) {
        let facts = &evaluation.facts;
        let request = Identified {
            sources: &rules.rules.credentials,
            facts,
            client: rules.client_network(facts).filter(|_| kinds.user),
            now: if kinds.token { unix_seconds() } else { 0 }, // only tokens have times
        };
        let identity = rules.verifier().identify(kinds, request);
        // Boxed, so that requests that do not wait for a key set or a password do not pay for its memory.
        let identity = match is_incomplete(&identity) {
            true => Box::pin(rules.verifier().complete(identity, request)).await,
            false => identity,
        };
        evaluation.add_identity(identity);
    }
}

impl RequestRecord<'_> {
    /// Counts the result for each kind of credentials, and records why the request is rejected.
    pub(super) fn record_identity(&mut self, reads: IdentityKinds, identity: Option<&Identity>, metrics: &Metrics) {
        let Some(identity @ Identity { key, token, user, fault, .. }) = identity else { return };
        self.record_customer(identity);
        self.reason = fault.map(IdentityFault::as_str);
        for (kind, credential, is_read, is_accepted) in [
            (IdentityKind::Token, Credential::Token, reads.token, token.is_some()),
            (IdentityKind::Key, Credential::Key, reads.key, key.is_some()),
            (IdentityKind::User, Credential::User, reads.user, user.is_some()),
        ] {
            let of_kind = fault.filter(|fault| fault.kind() == Some(kind)).unwrap_or(IdentityFault::Missing);
            match (is_read, is_accepted, fault) {
                (false, ..) => {}
                (true, true, Some(fault)) => metrics.identity_rejected(credential, fault.as_str()),
                (true, true, None) => metrics.identity_accepted(credential),
                (true, false, _) => metrics.identity_rejected(credential, of_kind.as_str()),
            }
        }
    }
}
