//! The admin listener: health checks, metrics, and the API that shows and changes the state of limits.

mod audit;
mod authorize;
mod clients;
mod conditional;
mod config;
mod dashboard;
mod drain;
mod explain;
mod fleet;
mod gateway_name;
mod health;
mod limit_list;
mod limits;
mod listener;
mod only_object;
mod open;
mod openapi;
mod overall;
mod overrides;
mod phase;
mod probe;
mod problem;
mod problems;
mod query;
mod record;
mod rejected;
mod rejecting;
mod reload;
mod routes;
mod serve;
mod shared_rejected;
mod state;
mod status;
pub(crate) mod talkers;
#[cfg(test)]
mod tests;
mod upstreams;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn, map_response};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use blake3::Hash;
use http::header::{ETAG, HOST, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;
use tokio::sync::watch;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::audit::{Audit, Change, Entry};
use self::authorize::Authorizer;
pub(crate) use self::authorize::bearer_token;
use self::conditional::EntityTags;
pub(crate) use self::config::show as show_config;
use self::dashboard::Events;
use self::fleet::Fleet;
pub(crate) use self::gateway_name::GatewayName;
pub(crate) use self::listener::Listener;
use self::overall::OverallPermits;
use self::probe::Probe;
use self::problem::{Problem, into_problem};
use self::problems::Problems;
pub(crate) use self::problems::{GatewayProblem, ProblemKind};
use self::reload::ReloadSlot;
pub(crate) use self::reload::{ReloadFailure, ReloadHook};
use self::shared_rejected::Sharing;
use self::state::Start;
pub(crate) use self::status::ConfigProblem;
use self::status::ConfigStatus;
use tidegate_config::Config;
use tidegate_config::dashboard::DashboardMode;
use tidegate_layer::layer::RateLimitLayer;
use tidegate_layer::rejected::RejectedClients;
use tidegate_limit::clock::wall_time;
use tidegate_metrics::Metrics;
use tidegate_proxy::talkers::Talkers;
use tidegate_proxy::upstream::Upstreams;
use tidegate_store::Store;

/// The number of configurations that were in use.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// The longest body of a request, in bytes.
const MAX_BODY: usize = 64 * 1024;

/// Serves the admin endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    active: Arc<ArcSwap<Active>>,
    status: Arc<ConfigStatus>,
    reload: Arc<ReloadSlot>,
    audit: Audit,
    events: Events,
    layer: RateLimitLayer,
    metrics: Arc<Metrics>,
    readiness: Readiness,
    start: Start,
    rejected: Arc<RejectedClients>,
    talkers: Arc<Talkers>,
    sharing: Arc<Sharing>,
    problems: Arc<Problems>,
    fleet: Arc<Fleet>,
}

/// The configuration, the store and the upstreams in use. A reload replaces all of them.
#[derive(Debug)]
struct Active {
    /// Differs from all earlier configurations of this process.
    generation: u64,
    config: Arc<Config>,
    store: Store,
    /// The upstreams of each worker.
    upstreams: Vec<Upstreams>,
    probe: Probe,
    authorizer: Authorizer,
    overall: OverallPermits,
}

/// Whether this gateway accepts new connections, as reported by `/readyz`.
#[derive(Clone, Debug)]
pub(crate) struct Readiness(watch::Sender<bool>);

// === impl Readiness ===

impl Readiness {
    /// Creates a gateway that is ready.
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(true))
    }

    /// Marks the gateway as draining.
    pub(crate) fn fail(&self) {
        self.0.send_replace(false);
    }

    /// Returns `true` if the gateway accepts new connections.
    pub(crate) fn is_ready(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the gateway is marked as draining.
    pub(crate) async fn failed(&self) {
        // This handle keeps the channel open.
        _ = self.0.subscribe().wait_for(|is_ready| !is_ready).await;
    }
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Active ===

impl Active {
    fn new(config: Arc<Config>, store: Store, upstreams: Vec<Upstreams>) -> Self {
        let (probe, authorizer) = (Probe::new(store.clone()), Authorizer::new(&config));
        let overall = OverallPermits::new(&config, store.clone());
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        Self { generation, config, store, upstreams, probe, authorizer, overall }
    }
}

// === impl Admin ===

impl Admin {
    /// Creates the service. `active` are the configuration and the upstreams of each worker.
    pub(crate) fn new(
        active: (Arc<Config>, Vec<Upstreams>),
        layer: RateLimitLayer,
        metrics: Arc<Metrics>,
        readiness: Readiness,
    ) -> Self {
        let (config, upstreams) = active;
        let active = Arc::new(ArcSwap::from_pointee(Active::new(config, layer.store(), upstreams)));
        let (status, reload, audit) = (Arc::new(ConfigStatus::new()), Arc::default(), Audit::default());
        let (rejected, sharing, start) = (Arc::default(), Arc::default(), Start::now());
        let (events, problems, fleet, talkers) = (Events::new(), Arc::default(), Arc::default(), Arc::default());
        Self {
            active,
            status,
            reload,
            audit,
            events,
            layer,
            metrics,
            readiness,
            start,
            rejected,
            talkers,
            sharing,
            problems,
            fleet,
        }
    }

    /// Shows the clients that limits reject.
    pub(crate) fn with_rejected(self, rejected: Arc<RejectedClients>) -> Self {
        rejected.set_keeps_values(self.active.load().config.show_clients);
        Self { rejected, ..self }
    }

    /// Shows the clients with the most requests, if the rule file asks for it.
    pub(crate) fn with_talkers(self, talkers: Arc<Talkers>) -> Self {
        talkers.set_on(self.active.load().config.talkers);
        Self { talkers, ..self }
    }

    pub(crate) fn enable_reload(&self, hook: ReloadHook) {
        self.reload.set(hook);
    }

    /// Records the hash of the rule file that is in use. `is_new` if its rules differ from the previous rules. `errors` are in
    /// files of teams, which are not in use. Returns `true` if all files are valid, and a file was not valid before.
    pub(crate) fn record_config(&self, hash: &Hash, is_new: bool, errors: Vec<ConfigProblem>) -> bool {
        let was_repaired = self.status.record_success(hash, is_new, errors);
        self.fleet.announce_soon();
        was_repaired
    }

    /// Records why a rule file is not used. The previous rules stay in use.
    pub(crate) fn record_config_errors(&self, errors: Vec<ConfigProblem>) {
        self.status.record_failure(errors);
    }

    /// Replaces the configuration, the store and the upstreams that operators see.
    pub(crate) fn replace(&self, config: Arc<Config>, store: Store, upstreams: Vec<Upstreams>) {
        self.rejected.set_keeps_values(config.show_clients);
        self.talkers.set_on(config.talkers);
        let has_dashboard = !matches!(config.dashboard, DashboardMode::Off);
        self.active.store(Arc::new(Active::new(config, store, upstreams)));
        // After the change, so that no viewer of the old configuration follows.
        if !has_dashboard {
            self.events.end_viewers();
        }
    }

    /// Waits for a change that the other gateways do not have.
    pub(crate) async fn changed(&self) {
        self.audit.changed().await;
    }

    /// Shares changes and rejections with the other gateways, and compares the clock of the store with the gateway's.
    pub(crate) async fn share_with_gateways(&self) {
        self.talkers.collect(wall_time());
        self.collect_rejections().await;
        let store = self.active.load_full().store.clone();
        // Without a reply, the next call shares the entries, and reads the clock.
        _ = self.audit.share(&store).await;
        _ = store.refresh_clock().await;
    }

    /// Returns the entries of the audit list as JSON, the oldest first.
    pub(crate) fn audit_entries(&self) -> Vec<String> {
        self.audit.held()
    }

    /// Returns a number that grows with each change of the audit list.
    pub(crate) fn audit_version(&self) -> u64 {
        self.audit.version()
    }

    /// Adds entries of another process to the audit list.
    pub(crate) fn hold_audit(&self, entries: &[String]) {
        self.audit.hold(&self.active.load().store, entries);
    }

    /// Serves until the listener is closed, then finishes the requests that were sent before.
    pub(crate) async fn serve(self, listener: Listener) {
        let (mut closing, events, layer) = (listener.closing(), self.events.clone(), self.layer.clone());
        let mut serving = pin!(serve::serve(listener, self.router()));
        tokio::select! {
            () = &mut serving => return,
            // An error means the same: the sender is gone.
            _ = closing.wait_for(|closed| *closed) => {
                events.close();
                layer.recorder().close();
            }
        }
        serving.await;
    }

    /// Makes a change in a separate task, since a client that disconnects must not interrupt it. Records the change in
    /// the audit list.
    async fn make_change<T: Send + 'static, F: Future<Output = Result<T, Problem>> + Send + 'static>(
        &self,
        change: Change,
        make: impl FnOnce(Self) -> F,
    ) -> Result<T, Problem> {
        let (result, audit) = (make(self.clone()), self.audit.clone());
        let task = tokio::spawn(async move {
            let result = result.await;
            audit.record(change, result.as_ref().map(|_| ()).map_err(Problem::detail));
            result
        });
        let interrupted = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the change was interrupted");
        task.await.unwrap_or_else(|_| Err(interrupted()))
    }

    fn router(self) -> Router {
        let (router, document) = routes().split_for_parts();
        let dashboard = dashboard::routes().layer(from_fn(only_by_address));
        let router = router.merge(dashboard).merge(openapi::serve(&document).layer(from_fn(only_by_address)));
        router.method_not_allowed_fallback(method_not_allowed).fallback(unknown_path).with_state(self)
    }
}

/// Returns all routes, with the OpenAPI document of their handlers.
fn routes() -> OpenApiRouter<Admin> {
    let api = OpenApiRouter::new()
        .routes(routes!(active_config))
        .routes(routes!(reload::reload))
        .routes(routes!(state::status))
        .routes(routes!(fleet::fleet))
        .routes(routes!(fleet::send_command))
        .routes(routes!(upstreams::upstreams))
        .routes(routes!(drain::drain, drain::undrain))
        .routes(routes!(routes::routes))
        .routes(routes!(limits::limits))
        .routes(routes!(clients::reset::reset_limit))
        .routes(routes!(clients::inspect, clients::reset::reset_client))
        .routes(routes!(overrides::list, overrides::create))
        .routes(routes!(overrides::get, overrides::remove))
        .routes(routes!(rejected::list_by_limit))
        .routes(routes!(rejected::list_all))
        .routes(routes!(talkers::talkers))
        .routes(routes!(audit))
        .routes(routes!(dashboard::events))
        .routes(routes!(explain::explain))
        .routes(routes!(explain::call::explain_call))
        .routes(routes!(record::record))
        .routes(routes!(record::end))
        .fallback(unknown_path)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(map_response(into_problem))
        .layer(from_fn(only_same_site))
        .layer(from_fn(only_by_address));
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .nest("/api/v1", api)
}

/// Returns the active configuration, with defaults and without secrets, and the status of the rule file.
///
/// `ETag` is the hash of the rule file. It is absent while a rejected file has errors, which the response lists.
#[utoipa::path(
    get,
    path = "/config",
    tag = "configuration",
    params(("If-None-Match" = Option<String>, Header, description = "The `ETag` of an earlier response")),
    responses(
        (status = 200, description = "The active configuration", body = Object, headers(("ETag" = String, description = "The hash of the rule file in use"))),
        (status = 304, description = "The rule file is the same."),
        Problem,
    )
)]
async fn active_config(State(admin): State<Admin>, headers: HeaderMap) -> Result<Response, Problem> {
    let cached = EntityTags::read(&headers, &IF_NONE_MATCH, true)?;
    // The tag and the errors are read before the configuration, which may be newer than they are, but never older.
    let tag = admin.status.entity_tag();
    let is_cached = tag.as_ref().zip(cached).is_some_and(|(tag, cached)| cached.contains(tag));
    let mut response = if is_cached {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let status = admin.status.to_json();
        let active = admin.active.load();
        let mut value = config::show(&active.config, &active.store);
        active.config.secrets.mask_json(&mut value);
        Json(config::extend(value, status)).into_response()
    };
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

/// Returns the last 1,000 changes of operators through all gateways, the newest first. `shared` is false for changes that
/// only this gateway has.
#[utoipa::path(
    get,
    path = "/audit",
    tag = "state",
    responses((status = 200, description = "The changes that operators made", body = [Entry]), Problem)
)]
async fn audit(State(admin): State<Admin>) -> Json<Vec<Value>> {
    Json(admin.audit.entries(&admin.active.load_full().store).await)
}

async fn unknown_path() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "the API has no such path")
}

async fn method_not_allowed() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "the path does not support this method")
}

/// Rejects requests by host name, which prevents DNS rebinding: a web page can let its own domain name resolve to this
/// address, but the browser then sends that name as `Host`.
async fn only_by_address(headers: HeaderMap, request: Request, next: Next) -> Response {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if is_address_or_localhost(host) {
        return next.run(request).await;
    }
    Problem::new(StatusCode::FORBIDDEN, "`Host` must be an IP address or localhost").into_response()
}

fn is_address_or_localhost(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || port.starts_with(':')),
        None => {
            let name = host.split_once(':').map_or(host, |(name, _)| name);
            name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok()
        }
    }
}

/// Rejects requests that pages of other sites start. Such a page cannot read the response, but a `GET` could start a
/// recording, and others cost calls to the store.
async fn only_same_site(headers: HeaderMap, request: Request, next: Next) -> Response {
    match authorize::check_same_site(&headers) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}
