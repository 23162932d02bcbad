//! Decides about a request: admits it, or returns the reason for a rejection.

use std::net::IpAddr;
use std::sync::Arc;

use http::uri::Parts;
use http::{Extensions, HeaderMap, Request, Uri};

use super::active::{Active, Snapshot};
use super::limits::Passed;
use super::record::RequestRecord;
use super::request_id::X_REQUEST_ID;
use super::{LayerState, ask, over_limit, peer, request_body, request_id, respond};
use crate::local_response::LocalResponse;
use crate::ruleset::{ForwardContext, RequestOrigin, RuleSet};
use tidegate_limit::calendar::schedule::Minute;
use tidegate_rules::evaluation::{Evaluation, Subject};
use tidegate_rules::request::facts::{BadRequest, Facts};
use tidegate_rules::request::sanitize::{FieldKinds, NextHop, RequestContext};
use tidegate_rules::route::upgrade::is_tunnel;
use tidegate_rules::route::{FieldChanges, RenderedValues, Rewrite};
use tidegate_rules::rules::Charges;

impl LayerState {
    /// Admits a request and inserts its [`ForwardContext`], or returns the reason for a rejection. If the layer changes
    /// requests, it also sets the normalized path. Returns the charges that were made.
    #[expect(clippy::manual_async_fn, reason = "the future of an async fn stores its arguments twice")]
    pub(super) fn decide<'r, B: 'static>(
        &'r self,
        active: &'r Active,
        request: &mut Request<B>,
        record: &mut RequestRecord<'r>,
    ) -> impl Future<Output = Result<Charges<'r>, LocalResponse>> {
        async move {
            let rules = &*active.rules;
            rules.record_arrival(request);
            if rules.reads_bodies {
                self.prepare_body(request, record);
            }
            let peer = RequestPeer::new(request.extensions(), rules);
            if rules.assigns_request_ids() {
                record.record_id(request_id::request_id(request.headers(), peer.is_trusted));
            }
            let context =
                RequestContext { version: request.version(), trusted: peer.is_trusted, next: self.options.next };
            // The kinds of fields are only of use if the layer changes requests.
            let (kinds, screened) = match self.options.changes_requests() {
                true => (self.sanitize(rules, request.headers_mut(), context)?, None), // 400, 508
                false => (FieldKinds::default(), Some(rules.screen(request.headers(), context))),
            };
            let (facts, subject) = match &screened {
                None => (rules.read(request, peer.address, self.options.next)?, Subject::Request), // 400, 501
                Some(screened) => {
                    (rules.read_unnormalized(request, screened, peer.address)?, Subject::Unchanged(screened.fault))
                }
            };
            let mut evaluation = peer.evaluation(rules, request, facts, subject);
            if rules.reads_time {
                evaluation.facts.time = Minute::of(self.store(active).now());
            }
            let snapshot = Snapshot { active, store: self.store(active) };
            let Passed { permit, charges } = self.evaluate(snapshot, &mut evaluation, record).await?; // all other statuses
            let (facts, upgrade) = (&evaluation.facts, evaluation.upgrade.take());
            let origin = RequestOrigin { facts, context, worker: self.worker };
            let mut forward_context = active.rules.forward_context(permit, record.found, origin, kinds, upgrade);
            forward_context.fields = changed_fields(&active.rules, facts, record);
            let rewrite = record.route().and_then(|route| route.rewrite.as_deref());
            let target = self.target(request.uri(), facts, rewrite)?;
            if let Some(route) = record.route() {
                ask::replace_passed(&route.require, request.headers_mut(), record);
            }
            over_limit::forward(request, &mut forward_context, &charges, (self.worker, record));
            if active.rules.reads_bodies {
                forward_context.metering = request_body::forward(request, record);
            }
            prepare_for_service(request, forward_context, target, record);
            Ok(charges)
        }
    }

    fn sanitize(
        &self,
        rules: &RuleSet,
        headers: &mut HeaderMap,
        context: RequestContext,
    ) -> Result<FieldKinds, BadRequest> {
        rules.sanitize(headers, context).map_err(BadRequest::from).inspect_err(|bad| self.count_bad_field(bad))
    }

    pub(super) fn count_bad_field(&self, bad: &BadRequest) {
        if let BadRequest::BadField(field) = bad {
            self.metrics.rejected(field.cause());
        }
    }

    /// Returns the new target of the request, or `None` if it does not change. A handler gets no rewritten path.
    fn target(&self, uri: &Uri, facts: &Facts<'_>, rewrite: Option<&Rewrite>) -> Result<Option<Uri>, LocalResponse> {
        let rewrite = rewrite.filter(|_| self.options.next == NextHop::Origin);
        if self.options.changes_requests() { normal_target(uri, facts, rewrite) } else { Ok(None) }
    }
}

/// The peer of a request, and how far the rules trust it. It and the facts are passed by value, since what is borrowed is
/// part of the future of each request.
#[derive(Clone, Copy)]
struct RequestPeer {
    address: Option<IpAddr>,
    is_client: bool,
    is_trusted: bool,
}

impl RequestPeer {
    fn new(extensions: &Extensions, rules: &RuleSet) -> Self {
        let address = peer::address(extensions);
        let is_proxy = address.is_some_and(|address| rules.trusts(address));
        let is_client = is_proxy && peer::is_client(extensions);
        Self { address, is_client, is_trusted: is_proxy && !is_client }
    }

    /// Starts the evaluation of the peer's request with these facts.
    fn evaluation<'r, 'f, B>(
        self,
        rules: &'r RuleSet,
        request: &'f Request<B>,
        mut facts: Facts<'f>,
        subject: Subject,
    ) -> Evaluation<'r, 'f> {
        let extensions = request.extensions();
        facts.tls = peer::tls(extensions);
        facts.extensions = Some(extensions);
        facts.peer_is_client = self.is_client;
        facts.peer_is_trusted = self.is_trusted;
        Evaluation::new(&rules.rules, facts, subject).with_target(request.uri(), is_tunnel(request))
    }
}

/// Returns the changes of the route to the header fields, with the values of their templates.
fn changed_fields(
    rules: &RuleSet,
    facts: &Facts<'_>,
    record: &RequestRecord<'_>,
) -> Option<Box<(Arc<FieldChanges>, RenderedValues)>> {
    let route = record.route()?;
    let changes = route.request_headers.as_ref()?;
    let rendered = changes.render(&respond::values(rules, route, facts, record));
    Some(Box::new((changes.clone(), rendered)))
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
