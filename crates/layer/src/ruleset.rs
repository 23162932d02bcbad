//! One version of the rules, compiled at load.

use std::any::Any;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request};
use ipnet::IpNet;
use tokio::time::Instant;

use crate::admission::{Permit, may_wait};
use crate::authorization::{AskService, WorkerServices};
use crate::domains::CompiledDomains;
use crate::headers::Members;
use crate::limit_counters::LimitCounters;
use crate::limit_names::LimitNames;
use crate::metering::Metering;
use crate::recording::Inputs;
use crate::rejected::{Cause, LimitId};
use tidegate_metrics::{InFlightMetrics, Metrics, RouteMetrics, ServiceMetrics, WaitMetrics};
use tidegate_rules::charge::{ClientId, Limiter};
use tidegate_rules::client::ClientSource;
use tidegate_rules::limits::policy::Policy;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::request::facts::grpc_timeout::{Received, has_grpc_timeout};
use tidegate_rules::request::facts::{BadRequest, Facts, HostRequirement};
use tidegate_rules::request::sanitize::{
    BadField, FieldFilter, FieldKind, FieldKinds, NextHop, RequestContext, Screened,
};
use tidegate_rules::route::upgrade::Upgrade;
use tidegate_rules::route::{Compression, FieldChanges, OnLimit, RenderedValues, Rewrite, Route};
use tidegate_rules::rules::{Rules, Verifier};
use tidegate_service::Domains;

/// The rules that apply to a request from its facts to its response.
#[derive(Debug)]
pub struct RuleSet {
    pub rules: Arc<Rules>,
    /// Verifies the credentials of requests.
    verifier: Verifier,
    field_filter: Arc<FieldFilter>,
    /// One for each route, in the order of the routes.
    compiled: Vec<CompiledRoute>,
    /// Counts the responses to requests that match no route.
    unrouted: RouteMetrics,
    /// Asks the services of routes. Empty in a layer, whose routes have none.
    services: WorkerServices,
    /// The domains of the rate limit service.
    pub domains: CompiledDomains,
    /// The limits of the routes by their names.
    pub names: LimitNames,
    /// The values of requests that recordings have.
    pub recorded: Arc<Inputs>,
    /// Whether a route has a `timeout`, or an upstream a `total` timeout.
    has_total_timeouts: bool,
    /// Whether a limit applies only at some times of the week.
    pub reads_time: bool,
    /// Whether a limit depends on the bodies of requests, or on responses.
    pub reads_bodies: bool,
}

/// The data that the layer passes to the service below, in the extensions of an admitted request. It contains the
/// permit that admits the request.
#[must_use]
#[derive(Clone, Debug)]
pub struct ForwardContext {
    pub _permit: Permit,
    /// The upstream of the route, with the connections of the worker that serves the request.
    pub upstream: Option<Arc<dyn RouteUpstream>>,
    /// The address of the peer.
    pub peer: IpAddr,
    /// Whether the peer is a trusted proxy. Its forwarding fields are kept.
    pub trusted_peer: bool,
    /// Whether the request came over TLS.
    pub over_tls: bool,
    /// The client whose share of the upstream's connections the request uses.
    pub client: Option<IpNet>,
    /// The maximum length of the body, in bytes.
    pub max_body: u64,
    /// The kinds of proxy-related fields that the request still has.
    pub kinds: FieldKinds,
    /// The filter for trailers; `None` if the request has none.
    pub field_filter: Option<Arc<FieldFilter>>,
    /// The changes of the header fields, with the values of their templates. Boxed, since few routes have any.
    pub fields: Option<Box<(Arc<FieldChanges>, RenderedValues)>>,
    /// The changes of the host.
    pub rewrite: Option<Arc<Rewrite>>,
    /// The longest time until the end of the response.
    pub timeout: Option<Duration>,
    /// The compression of the response.
    pub compression: Option<Arc<Compression>>,
    /// The protocol to offer the upstream. Boxed, since few requests have one.
    pub upgrade: Option<Box<Upgrade>>,
    /// The reservations of a request whose cost is known only after the response.
    pub metering: Option<Arc<Metering>>,
}

/// The upstream of a route, for a service that forwards requests. The service gets its own type back by a downcast.
pub trait RouteUpstream: Any + Debug + Send + Sync {
    /// Returns the longest time from the receipt of a request until the end of its response.
    fn total_timeout(&self) -> Option<Duration>;
}

/// An upstream, with the connections of each worker.
pub type WorkerUpstreams = Box<[Arc<dyn RouteUpstream>]>;

/// How a request reached the gateway.
#[derive(Clone, Copy, Debug)]
pub struct RequestOrigin<'f> {
    pub facts: &'f Facts<'f>,
    pub context: RequestContext,
    /// The worker that serves the request.
    pub worker: Option<usize>,
}

/// A route, with its compiled data.
#[derive(Clone, Copy, Debug)]
pub struct FoundRoute<'r> {
    pub route: &'r Route,
    pub compiled: &'r CompiledRoute,
}

/// The data of a route that every request needs.
#[derive(Debug)]
pub struct CompiledRoute {
    metrics: RouteMetrics,
    /// The counters of the limits.
    pub limits: LimitCounters,
    /// The identities of the other causes of rejections, in the order of [`Cause::ALL`].
    cause_ids: [LimitId; Cause::ALL.len()],
    /// The upstream of the route, for each worker.
    upstreams: WorkerUpstreams,
    /// The upstream for requests over a limit, for each worker. Empty for most routes.
    over_limit: WorkerUpstreams,
    /// The waiting times, if a limit of the route lets requests wait.
    pub waits: Option<WaitMetrics>,
    /// The requests in flight, if the route bounds them.
    in_flight: Option<InFlightMetrics>,
    /// The answers of services, if the route has one.
    service_checks: Option<ServiceMetrics>,
    /// Whether a limit is charged by the responses to its requests (`charge_on`).
    pub charges_by_response: bool,
    /// The `RateLimit-Policy` field.
    pub policy: Option<Policy>,
    /// The members of the `RateLimit` field.
    pub members: Members,
}

static GET: Method = Method::GET;

// === impl RuleSet ===

/// All that the rules can answer without the compiled data.
impl Deref for RuleSet {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        &self.rules
    }
}

impl RuleSet {
    pub fn new(rules: Arc<Rules>, verifier: Verifier, metrics: &Metrics) -> Self {
        let compiled = rules.routes.iter().map(|route| CompiledRoute::new(route, metrics)).collect();
        let field_filter = Arc::new(rules.field_filter());
        Self {
            recorded: Arc::new(Inputs::new(&rules, &|_| true)),
            reads_time: rules.reads_time(),
            reads_bodies: rules.reads_bodies(),
            rules,
            verifier,
            field_filter,
            compiled,
            unrouted: metrics.route(""),
            services: Box::default(),
            domains: CompiledDomains::new(Arc::default(), metrics),
            names: LimitNames::default(),
            has_total_timeouts: false,
        }
    }

    /// Adds the domains of the rate limit service.
    pub fn with_domains(self, domains: Arc<Domains>, metrics: &Metrics) -> Self {
        Self { domains: CompiledDomains::new(domains, metrics), ..self }
    }

    /// Adds the upstreams of the routes. `find` returns the upstream with a name.
    pub fn with_upstreams(mut self, find: &dyn Fn(&str) -> WorkerUpstreams) -> Self {
        for (route, compiled) in self.rules.routes.iter().zip(&mut self.compiled) {
            compiled.upstreams = route.action.upstream().map(|name| find(name)).unwrap_or_default();
            let over_limit = route.on_limit.as_ref().and_then(OnLimit::upstream);
            compiled.over_limit = over_limit.map(|name| find(name)).unwrap_or_default();
            self.has_total_timeouts |= route.timeout.is_some();
            self.has_total_timeouts |= compiled
                .upstreams
                .iter()
                .chain(&compiled.over_limit)
                .any(|upstream| upstream.total_timeout().is_some());
        }
        self
    }

    /// Adds the connections to the services of routes.
    pub fn with_services(self, services: WorkerServices) -> Self {
        Self { services, ..self }
    }

    /// Returns the connections of a worker to the services of routes.
    pub fn service(&self, worker: Option<usize>) -> Option<&dyn AskService> {
        self.services.get(worker.unwrap_or(0)).map(|service| &**service)
    }

    /// Removes fields that no rule and no upstream may read. Returns the kinds of the remaining fields that concern a
    /// proxy.
    pub fn sanitize(&self, headers: &mut HeaderMap, context: RequestContext) -> Result<FieldKinds, BadField> {
        self.field_filter.apply(headers, context)
    }

    /// Returns the fields of a request that the rules may read.
    pub fn screen(&self, headers: &HeaderMap, context: RequestContext) -> Screened {
        self.field_filter.screen(headers, context)
    }

    /// Returns `true` if the peer is a trusted proxy.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.rules.addresses.trusts(peer.to_canonical())
    }

    /// Returns `true` if each request gets an id.
    pub fn assigns_request_ids(&self) -> bool {
        self.rules.requests.request_id
    }

    /// Returns the limit with this name of a route or a domain, with the route that operators see.
    pub fn find_limit(&self, route: &str, limit: &str) -> Option<(&str, &Limit)> {
        let of_routes = || self.rules.limits().find(|(owner, other)| *owner == route && other.name == limit);
        self.domains.find_limit(route, limit).or_else(of_routes)
    }

    /// Returns the limiters of all limits, of routes and of domains.
    pub fn limiters(&self) -> impl Iterator<Item = &Arc<Limiter>> {
        self.rules.limits().map(|(_, limit)| &limit.limiter).chain(self.domains.limiters())
    }

    /// Reads the facts of a request. Handlers check the host themselves.
    pub fn read<'a, B>(
        &self,
        request: &'a Request<B>,
        peer: Option<IpAddr>,
        next: NextHop,
    ) -> Result<Facts<'a>, BadRequest> {
        let (method, uri) = (request.method(), request.uri());
        let (method, host) = match next {
            NextHop::Origin => (method, request.version().into()),
            NextHop::Handler => (method_for_handler(request), HostRequirement::Optional),
        };
        self.rules.read(method, uri, host, request.headers(), peer)
    }

    /// Reads the facts of a request without normalizing its path and query. Uses only the fields that rules may read.
    pub fn read_unnormalized<'a, B>(
        &self,
        request: &'a Request<B>,
        screened: &'a Screened,
        peer: Option<IpAddr>,
    ) -> Result<Facts<'a>, BadRequest> {
        let headers = screened.copy.as_deref().unwrap_or(request.headers());
        self.rules.read_unnormalized(method_for_handler(request), request.uri(), headers, peer)
    }

    /// Returns the data of the route at this position.
    pub fn compiled(&self, position: usize) -> Option<&CompiledRoute> {
        self.compiled.get(position)
    }

    /// Returns the route with this name.
    pub fn find_named(&self, name: &str) -> Option<FoundRoute<'_>> {
        let mut routes = self.rules.routes.iter().zip(&self.compiled);
        routes.find(|(route, _)| *route.name == *name).map(|(route, compiled)| FoundRoute { route, compiled })
    }

    /// Returns the verifier of credentials.
    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// Returns the network to which a request's use of shared resources is attributed.
    pub fn client_network(&self, facts: &Facts<'_>) -> Option<IpNet> {
        self.rules.addresses.client_network(facts, facts.peer_is_trusted)
    }

    /// Records when a request arrived, if it may have a deadline.
    pub fn record_arrival<B>(&self, request: &mut Request<B>) {
        if self.has_total_timeouts || has_grpc_timeout(request.method(), request.headers()) {
            request.extensions_mut().insert(Received(Instant::now()));
        }
    }

    /// Creates the context for the service below. Without a route, the request goes to a handler.
    pub fn forward_context(
        &self,
        permit: Permit,
        found: Option<FoundRoute<'_>>,
        origin: RequestOrigin<'_>,
        kinds: FieldKinds,
        upgrade: Option<Box<Upgrade>>,
    ) -> ForwardContext {
        let RequestOrigin { facts, context, .. } = origin;
        let route = found.map(|found| found.route);
        ForwardContext {
            _permit: permit,
            upstream: found.and_then(|found| found.compiled.upstreams.get(origin.worker.unwrap_or(0)).cloned()),
            kinds,
            field_filter: kinds.has(FieldKind::MayHaveTrailers).then(|| Arc::clone(&self.field_filter)),
            // Only the gateway reads this, and its requests have a peer.
            peer: facts.peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            trusted_peer: context.trusted,
            over_tls: facts.tls.is_some(),
            client: self.client_network(facts),
            max_body: route.map_or(u64::MAX, |route| route.max_body),
            fields: None,
            rewrite: route.and_then(|route| route.rewrite.clone()),
            timeout: route.and_then(|route| route.timeout),
            compression: route.and_then(|route| route.compression.clone()),
            upgrade,
            metering: None,
        }
    }

    /// Returns the client's address: the nearest hop that is not a trusted proxy.
    pub fn client_address(&self, facts: &Facts<'_>) -> Option<IpAddr> {
        self.rules.addresses.address(facts)
    }

    /// Returns the client of a request by its address. `None` if its peer has no address.
    pub fn client_by_address(&self, facts: &Facts<'_>) -> Option<ClientId> {
        ClientSource::Ip.identify(facts, &self.rules.addresses).ok()
    }

    /// Returns the counters of a route's responses.
    pub fn metrics<'r>(&'r self, found: Option<FoundRoute<'r>>) -> &'r RouteMetrics {
        found.map_or(&self.unrouted, |found| &found.compiled.metrics)
    }
}

/// Returns the method that handlers see: a CONNECT with a path over HTTP/2 corresponds to a GET with `Upgrade` over
/// HTTP/1 (RFC 8441).
fn method_for_handler<B>(request: &Request<B>) -> &Method {
    match *request.method() == Method::CONNECT && request.uri().path().starts_with('/') {
        true => &GET,
        false => request.method(),
    }
}

// === impl CompiledRoute ===

impl CompiledRoute {
    fn new(route: &Route, metrics: &Metrics) -> Self {
        let responses = metrics.route(Arc::clone(&route.name));
        let (policy, members) = match route.rate_limit_headers.ietf {
            true => (Policy::new(&route.limits), Members::new(&route.limits)),
            false => (None, Members::default()),
        };
        let has_service = route.require.services().next().is_some();
        let waits = route.limits.iter().any(may_wait).then(|| metrics.waits(Arc::clone(&route.name)));
        Self {
            metrics: responses,
            limits: LimitCounters::new(&route.name, &route.limits, metrics),
            cause_ids: Cause::ALL.map(|cause| LimitId::of_cause(&route.name, cause)),
            upstreams: Box::default(),
            over_limit: Box::default(),
            waits,
            in_flight: route.concurrency.as_ref().map(|_| metrics.in_flight(Arc::clone(&route.name))),
            service_checks: has_service.then(|| metrics.service_checks(Arc::clone(&route.name))),
            charges_by_response: route.limits.iter().any(|limit| limit.charge_on.is_some()),
            policy,
            members,
        }
    }

    /// Returns the upstream for requests over a limit, with the connections of a worker.
    pub fn upstream_over_limit(&self, worker: Option<usize>) -> Option<Arc<dyn RouteUpstream>> {
        self.over_limit.get(worker.unwrap_or(0)).cloned()
    }

    /// Returns the metrics of requests in flight, if the route bounds them.
    pub fn in_flight(&self) -> Option<&InFlightMetrics> {
        self.in_flight.as_ref()
    }

    /// Returns the counts of answers of services, if the route has one.
    pub fn service_checks(&self) -> Option<&ServiceMetrics> {
        self.service_checks.as_ref()
    }

    /// Returns the longest time from the receipt of a request until the end of its response.
    pub fn total_timeout(&self) -> Option<Duration> {
        self.upstreams.first()?.total_timeout()
    }

    /// Returns the identity of another cause of rejections.
    pub fn cause_id(&self, cause: Cause) -> LimitId {
        self.cause_ids[cause as usize]
    }
}
