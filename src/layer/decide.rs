//! The decision about a request, step by step: admits it, or returns the reason for a rejection.

use http::uri::Parts;
use http::{HeaderMap, Request, Uri};

use super::active::Active;
use super::builder::Unmatched;
use super::record::RequestRecord;
use super::request_id::X_REQUEST_ID;
#[cfg(feature = "gateway")]
use super::verify::{verify, verify_again};
use super::{LayerState, action, peer, request_id, route_lookup};
use crate::admission::{Admitted, Denial, Receipt, admit, admit_unlimited, store_failure};
#[cfg(feature = "gateway")]
use crate::clock::unix_seconds;
use crate::facts::{BadRequest, Facts};
use crate::headers;
use crate::local_response::{LocalResponse, ViolatedLimits};
use crate::route::{Rewrite, Route};
use crate::rules::Charges;
use crate::ruleset::{CompiledRoute, ForwardContext, RequestOrigin, RuleSet};
use crate::sanitize::{FieldKinds, NextHop, RequestContext};
use crate::store::Store;
use crate::upgrade::{Offer, is_tunnel};

impl LayerState {
    /// Admits a request and inserts its [`ForwardContext`], or returns the reason for a rejection. If the layer changes
    /// requests, it also sets the normalized path.
    #[expect(clippy::manual_async_fn, reason = "the future of an async fn stores its arguments twice")]
    pub(super) fn decide<'r, B>(
        &self,
        active: &'r Active,
        store: &Store,
        request: &mut Request<B>,
        record: &mut RequestRecord<'r>,
    ) -> impl Future<Output = Result<Receipt, LocalResponse>> {
        async move {
            let rules = &*active.rules;
            #[cfg(feature = "gateway")]
            rules.record_receipt(request);
            let peer = peer::address(request.extensions());
            let is_proxy = peer.is_some_and(|peer| rules.trusts(peer));
            let peer_is_client = is_proxy && peer::is_client(request.extensions());
            let trusted_peer = is_proxy && !peer_is_client;
            if rules.assigns_request_ids() {
                record.record_id(request_id::request_id(request.headers(), trusted_peer));
            }
            let context = RequestContext { version: request.version(), trusted: trusted_peer, next: self.options.next };
            // The kinds of fields are only of use if the layer changes requests.
            let (kinds, screened) = match self.options.changes_requests() {
                true => (self.sanitize(rules, request.headers_mut(), context)?, None), // 400, 508
                false => (FieldKinds::default(), Some(rules.screen(request.headers(), context))),
            };
            let mut facts = match &screened {
                None => rules.read(request, peer, self.options.next)?, // 400, 501
                Some(screened) => rules.read_unnormalized(request, screened, peer)?,
            };
            facts.tls = peer::tls(request.extensions());
            facts.extensions = Some(request.extensions());
            facts.peer_is_client = peer_is_client;
            facts.peer_is_trusted = trusted_peer;
            if screened.is_none() && facts.is_for_server() {
                return Err(LocalResponse::Options); // 204
            }
            record.record_facts(rules, &facts);
            if let Some((route, compiled)) = rules.find_preflight(&facts) {
                record.record_route(route, compiled);
                return Err(record.answer_preflight(route, &facts)); // 204, 403
            }
            if let Some((route, compiled)) = rules.find_quota(&facts) {
                record.record_route(route, compiled);
                record.record_origin(route, &facts);
                // The endpoint has its own limit, which also limits guesses.
                self.quotas.admit(&facts, rules.client_network(&facts, trusted_peer))?; // 405, 429
                #[cfg(feature = "gateway")]
                if let Some(needs) = compiled.identity {
                    facts.identity = Some(Box::new(rules.identify(needs, &facts, unix_seconds())));
                }
                // Boxed, so that other requests do not pay for its memory.
                let response = Box::pin(self.quotas.respond((active, store), route, &facts)).await;
                let depends_on_identity = matches!(response, LocalResponse::Quota(_) | LocalResponse::NoClient { .. });
                let rejection = not_identified(route, &facts).filter(|_| depends_on_identity);
                let response = rejection.unwrap_or(response);
                #[cfg(feature = "gateway")]
                record.record_ban(&response, &self.metrics);
                return Err(response);
            }
            let found = match &screened {
                None => rules.find(&facts)?, // 400
                Some(screened) => route_lookup::find(rules, request.uri(), &mut facts, screened.fault)
                    .inspect_err(|bad| self.count_bad_field(bad))?, // 400
            };
            let Some((route, compiled)) = found else {
                #[cfg(feature = "gateway")]
                record.record_lines(&self.recorder, rules, &facts);
                let Unmatched::Pass = self.options.unmatched else { return Err(LocalResponse::NoRoute) }; // 404
                let origin = RequestOrigin { facts: &facts, context, worker: self.worker };
                let forward_context = rules.forward_context(admit_unlimited().permit, None, origin, kinds, None);
                let target = self.target(request.uri(), &facts, None)?;
                prepare_for_service(request, forward_context, target, record);
                return Ok(Receipt::default());
            };
            record.record_route(route, compiled);
            record.record_origin(route, &facts);
            if let Some(authorize) = route.authorize {
                record.record_authorize(authorize);
                // Boxed, so that other requests do not pay for its memory.
                let authorized = Box::pin(self.authorize((active, store), authorize, &facts, record)).await;
                return Err(authorized.unwrap_or_else(|rejection| rejection));
            }
            let offer = request.extensions().get::<Offer>(); // only the gateway's server adds it
            let upgrade = offer.and_then(|offer| route.upgrades.choose(offer)).map(Box::new);
            if upgrade.is_none() && is_tunnel(request) {
                return Err(LocalResponse::MethodNotImplemented); // 501
            }
            if route.is_too_long(&facts) {
                self.metrics.rejected("max_body");
                return Err(LocalResponse::BodyTooLong); // 413
            }
            #[cfg(feature = "gateway")]
            record.record_lines(&self.recorder, rules, &facts);
            if facts.peer.is_none() {
                self.missing_peer_warning.log_once(&route.limits);
            }
            #[cfg(feature = "gateway")]
            if let Some(needs) = compiled.identity {
                let (place, asked) = ((active, store), (request.method(), &facts));
                if needs.reads.token {
                    // Boxed, so that other requests do not pay for its memory.
                    let rejection = Box::pin(self.reject_before_verification(place, (route, compiled), asked, record));
                    if let Some(rejection) = rejection.await {
                        return Err(rejection); // 403, 429
                    }
                }
                if verify(rules, needs, &mut facts) {
                    // Boxed, so that other requests do not pay for its memory.
                    Box::pin(verify_again(rules, needs, &mut facts)).await;
                }
                record.record_identity(needs, facts.identity.as_deref(), &self.metrics);
            }
            if facts.identity_fault().is_some() {
                // Boxed, as it is rare and large.
                let rejection = Box::pin(self.reject_unidentified((active, store), (route, compiled), &facts, record));
                return Err(rejection.await); // 401, 403, 429, 503
            }
            let charges = self.charges((active, store), route, &facts, record)?; // 400, 403
            record.start_decision(&charges, store);
            let waits = record.waits((route, compiled), &facts);
            let admitted = match &route.concurrency {
                // Boxed, so that other routes do not pay for its memory.
                Some(concurrency) => {
                    let route = (route, compiled, &**concurrency);
                    Box::pin(self.admit_with_slot((rules, store), &facts, route, (&charges, waits), record)).await
                }
                None => admit(store, &self.queues, &charges, waits).await,
            };
            if let Err(Denial::Busy { full, .. }) = admitted {
                return Err(LocalResponse::Busy { by_client: full.client }); // 429, 503
            }
            self.record_admitted(&charges, &admitted, (compiled, store), record);
            let Admitted { permit, status, .. } = match admitted {
                Ok(admitted) => admitted,
                Err(denial) => {
                    let response = local_response(&charges, denial); // 429, 503
                    if self.options.on_reject.is_some() {
                        return Err(response);
                    }
                    let values = || action::values(rules, route, &facts, record);
                    return Err(action::reject(route, (request.method(), facts.headers), response, values));
                }
            };
            if let Some(response) = action::respond(route, || action::values(rules, route, &facts, record)) {
                return Err(response);
            }
            let origin = RequestOrigin { facts: &facts, context, worker: self.worker };
            let mut forward_context = rules.forward_context(permit, Some((route, compiled)), origin, kinds, upgrade);
            if let Some(changes) = &route.request_headers {
                let rendered = changes.render(&action::values(rules, route, &facts, record));
                forward_context.fields = Some(Box::new((changes.clone(), rendered)));
            }
            let rewrite = route.rewrite.as_deref().filter(|_| self.options.next == NextHop::Origin);
            let target = self.target(request.uri(), &facts, rewrite)?;
            prepare_for_service(request, forward_context, target, record);
            Ok(Receipt::new(charges, status))
        }
    }

    /// Returns the charges of a request to this route.
    pub(super) fn charges<'r>(
        &self,
        (active, store): (&'r Active, &Store),
        route: &'r Route,
        facts: &Facts<'_>,
        record: &mut RequestRecord<'_>,
    ) -> Result<Charges<'r>, LocalResponse> {
        let charges = active.charges(store, route, facts);
        #[cfg(feature = "gateway")]
        let charges = charges.inspect_err(|cause| record.record_ban(cause, &self.metrics));
        #[cfg(not(feature = "gateway"))]
        let _ = (&self.metrics, record);
        charges
    }

    /// Counts and records the decision about a request.
    pub(super) fn record_admitted(
        &self,
        charges: &Charges<'_>,
        admitted: &Result<Admitted, Denial>,
        (compiled, store): (&CompiledRoute, &Store),
        record: &mut RequestRecord<'_>,
    ) {
        compiled.count(charges, admitted, |_one| {
            #[cfg(feature = "gateway")]
            if let (Some(rejected), Some(limit)) = (&self.options.rejected, compiled.limit_id(_one.index)) {
                rejected.record(self.worker.unwrap_or(0), limit, _one.charge.client.as_ref(), store);
            }
        });
        if let Some(error) = store_failure(admitted) {
            self.metrics.store_failed(error.cause());
        }
        record.record_client_key(charges, store);
        record.record_decision(charges, admitted);
    }

    fn sanitize(
        &self,
        rules: &RuleSet,
        headers: &mut HeaderMap,
        context: RequestContext,
    ) -> Result<FieldKinds, BadRequest> {
        rules.sanitize(headers, context).map_err(BadRequest::from).inspect_err(|bad| self.count_bad_field(bad))
    }

    fn count_bad_field(&self, bad: &BadRequest) {
        if let BadRequest::BadField(field) = bad {
            self.metrics.rejected(field.cause());
        }
    }

    /// Returns the new target of the request, or `None` if it does not change.
    fn target(&self, uri: &Uri, facts: &Facts<'_>, rewrite: Option<&Rewrite>) -> Result<Option<Uri>, LocalResponse> {
        if self.options.changes_requests() { normal_target(uri, facts, rewrite) } else { Ok(None) }
    }
}

/// Returns the rejection of a request whose credentials are not accepted. Returns `None` for other requests.
pub(super) fn not_identified(route: &Route, facts: &Facts<'_>) -> Option<LocalResponse> {
    let fault = facts.identity_fault()?;
    Some(LocalResponse::NotIdentified { fault, accepted: route.identity_kinds() })
}

/// Returns the reason for a rejection by limits or the store.
pub(super) fn local_response(charges: &Charges<'_>, denial: Denial) -> LocalResponse {
    match denial {
        Denial::StoreFailed(_) => LocalResponse::StoreFailed,
        Denial::Busy { full, .. } => LocalResponse::Busy { by_client: full.client },
        Denial::Limited { status, wait } => {
            let remaining =
                status.refusing(charges).filter_map(|one| Some(status.decision(one.index)?.remaining)).min();
            let violated = status.refusing(charges).map(|one| one.limit.name.as_str());
            let violated = violated.collect::<ViolatedLimits>().with_remaining(remaining.unwrap_or(0));
            LocalResponse::Limited { violated, retry_after: headers::retry_after(wait) }
        }
    }
}

/// Inserts the context, the new target and the id into the request for the inner service.
fn prepare_for_service<B>(
    request: &mut Request<B>,
    context: ForwardContext,
    target: Option<Uri>,
    record: &RequestRecord<'_>,
) {
    request.extensions_mut().insert(context);
    if let Some(id) = record.request_id() {
        request.headers_mut().insert(X_REQUEST_ID, id.clone());
    }
    if let Some(target) = target {
        *request.uri_mut() = target;
    }
}

/// Returns the target with the normalized path, so that the inner service gets the path that the rules matched, or with
/// the rewritten path. Returns `None` if the path does not change.
fn normal_target(uri: &Uri, facts: &Facts<'_>, rewrite: Option<&Rewrite>) -> Result<Option<Uri>, LocalResponse> {
    let rewritten = rewrite.and_then(|rewrite| rewrite.path(&facts.path));
    if uri.path() == rewritten.as_deref().unwrap_or(facts.path.normalized()) {
        return Ok(None);
    }
    let mut target = rewritten.unwrap_or_else(|| facts.path.normalized().to_owned());
    if let Some(query) = facts.query {
        target.extend(["?", query]);
    }
    // Without a clone of the old path, which would allocate.
    let mut parts = Parts::default();
    (parts.scheme, parts.authority) = (uri.scheme().cloned(), uri.authority().cloned());
    parts.path_and_query = Some(target.try_into().map_err(|_| LocalResponse::Malformed)?);
    Uri::from_parts(parts).map(Some).map_err(|_| LocalResponse::Malformed)
}
