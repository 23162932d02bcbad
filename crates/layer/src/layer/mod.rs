//! [`RateLimitLayer`], a [`tower::Layer`] that enforces the rate limits of a rule file.
//!
//! ```text
//! sanitize -> facts -> route -> client -> charges -> admit -> inner service -> rate limit fields
//! ```
//!
//! The gateway is this layer around a service that forwards requests. In your own axum or hyper service, the layer is
//! around your handlers and uses the same rule file.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tidegate_layer::RateLimitLayer;
//!
//! let layer = RateLimitLayer::from_yaml("
//! routes:
//!   - name: all
//!     match: { path: /** }
//!     limits:
//!       - { name: per-ip, mode: PER_CLIENT, client: ip, rate: 3, interval: 10s }
//! ")?;
//! let handlers = Router::new().route("/hello", get(async || "hello"));
//! let app: Router = Router::new().fallback_service(handlers).layer(layer);
//! # Ok::<(), tidegate_layer::LayerError>(())
//! ```
//!
//! By default the layer does not change requests. It sanitizes fields and normalizes the path only to find routes and
//! clients, and it applies a limit if any interpretation of the path matches the limit's route; see
//! [`RateLimitLayerBuilder::sanitize`].
//!
//! Put the layer around the router, as in this example. A layer on a router runs after the router has chosen the
//! handler.
//!
//! Limits by address need the peer address: serve with `into_make_service_with_connect_info`, or insert a [`Peer`] into
//! the request's extensions. Without a peer address, the limit's `on_missing_client` decides. A request without a host
//! matches only routes without a host. A request that matches no route passes, unless [`Unmatched::Reject`] is set.

mod active;
mod answered;
mod ask;
mod body;
mod builder;
mod call;
mod call_overrides;
mod check;
mod concurrency;
mod credentials;
mod deadline;
mod decide;
mod disconnect;
mod evaluate;
mod files;
mod held_body;
mod known_overrides;
mod limits;
mod lines;
mod over_limit;
mod overrides;
mod peek;
mod peer;
mod post_paid;
mod quota;
mod record;
mod refused;
mod rejection;
mod rejections;
mod replace;
mod report;
mod request_body;
mod request_id;
mod respond;
pub mod take;
mod watch_file;

use std::future::Future;
use std::mem::take;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::{Either, Full};
use parking_lot::Mutex;
use tokio::sync::watch;
use tower::{Layer, Service};

use self::active::Active;
pub use self::active::Stores;
use self::body::ServedBody;
use self::builder::Options;
pub use self::builder::{LayerError, RateLimitLayerBuilder, Unmatched};
pub use self::call::{ActiveDomains, DecidedCall, DomainCall};
pub use self::check::{Admission, CheckError, Limited};
use self::disconnect::Disconnection;
pub use self::known_overrides::KnownOverrides;
pub use self::peek::PeekedCall;
use self::peer::MissingPeerWarning;
pub use self::peer::PeerIsClient;
pub use self::peer::{OverTls, Peer};
use self::quota::QuotaEndpoint;
use self::record::RequestRecord;
use self::record::guard::RequestGuard;
pub use self::rejection::Rejection;
pub use self::replace::RulesChange;
use self::replace::StartSettings;
pub use self::report::{ReportHandle, RequestOutcome, RequestReport};
pub use self::request_id::X_REQUEST_ID;
use crate::admission::WaitQueues;
use crate::authorization::WorkerServices;
use crate::build::{Limit, Rules};
use crate::local_response::LocalResponse;
use crate::recording::{Inputs, Recorder};
use crate::ruleset::RuleSet;
pub use crate::ruleset::{ForwardContext, RouteUpstream, WorkerUpstreams};
use tidegate_config::Config;
use tidegate_limit::boxed::boxed;
use tidegate_metrics::Metrics;
pub use tidegate_rules::request::facts::TlsPeer;
use tidegate_store::Store;
use tidegate_store::transfer::StoreState;

/// Enforces the rate limits of a rule file on the requests to an inner service, which must be `Clone`. Clones of the layer
/// are cheap, and share rules and buckets.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    state: Arc<LayerState>,
}

/// The service that [`RateLimitLayer`] creates: enforces rate limits on the requests to an inner service. A rejection is a
/// response; all errors are errors of the inner service.
#[derive(Clone, Debug)]
pub struct RateLimited<S> {
    state: Arc<LayerState>,
    inner: S,
}

/// The response body of [`RateLimited`]: the body of the inner service, or the body of a rejection.
pub type RateLimitedBody<B> = Either<ServedBody<B>, Full<Bytes>>;

/// Marks a response, in its extensions, to a request that caused no work. The layer refunds the permits of the request.
///
/// The gateway inserts it if no upstream has received the request. An inner service of your own can insert it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSent;

/// The state that clones of a layer and its services share.
#[derive(Clone, Debug)]
struct LayerState {
    active: Arc<ArcSwap<Active>>,
    /// Held while `active` is replaced.
    replacing: Arc<Mutex<StartSettings>>,
    /// Held while overrides are read from the store.
    reading_overrides: Arc<tokio::sync::Mutex<()>>,
    /// The store handle of a layer from [`RateLimitLayer::for_worker`]. A worker of the gateway uses the handle in
    /// `active`.
    own_store: Option<Store>,
    /// Changes when a ban disconnects clients.
    disconnecting_bans: Arc<watch::Sender<()>>,
    /// Records requests, for operators.
    recorder: Arc<Recorder>,
    /// The number of the gateway's worker that the layer belongs to.
    worker: Option<usize>,
    queues: Arc<WaitQueues>,
    metrics: Arc<Metrics>,
    options: Options,
    quotas: Arc<QuotaEndpoint>,
    missing_peer_warning: Arc<MissingPeerWarning>,
}

// === impl RateLimitLayer ===

impl RateLimitLayer {
    /// Returns a builder for a layer with settings that a rule file does not contain.
    pub fn builder() -> RateLimitLayerBuilder {
        RateLimitLayerBuilder::default()
    }

    /// Creates a layer from a rule file. Its routes need no `upstream`.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, LayerError> {
        Self::builder().from_file(path)
    }

    /// Creates a layer from the text of a rule file.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn from_yaml(text: &str) -> Result<Self, LayerError> {
        Self::builder().from_yaml(text)
    }

    /// Creates a layer with one limit for all requests, and a store in memory.
    ///
    /// ```
    /// use tidegate_layer::RateLimitLayer;
    /// use tidegate_layer::build::{Client, Limit, MINUTE};
    ///
    /// // Your service inserts a `tidegate_layer::ClientKey` into the extensions of each request.
    /// let layer = RateLimitLayer::limit(Limit::per_client("per-user", Client::extension()).rate(5, MINUTE))?;
    /// # Ok::<(), tidegate_layer::LayerError>(())
    /// ```
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn limit(limit: Limit) -> Result<Self, LayerError> {
        Self::from_rules(limit)
    }

    /// Creates a layer with rules that need no rule file, and a store in memory.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn from_rules(rules: impl Into<Rules>) -> Result<Self, LayerError> {
        Self::builder().from_rules(rules)
    }

    /// Creates a layer with the rules and the store of `config`. The layer counts in `metrics`.
    ///
    /// # Errors
    /// The store cannot be opened. An unreachable store is not an error: the limits' `on_store_failure` decides.
    pub fn new(config: &Config, metrics: Arc<Metrics>) -> Result<Self, LayerError> {
        Self::builder().metrics(metrics).from_config(config)
    }

    fn with_rules(config: &Config, store: Store, metrics: Arc<Metrics>, options: Options) -> Self {
        let rules = compile(config, &store, &metrics);
        store.set_active_limits(rules.limiters(), std::iter::empty());
        store.announce_as_gateway();
        let state = LayerState {
            active: Arc::new(ArcSwap::from_pointee(Active::new(rules, Stores::new(store, 0)))),
            replacing: Arc::new(Mutex::new(StartSettings::new(config))),
            reading_overrides: Arc::default(),
            disconnecting_bans: Arc::new(watch::Sender::new(())),
            recorder: Arc::default(),
            own_store: None,
            worker: None,
            queues: Arc::new(WaitQueues::new()),
            metrics,
            options,
            quotas: Arc::new(QuotaEndpoint::new()),
            missing_peer_warning: Arc::default(),
        };
        Self { state: Arc::new(state) }
    }

    /// Returns the same layer for a thread with its own runtime, in a program that has one runtime for each thread. It shares
    /// the rules and the buckets, but has its own connections to the store, so that requests never change threads.
    pub fn for_worker(&self) -> Self {
        let own_store = Some(self.state.store(&self.state.active.load()).for_worker());
        Self { state: Arc::new(LayerState { own_store, ..(*self.state).clone() }) }
    }

    /// Returns the same layer for a worker of the gateway. It uses the worker's handle of the active store, and the
    /// worker's upstreams.
    #[doc(hidden)]
    pub fn for_gateway_worker(&self, worker: usize) -> Self {
        Self { state: Arc::new(LayerState { worker: Some(worker), ..(*self.state).clone() }) }
    }

    /// Connects to a store in Redis before the first request, which then does not wait for a connection. Returns at once. The
    /// connections belong to the current Tokio runtime. Without this call they belong to the runtime of the first request.
    ///
    /// # Panics
    /// The store is in Redis, and the caller is outside a Tokio runtime.
    pub fn connect(&self) {
        self.state.store(&self.state.active.load()).connect();
    }

    /// Rejects all requests that wait for a permit (`max_wait`), and all later requests that would have to wait. Call it
    /// when the server begins to shut down: otherwise requests in flight can delay its end by their `max_wait`.
    pub fn stop_waiting(&self) {
        self.state.queues.close();
    }

    /// Returns `true` if the peer of a request is a trusted proxy.
    #[doc(hidden)]
    #[cfg(feature = "otlp")]
    pub fn trusts_peer(&self, extensions: &http::Extensions) -> bool {
        let peer = peer::address(extensions).filter(|_| !peer::is_client(extensions));
        peer.is_some_and(|peer| self.state.active.load().rules.trusts(peer))
    }

    /// Returns the store of the buckets.
    #[doc(hidden)]
    pub fn store(&self) -> Store {
        self.state.store(&self.state.active.load()).clone()
    }

    /// Returns the recordings of requests.
    #[doc(hidden)]
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.state.recorder
    }

    /// Returns the values that recordings have.
    #[doc(hidden)]
    pub fn recorded(&self) -> Arc<Inputs> {
        Arc::clone(&self.state.active.load().rules.recorded)
    }

    /// Takes over the state of the active limits from another process.
    #[doc(hidden)]
    pub fn take_over(&self, state: &StoreState) {
        let active = self.state.active.load();
        let limiters: Vec<_> = active.rules.limiters().cloned().collect();
        self.state.store(&active).take_over(state, &limiters);
    }

    /// Applies the resets of buckets that other gateways have announced.
    #[doc(hidden)]
    pub async fn follow_resets(&self) {
        let active = self.state.active.load_full();
        let limiters: Vec<_> = active.rules.limiters().cloned().collect();
        // If the store does not reply, the next call applies the resets.
        _ = self.state.store(&active).follow_resets(&limiters).await;
    }

    /// Runs the periodic maintenance of the store.
    #[doc(hidden)]
    pub fn run_maintenance(&self) {
        self.state.store(&self.state.active.load()).run_maintenance();
        self.state.quotas.run_maintenance();
    }

    /// Replaces the rules, the stores, the upstreams and the services of all workers for all later requests, in one step.
    /// `find_upstream` returns the upstream with a name.
    #[doc(hidden)]
    pub fn replace_all(
        &self,
        config: &Config,
        stores: Stores,
        find_upstream: &dyn Fn(&str) -> WorkerUpstreams,
        services: WorkerServices,
    ) {
        let rules = compile(config, stores.main(), &self.state.metrics);
        let rules = rules.with_upstreams(find_upstream).with_services(services);
        let _replacing = self.state.replacing.lock();
        let active = self.state.active.load();
        let is_new_store = !stores.main().has_same_buckets(active.stores.main());
        let before = active.rules.limiters().filter(|_| !is_new_store);
        stores.main().set_active_limits(rules.limiters(), before);
        self.state.active.store(Arc::new(active.with_rules(rules, stores)));
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> RateLimited<S> {
        RateLimited { state: Arc::clone(&self.state), inner }
    }
}

// === impl RateLimited ===

impl<S, B, RB> Service<Request<B>> for RateLimited<S>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
    RB: Send + 'static,
{
    type Response = Response<RateLimitedBody<RB>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // Only the old service has been polled ready, so it handles the request and the clone stays.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let state = Arc::clone(&self.state);
        // Not a separate async function: its future would store the request a second time.
        boxed(|| async move {
            let active = state.active.load_full(); // one snapshot for the whole request
            let report = request.extensions_mut().remove::<ReportHandle>();
            let mut guard = RequestGuard::new(&state, &active, report);
            let charges = match state.decide(&active, &mut request, &mut guard.record).await {
                Ok(charges) => charges,
                Err(local_response) => {
                    if guard.record.is_authorization() {
                        // The proxy reads only the status, and a gRPC error would have the status 200.
                        request.headers_mut().remove(CONTENT_TYPE);
                    }
                    let mut response = state.reject(local_response, &mut request, &guard.record).map(Either::Right);
                    guard.finish(&mut response);
                    return Ok(response);
                }
            };
            // A separate future can reuse the memory of the finished decision. Inline code would need more memory.
            let response = inner.call(request);
            let serve = async {
                let mut response = response.await;
                let client = (guard.record.client, guard.record.route());
                let disconnection = Disconnection::of_response(&state, client, &charges, &response);
                if guard.is_charged_by_response(&response) {
                    response = Box::pin(guard.charge_by_response(charges, response)).await; // boxed, as it is rare and large
                }
                // The body holds the slot of the request until it has ended.
                let served = |body| Either::Left(ServedBody::new(body, guard.take_slot(), disconnection));
                response.map(|response| response.map(served))
            };
            let mut result = serve.await;
            match &mut result {
                Ok(response) => guard.finish(response),
                Err(_) => guard.finish_with_error(),
            }
            result
        })
    }
}

// === impl LayerState ===

impl LayerState {
    /// Returns the handle of the store for this thread.
    fn store<'a>(&'a self, active: &'a Active) -> &'a Store {
        self.own_store.as_ref().unwrap_or_else(|| active.stores.of_worker(self.worker))
    }

    /// Makes the response to a rejected request.
    fn reject<B>(
        &self,
        local_response: LocalResponse,
        request: &mut Request<B>,
        record: &RequestRecord<'_>,
    ) -> Response<Full<Bytes>> {
        let hook = self.options.on_reject.as_ref();
        let from_hook = hook.and_then(|hook| hook.response(&local_response, request, record));
        from_hook.unwrap_or_else(|| make_response(local_response, request))
    }
}

/// Compiles the rules of a rule file for this store, which may differ from the `store` of the file.
fn compile(config: &Config, store: &Store, metrics: &Metrics) -> RuleSet {
    let mut rules = Arc::clone(&config.rules);
    let (names, other_names) = (config.store.bucket_names(), store.bucket_names());
    if names != other_names {
        Arc::make_mut(&mut rules).rename_buckets(&names, &other_names);
    }
    let mut rules = RuleSet::new(rules, config.verifier.clone(), metrics);
    rules.recorded = Arc::new(Inputs::new(&config.rules, &config.secrets.detector()));
    match &config.service {
        Some(service) => rules.with_domains(Arc::clone(&service.domains), metrics),
        None => rules,
    }
}

/// Makes the layer's own response to a rejected request. Reuses the allocations of the request's fields and extensions.
fn make_response<B>(local_response: LocalResponse, request: &mut Request<B>) -> Response<Full<Bytes>> {
    let mut extensions = take(request.extensions_mut());
    extensions.clear();
    let fields = take(request.headers_mut());
    let mut response = local_response.into_response_to(request.method(), fields);
    *response.extensions_mut() = extensions;
    response
}
