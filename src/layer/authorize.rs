//! `authorize`: a proxy asks whether its request may pass. The limits of the original request are charged, and nothing is
//! forwarded.

use super::active::Active;
use super::record::RequestRecord;
#[cfg(feature = "gateway")]
use super::verify::{verify, verify_again};
use super::{LayerState, action};
use crate::admission::admit;
use crate::facts::{Facts, HostRequirement};
use crate::local_response::LocalResponse;
use crate::route::{Authorize, OriginalRequest, OriginalRequestError};
use crate::store::Store;

impl LayerState {
    /// Evaluates the original request that these facts name, and returns the response for the proxy.
    ///
    /// # Errors
    /// The original request is rejected, or it is unknown.
    pub(super) async fn authorize<'r>(
        &self,
        (active, store): (&'r Active, &Store),
        authorize: Authorize,
        facts: &Facts<'_>,
        record: &mut RequestRecord<'r>,
    ) -> Result<LocalResponse, LocalResponse> {
        if !facts.peer_is_trusted {
            return Err(LocalResponse::UntrustedProxy);
        }
        let original = OriginalRequest::read(authorize, facts).map_err(LocalResponse::BadOriginal)?;
        let rules = &*active.rules;
        let read = rules.read_original(&original.method, &original.uri, HostRequirement::Optional, facts)?;
        // The certificate of the connection is the certificate of the proxy.
        #[cfg_attr(not(feature = "gateway"), expect(unused_mut, reason = "no credentials are verified"))]
        let mut facts = Facts { peer_is_trusted: true, extensions: facts.extensions, ..read };
        record.record_facts(rules, &facts);
        // Browsers send preflights without credentials, and the proxy's origin answers them.
        if let Some((route, compiled)) = rules.find_preflight(&facts) {
            record.record_route(route, compiled);
            return match record.answer_preflight(route, &facts) {
                LocalResponse::Preflight => Ok(LocalResponse::Authorized),
                rejection => Err(rejection),
            };
        }
        // A proxy has its own routes: without a route here, no limit applies.
        let Some((route, compiled)) = rules.find(&facts)? else { return Ok(LocalResponse::Authorized) };
        if route.authorize.is_some() {
            return Err(LocalResponse::BadOriginal(OriginalRequestError::Recursive));
        }
        record.record_route(route, compiled);
        #[cfg(feature = "gateway")]
        record.record_lines(&self.recorder, rules, &facts);
        #[cfg(feature = "gateway")]
        if let Some(needs) = compiled.identity {
            let (place, asked) = ((active, store), (&original.method, &facts));
            if needs.reads.token
                && let Some(rejection) = self.reject_before_verification(place, (route, compiled), asked, record).await
            {
                return Err(rejection);
            }
            if verify(rules, needs, &mut facts) {
                verify_again(rules, needs, &mut facts).await;
            }
            record.record_identity(needs, facts.identity.as_deref(), &self.metrics);
        }
        if facts.identity_fault().is_some() {
            return Err(self.reject_unidentified((active, store), (route, compiled), &facts, record).await);
        }
        let charges = self.charges((active, store), route, &facts, record)?;
        record.start_decision(&charges, store);
        let waits = record.waits((route, compiled), &facts);
        let admitted = admit(store, &self.queues, &charges, waits).await;
        self.record_admitted(&charges, &admitted, (compiled, store), record);
        if let Err(denial) = admitted {
            return Err(super::decide::local_response(&charges, denial));
        }
        // A route can deny requests by its own response.
        match action::respond(route, || action::values(rules, route, &facts, record)) {
            Some(response) if !response.status().is_success() => Err(response),
            _ => Ok(LocalResponse::Authorized),
        }
    }
}
