//! The JSON of an event of the dashboard.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::history::{History, Recent, Series};
use super::latency::Latency;
use crate::admin::problems::GatewayProblem;
use crate::admin::{Active, Admin};
use tidegate_config::dashboard::DashboardMode;
use tidegate_limit::clock::unix_seconds;
use tidegate_metrics::ConnectionSample;
use tidegate_proxy::upstream::TargetCondition;

/// The errors of a rule file that an event contains at most. `/api/v1/config` has all.
const MAX_ERRORS: usize = 20;

/// The problems that an event contains at most. `/api/v1/status` has more.
const MAX_PROBLEMS: usize = 20;

/// An event: the totals of all series, and their last seconds.
#[derive(Debug, Serialize)]
struct Frame<'a> {
    /// Seconds since 1970.
    time: u64,
    /// Changes with the configuration in use, also if a control plane sends other domains.
    generation: u64,
    gateway: GatewayState,
    config: Value,
    problems: &'a [GatewayProblem],
    problem_count: usize,
    connections: ConnectionSample,
    store: StoreState<'a>,
    total: Counts<'a, 5>,
    routes: Vec<RouteState<'a>>,
    limits: Vec<LimitState<'a>>,
    upstreams: Vec<UpstreamState<'a>>,
    /// Whether there are routes, limits or upstreams with traffic, but without a history of 15 minutes.
    truncated: bool,
}

#[derive(Debug, Serialize)]
struct GatewayState {
    version: &'static str,
    draining: bool,
    /// How the page makes changes: `off`, `open`, `token` or `no_tokens`.
    changes: &'static str,
}

#[derive(Debug, Serialize)]
struct Counts<'a, const N: usize> {
    total: &'a [u64],
    /// The number of seconds that the page keeps.
    span: usize,
    recent: Recent<'a, N>,
}

impl<'a, const N: usize> Counts<'a, N> {
    fn new(series: &'a Series<N>, seconds: usize) -> Self {
        Self { total: &series.last, span: series.span(), recent: series.recent(seconds) }
    }
}

#[derive(Debug, Serialize)]
struct RouteState<'a> {
    /// The latency in the last minute, in microseconds.
    latency: Option<Latency>,
    #[serde(flatten)]
    named: Named<'a, 5>,
}

#[derive(Debug, Serialize)]
struct Named<'a, const N: usize> {
    name: &'a str,
    #[serde(flatten)]
    counts: Counts<'a, N>,
}

#[derive(Debug, Serialize)]
struct LimitState<'a> {
    route: &'a str,
    limit: &'a str,
    used: Option<f32>,
    #[serde(flatten)]
    counts: Counts<'a, 4>,
}

#[derive(Debug, Serialize)]
struct UpstreamState<'a> {
    connections: i64,
    waiting: i64,
    targets: usize,
    usable: usize,
    panic: bool,
    #[serde(flatten)]
    named: Named<'a, 3>,
}

#[derive(Debug, Serialize)]
struct StoreState<'a> {
    kind: &'static str,
    /// Why the store is unreachable.
    outage: Option<String>,
    /// The number of gateways that share the store.
    gateways: Option<u32>,
    /// The permits that were granted locally and are not charged yet.
    owed: Option<u64>,
    open_breakers: i64,
    calls: u64,
    known_refusals: u64,
    charged: u64,
    #[serde(flatten)]
    counts: Counts<'a, 3>,
}

impl Admin {
    /// Builds an event with the last `seconds` seconds.
    pub(super) fn frame(&self, history: &History, seconds: usize) -> Bytes {
        let (active, now, problems) = (self.active.load(), Instant::now(), self.last_problems());
        let limits = history.limits.iter().map(|((route, limit), series)| LimitState {
            route,
            limit,
            used: history.latest.limits.get(&(route.clone(), limit.clone())).and_then(|limit| limit.used),
            counts: Counts::new(series, seconds),
        });
        let upstreams = history.upstreams.iter().map(|(name, series)| {
            let latest = history.latest.upstreams.get(name).copied().unwrap_or_default();
            let counts = Counts::new(series, seconds);
            let (connections, waiting) = (latest.connections, latest.waiting);
            let used = active.upstreams.first().and_then(|worker| worker.get(name));
            let panic = used.is_some_and(|upstream| upstream.is_panic(now));
            let used = used.map(|upstream| upstream.target_use()).unwrap_or_default();
            let usable = used.iter().filter(|one| one.condition(now) == TargetCondition::Usable).count();
            UpstreamState { connections, waiting, targets: used.len(), usable, panic, named: Named { name, counts } }
        });
        let routes = history.routes.iter().map(|(name, series)| RouteState {
            latency: history.latency(name),
            named: Named { name, counts: Counts::new(series, seconds) },
        });
        let frame = Frame {
            time: unix_seconds(),
            generation: active.generation,
            gateway: GatewayState {
                version: env!("CARGO_PKG_VERSION"),
                draining: !self.readiness.is_ready(),
                changes: changes(&active),
            },
            config: self.status.summary_with_errors(MAX_ERRORS),
            problems: &problems[..problems.len().min(MAX_PROBLEMS)],
            problem_count: problems.len(),
            connections: history.latest.connections,
            store: store_state(&active, history, seconds),
            total: Counts::new(&history.total, seconds),
            routes: routes.collect(),
            limits: limits.collect(),
            upstreams: upstreams.collect(),
            truncated: history.is_full(),
        };
        let kind = if seconds == 1 { "second" } else { "history" };
        // The values are numbers and text, so serde cannot fail.
        let json = serde_json::to_string(&frame).unwrap_or_default();
        Bytes::from(format!("event: {kind}\ndata: {json}\n\n"))
    }
}

fn changes(active: &Active) -> &'static str {
    match active.config.dashboard {
        DashboardMode::ReadOnly | DashboardMode::Off => "off",
        DashboardMode::On => active.authorizer.changes(),
    }
}

fn store_state<'a>(active: &Active, history: &'a History, seconds: usize) -> StoreState<'a> {
    let (store, latest) = (&active.store, &history.latest.store);
    StoreState {
        kind: if store.gateways().is_some() { "redis" } else { "memory" },
        outage: store.outage().or_else(|| (!latest.is_up).then(|| "a connection is down".to_owned())),
        gateways: store.gateways(),
        owed: store.owed_permits(),
        open_breakers: latest.open_breakers,
        calls: latest.calls,
        known_refusals: latest.known_refusals,
        charged: latest.charged,
        counts: Counts::new(&history.store, seconds),
    }
}
