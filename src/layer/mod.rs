//! [`RateLimitLayer`]: the whole of what Tidegate does to a request, as an ordinary [`tower::Layer`].
//!
//! ```text
//! sift -> facts -> route -> client -> charges -> admit -> the service below -> stamp
//! ```
//!
//! The gateway is this layer over `Forward`; in an axum or hyper service of your own it
//! stands over your handlers, with the same rule file.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tidegate::RateLimitLayer;
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
//! # Ok::<(), tidegate::layer::LayerError>(())
//! ```
//!
//! The layer changes no request. It sanitizes fields and normalizes the path only to find routes and clients, and it applies a
//! limit if any reading of the path leads to it; see [`LayerBuilder::sanitize`]. A router finds its handler before it calls
//! the layers put on it. Around it, as here, the layer comes first.
//!
//! It asks for nothing that its rules do not need. Limits of addresses need to know where a request comes from: serve with
//! `into_make_service_with_connect_info`, or put a [`Peer`] into the request's extensions; without one they do what
//! `on_missing_client` says. A request without a host matches routes without one, and one that no route names goes on,
//! unless the layer is told [otherwise](Unmatched).

mod builder;
mod notes;
mod peer;
mod reading;
mod rejection;

use std::future::Future;
use std::mem::take;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::{Either, Full};
use tower::{Layer, Service};

use self::builder::Options;
pub use self::builder::{LayerBuilder, LayerError, Unmatched};
use self::notes::{Life, Notes};
pub use self::notes::{Report, ReportSlot, RequestOutcome};
use self::peer::Hint;
#[cfg(feature = "gateway")]
pub(crate) use self::peer::PeerIsClient;
pub use self::peer::{ClientKey, OverTls, Peer};
pub use self::rejection::Rejection;
use crate::admission::{Admitted, Denial, Receipt, WaitQueues, admit, admit_unlimited, store_failure};
use crate::boxed::boxed;
use crate::config::Config;
pub use crate::facts::TlsPeer;
use crate::facts::{BadRequest, Facts};
use crate::headers;
use crate::local_response::LocalResponse;
use crate::metrics::Metrics;
use crate::rules::{Charges, Rules};
pub use crate::ruleset::ForwardContext;
use crate::ruleset::RuleSet;
use crate::sanitize::{FieldKinds, RequestContext};
use crate::store::Store;
#[cfg(feature = "gateway")]
use crate::store::transfer::StoreState;
use crate::upgrade::{Offer, is_tunnel};

/// Limits the requests to the service below by the rules of a file. Cheap to clone; clones share rules and buckets.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    limiter: Arc<RateLimiting>,
}

/// A service whose requests are limited; see [`RateLimitLayer`].
#[derive(Clone, Debug)]
pub struct RateLimited<S> {
    limiter: Arc<RateLimiting>,
    inner: S,
}

/// The body of a limited answer: the service's own, or a local_response's.
pub type Limited<B> = Either<B, Full<Bytes>>;

/// Marks a response, in its extensions, whose request no upstream received: the layer returns its permits, once. A service
/// below the layer may use it for requests that caused no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSent;

/// The rules in force, and the store their buckets are kept in.
#[derive(Clone, Debug)]
struct RateLimiting {
    rules: Arc<ArcSwap<RuleSet>>,
    store: Store,
    /// The wait queues.
    queues: Arc<WaitQueues>,
    metrics: Arc<Metrics>,
    options: Options,
    hint: Arc<Hint>,
}

// === impl RateLimitLayer ===

impl RateLimitLayer {
    /// A layer before it has its rules, to be told what the rule file does not say.
    pub fn builder() -> LayerBuilder {
        LayerBuilder::default()
    }

    /// A layer with the rules and the store of this file, whose routes need no `upstream`.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, LayerError> {
        Self::builder().from_file(path)
    }

    /// Like [`from_file`](Self::from_file), from the text of a rule file.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn from_yaml(text: &str) -> Result<Self, LayerError> {
        Self::builder().from_yaml(text)
    }

    /// A layer with the rules and the store of `config`; it counts in `metrics`.
    ///
    /// # Errors
    /// The store cannot be opened. One that cannot be reached is no error: limits do what `on_store_failure` says.
    pub fn new(config: &Config, metrics: Arc<Metrics>) -> Result<Self, LayerError> {
        Self::builder().metrics(metrics).from_config(config)
    }

    fn make(rules: Rules, store: Store, metrics: Arc<Metrics>, options: Options) -> Self {
        let rules = RuleSet::new(rules, &metrics);
        store.set_active_limits(rules.limiters(), std::iter::empty());
        store.announce_as_gateway();
        let rules = Arc::new(ArcSwap::from_pointee(rules));
        let (queues, hint) = (Arc::new(WaitQueues::new()), Arc::default());
        Self { limiter: Arc::new(RateLimiting { rules, store, queues, metrics, options, hint }) }
    }

    /// The same layer for a thread with a runtime of its own: rules and buckets are shared, connections to the store are
    /// not, so that its requests never change threads.
    pub fn for_worker(&self) -> Self {
        Self { limiter: Arc::new(RateLimiting { store: self.limiter.store.for_worker(), ..(*self.limiter).clone() }) }
    }

    /// Connects to the store before the first request needs it. Must be called on the Tokio runtime that the
    /// connections are to live on; without it that is the one of the first request.
    pub fn connect(&self) {
        self.limiter.store.connect();
    }

    /// Answers all requests that wait for a permit, and lets none wait from now on; for the end of a service.
    pub fn stop_waiting(&self) {
        self.limiter.queues.close();
    }

    /// Where its buckets are.
    #[cfg(feature = "gateway")]
    pub(crate) fn store(&self) -> &Store {
        &self.limiter.store
    }

    /// Takes over the limits in use from another process.
    #[cfg(feature = "gateway")]
    pub(crate) fn succeed(&self, state: &StoreState) {
        let limiters: Vec<_> = self.limiter.rules.load().limiters().cloned().collect();
        self.limiter.store.succeed(state, &limiters);
    }

    /// Periodic maintenance of the store.
    pub(crate) fn run_maintenance(&self) {
        self.limiter.store.run_maintenance();
    }

    /// Puts other rules in force, for all requests that come from now on. Buckets and counters stay.
    pub fn replace_rules(&self, rules: Rules) {
        let rules = RuleSet::new(rules, &self.limiter.metrics);
        self.limiter.store.set_active_limits(rules.limiters(), self.limiter.rules.load().limiters());
        self.limiter.rules.store(Arc::new(rules));
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> RateLimited<S> {
        RateLimited { limiter: Arc::clone(&self.limiter), inner }
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
    type Response = Response<Limited<RB>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // Only the old service was polled ready, so it takes the request and the clone stays.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let limiter = Arc::clone(&self.limiter);
        // Written in line: a future within this one would have room for the request once more.
        boxed(|| async move {
            let rules = limiter.rules.load_full(); // one snapshot for the whole request
            let mut life = Life::begin(&limiter.metrics, &rules, request.extensions_mut().remove::<ReportSlot>());
            let receipt = match limiter.judge(&rules, &mut request, &mut life.notes).await {
                Ok(receipt) => receipt,
                Err(local_response) => {
                    let route = life.notes.route.map(|(route, _)| &*route.name);
                    let mut response = limiter.reject(local_response, &mut request, route).map(Either::Right);
                    life.answered(&mut response);
                    return Ok(response);
                }
            };
            // In a future of its own, in the room that judging has left: in line, an answer would have room beside that.
            let serving = inner.call(request);
            let served = async {
                let response = serving.await?;
                if response.extensions().get::<NotSent>().is_some() {
                    Box::pin(receipt.give_back(&limiter.store)).await; // boxed, as it is rare and large
                }
                Ok(response.map(Either::Left))
            };
            let mut served = served.await;
            match &mut served {
                Ok(response) => life.answered(response),
                Err(_) => life.failed(),
            }
            served
        })
    }
}

// === impl RateLimiting ===

impl RateLimiting {
    /// Decides about a request: puts the context into its extensions, or returns a local_response. If the layer changes requests, the
    /// service below gets the path in the normal form that the rules have seen.
    async fn judge<'r, B>(
        &self,
        rules: &'r RuleSet,
        request: &mut Request<B>,
        notes: &mut Notes<'r>,
    ) -> Result<Receipt, LocalResponse> {
        let peer = peer::of(request.extensions());
        let is_proxy = peer.is_some_and(|peer| rules.trusts(peer));
        let peer_is_client = is_proxy && peer::is_client(request.extensions());
        let trusted_peer = is_proxy && !peer_is_client;
        let context = RequestContext { version: request.version(), trusted: trusted_peer, next: self.options.next };
        // Without a change of the request there are no fields for the service below to look at.
        let (kinds, screened) = match self.options.changes_requests() {
            true => (self.sanitize(rules, request.headers_mut(), context)?, None), // 400, 508
            false => (FieldKinds::default(), Some(rules.screen(request.headers(), context))),
        };
        let mut facts = match &screened {
            None => rules.read(request, peer, self.options.next)?, // 400, 501
            Some(screened) => rules.read_as_written(request, screened, peer)?,
        };
        facts.tls = peer::tls(request.extensions());
        facts.key = peer::client_key(request.extensions());
        facts.peer_is_client = peer_is_client;
        if screened.is_none() && facts.is_for_the_server() {
            return Err(LocalResponse::Options); // 204
        }
        notes.judged(rules, &facts);
        let found = match &screened {
            None => rules.find(&facts),
            Some(screened) => reading::find(rules, request.uri(), &mut facts, screened.fault)
                .inspect_err(|bad| self.count_bad_field(bad))?, // 400
        };
        let Some((route, compiled)) = found else {
            let Unmatched::Pass = self.options.unmatched else { return Err(LocalResponse::NoRoute) }; // 404
            let context = rules.forward_context(admit_unlimited().permit, None, &facts, context, kinds, None);
            let target = self.target(request.uri(), &facts)?;
            hand_over(request, context, target);
            return Ok(Receipt::default());
        };
        notes.route = Some((route, compiled));
        let offer = request.extensions().get::<Offer>(); // only the gateway's server adds it
        let upgrade = offer.and_then(|offer| route.upgrades.choose(offer)).map(Box::new);
        if upgrade.is_none() && is_tunnel(request) {
            return Err(LocalResponse::MethodNotImplemented); // 501
        }
        if route.is_too_long(&facts) {
            self.metrics.rejected("max_body");
            return Err(LocalResponse::BodyTooLong); // 413
        }
        if facts.peer.is_none() {
            self.hint.give(&route.limits);
        }
        let charges = rules.charges(route, &facts)?; // 400
        notes.begin_to_decide(&charges, &self.store);
        let admitted = admit(&self.store, &self.queues, &charges, compiled.may_wait).await;
        compiled.count(&charges, &admitted);
        if let Some(error) = store_failure(&admitted) {
            self.metrics.store_failed(error.cause());
        }
        notes.name_client(&charges, &self.store);
        notes.note(&charges, &admitted);
        let Admitted { permit, status, .. } = admitted.map_err(|denial| local_response(&charges, denial))?; // 429, 503
        let context = rules.forward_context(permit, Some(route), &facts, context, kinds, upgrade);
        let target = self.target(request.uri(), &facts)?;
        hand_over(request, context, target);
        Ok(Receipt::new(charges, status))
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

    /// Returns the target that the service below gets; `None` if that is the request's own.
    fn target(&self, uri: &Uri, facts: &Facts<'_>) -> Result<Option<Uri>, LocalResponse> {
        if self.options.changes_requests() { normal_target(uri, facts) } else { Ok(None) }
    }

    /// Makes the response to a rejected request.
    fn reject<B>(
        &self,
        local_response: LocalResponse,
        request: &mut Request<B>,
        route: Option<&str>,
    ) -> Response<Full<Bytes>> {
        let own = self.options.on_reject.as_ref().and_then(|hook| hook.response(&local_response, request, route));
        own.unwrap_or_else(|| refuse(local_response, request))
    }
}

fn local_response(charges: &Charges<'_>, denial: Denial) -> LocalResponse {
    match denial {
        Denial::StoreFailed(_) => LocalResponse::StoreFailed,
        Denial::Limited { status, wait } => {
            let refused = charges.iter().filter(|one| !one.limit.shadow && status.refused(one));
            let violated = refused.map(|one| one.limit.name.as_str()).collect();
            LocalResponse::Limited { violated, retry_after: headers::retry_after(wait) }
        }
    }
}

/// The answer to a refused request, in the room of the request's fields and extensions.
fn refuse<B>(local_response: LocalResponse, request: &mut Request<B>) -> Response<Full<Bytes>> {
    let mut extensions = take(request.extensions_mut());
    extensions.clear();
    let fields = take(request.headers_mut());
    let mut response = local_response.into_response_to(request.method(), fields);
    *response.extensions_mut() = extensions;
    response
}

/// Makes a request what the service below is called with.
fn hand_over<B>(request: &mut Request<B>, context: ForwardContext, target: Option<Uri>) {
    request.extensions_mut().insert(context);
    if let Some(target) = target {
        *request.uri_mut() = target;
    }
}

/// The target with its path in the normal form, so that what is served is what was judged; nothing where it is so already.
fn normal_target(uri: &Uri, facts: &Facts<'_>) -> Result<Option<Uri>, LocalResponse> {
    let path = facts.path.normalized();
    if uri.path() == path {
        return Ok(None);
    }
    let mut parts = uri.clone().into_parts();
    let target = facts.query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    parts.path_and_query = Some(target.parse().map_err(|_| LocalResponse::Malformed)?);
    Uri::from_parts(parts).map(Some).map_err(|_| LocalResponse::Malformed)
}
