//! Upstreams: their targets, the connections to the targets, and how a request is sent.
//!
//! The gateway tries another target or connection while it is certain that nothing of a request was sent. That is the
//! case if no connection could be opened, or if an idle connection turned out to be closed. Over HTTP/2 an upstream can
//! also report that it did not process a request, which then counts as not sent.
//!
//! Once the request was sent, the upstream may have acted on it. The gateway then sends it again only if all of these
//! hold:
//!
//! * the method is idempotent (RFC 9110 section 9.2.2), and the request asks for no upgrade
//! * no byte of a response has arrived, or only a whole head with a status that `retry` names
//! * the body is still complete: the gateway has kept all of it that was sent
//! * `retry` names the failure, and the request has a retry left, as has the budget of the upstream
//!
//! A connection that had served other requests and ends before the first byte was most likely closed before the request
//! arrived. The request is then sent on a new connection first, and that is not counted as a retry. In all other cases,
//! the client decides whether to retry.

pub mod http_client;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use http::uri::Authority;
use tokio::time::Instant;

mod address;
mod attempts;
mod balance;
mod body;
mod check;
mod connection;
mod dialer;
mod dns;
mod download;
mod echo;
mod eject;
mod endpoint;
mod entry;
mod error;
mod exchange;
mod head_limits;
mod headless_response;
mod http2;
mod informational;
mod pool;
mod replay;
mod replay_budget;
mod response_body;
mod retry;
mod selection;
mod single_flight;
mod slots;
mod target;
mod target_error;
pub mod tls;
mod trace;
mod tunnel;
mod tunnel_progress;
mod upload;
mod upload_progress;
mod upstreams;

pub use body::{BoxError, RequestBody, TooLong};
pub use check::run_checks;
use dns::ResolvedAddress;
pub use dns::{HostLookup, NameTasks, Resolver};
pub(crate) use endpoint::SendTargetHost;
pub(crate) use error::SendError;
pub use error::UpstreamError;
pub use http2::{CallEnd, GrpcCall};
pub(crate) use informational::{InformationalSender, InformationalSink};
pub(crate) use replay_budget::ReplayBudget;
pub use response_body::ResponseBody;
pub(crate) use target::TargetState;
pub use target::{CheckReport, LastCheck, TargetCondition, TargetFailure, TargetStates};
pub use trace::{LastAttempt, TargetName, Trace};
pub(crate) use upload_progress::expects_continue;
pub use upstreams::Upstreams;

use check::CheckSettings;
use entry::{Backend, Entry, EntryFactory};
use error::AttemptError;
pub(crate) use headless_response::HeadlessResponse;
pub(crate) use retry::NotRetried;
use retry::RetryBudget;
use selection::Balancer;
use settings::{Eject, Protocol, RetrySettings, Target, Timeouts, UpstreamSettings};
pub(crate) use slots::Client;
use target::Availability;
use tidegate_metrics::{Metrics, UpstreamMetrics};
pub use tidegate_rules::settings::upstream as settings;
use tls::UpstreamTlsConfigs;

/// An upstream: a named group of targets that serve the same requests.
#[derive(Debug)]
pub struct Upstream {
    name: Arc<str>,
    /// The targets. DNS can change them.
    entries: ArcSwap<Vec<Arc<Entry>>>,
    factory: EntryFactory,
    balancer: Balancer,
    eject: Option<Eject>,
    /// The `Host` for requests without one: the authority of the first target.
    default_host: HeaderValue,
    /// The hosts and ports of the targets.
    authorities: Vec<(Box<str>, u16)>,
    timeouts: Timeouts,
    retry: Option<RetrySettings>,
    retry_budget: Arc<RetryBudget>,
    /// Whether a connection can be upgraded to another protocol. HTTP/2 connections cannot.
    can_upgrade: bool,
    /// `None` if the targets are not checked.
    checks: Option<Arc<CheckSettings>>,
    metrics: UpstreamMetrics,
}

/// How one worker uses a target, or one address of a target with a host name.
#[derive(Clone, Debug)]
pub struct TargetUse {
    /// The connections in use; with HTTP/2, the requests in flight.
    pub in_use: usize,
    /// The idle HTTP/1 connections.
    pub idle: usize,
    /// The weight in the rule file.
    pub weight: u32,
    /// The state that all workers share.
    pub state: Arc<TargetState>,
    /// Whether the target has a host name without a known address.
    lacks_address: bool,
}

/// The maximum number of informational responses (1xx) before the final response.
const MAX_INFORMATIONAL: u8 = 16;

// === impl TargetUse ===

impl TargetUse {
    /// Returns whether requests may use the target.
    pub fn condition(&self, now: Instant) -> TargetCondition {
        match self.state.condition(now) {
            draining @ TargetCondition::Draining { .. } => draining,
            _ if self.lacks_address => TargetCondition::NoAddress,
            condition => condition,
        }
    }
}

// === impl Upstream ===

impl Upstream {
    fn new(
        settings: UpstreamSettings,
        metrics: &Metrics,
        tls_configs: &UpstreamTlsConfigs,
        targets: &TargetStates,
        resolver: &Resolver,
    ) -> Self {
        let authority = settings.targets.iter().find_map(|target| match target {
            Target::Unix(_) => Some(HeaderValue::from_static("localhost")),
            target => target.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok()),
        });
        let authorities = settings.targets.iter().filter_map(|target| {
            let (authority, default) = (target.authority()?, if target.uses_tls() { 443 } else { 80 });
            Some((authority.host().into(), authority.port_u16().unwrap_or(default)))
        });
        let authorities = authorities.collect();
        let (timeouts, can_upgrade) = (settings.timeouts, settings.protocol != Protocol::Http2);
        let (retry, retry_budget) = (settings.retry.clone(), targets.retry_budget(&settings.name));
        let (upstream_metrics, checks) = (metrics.upstream(&settings.name), CheckSettings::new(&settings));
        let (name, balancer, eject) = (Arc::clone(&settings.name), Balancer::new(&settings), settings.eject);
        let factory = EntryFactory::new(settings, metrics, tls_configs, targets, resolver);
        Self {
            name,
            default_host: authority.unwrap_or(HeaderValue::from_static("")),
            authorities,
            entries: ArcSwap::from_pointee(factory.all()),
            factory,
            balancer,
            eject,
            timeouts,
            retry,
            retry_budget,
            can_upgrade,
            checks,
            metrics: upstream_metrics,
        }
    }

    /// Returns the name in the rule file.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns `true` if requests use all targets, because too many of them fail their checks.
    pub fn is_panic(&self, now: Instant) -> bool {
        self.balancer.is_panic(&self.entries.load(), now)
    }

    /// Returns the longest time from the receipt of a request until the end of its response.
    pub(crate) fn total_timeout(&self) -> Option<Duration> {
        self.timeouts.total
    }

    /// Returns `true` if the gateway can offer it another protocol (`Upgrade`).
    pub(crate) fn can_upgrade(&self) -> bool {
        self.can_upgrade
    }

    /// Returns the targets, and the addresses of targets with host names.
    pub(crate) fn entries(&self) -> Arc<Vec<Arc<Entry>>> {
        self.entries.load_full()
    }

    /// Replaces the addresses of a target with a host name. The requests to removed addresses continue.
    pub(crate) fn set_addresses(&self, target: &Target, addresses: &[ResolvedAddress]) {
        // The names of two targets can change at the same time.
        self.entries.rcu(|before| self.factory.with_addresses(before, target, addresses));
    }

    /// Uses the addresses of the names of all targets, also when they change.
    fn follow_names(self: &Arc<Self>) {
        for (target, name) in self.factory.names() {
            let (upstream, target) = (Arc::downgrade(self), target.clone());
            name.subscribe(upstream.clone(), move |addresses| {
                if let Some(upstream) = upstream.upgrade() {
                    upstream.set_addresses(&target, addresses);
                }
            });
        }
    }

    /// Returns how this worker uses each target.
    pub fn target_use(&self) -> Vec<TargetUse> {
        let target = |entry: &Arc<Entry>| {
            let (in_use, idle) = entry.usage();
            let (state, lacks_address) = (Arc::clone(&entry.state), entry.lacks_address);
            TargetUse { in_use, idle, weight: entry.weight, state, lacks_address }
        };
        self.entries.load().iter().map(target).collect()
    }

    /// Sets the metric of each target that is usable at `now`, with any of its addresses.
    fn update_metrics(&self, now: Instant) {
        let entries = self.entries.load();
        let mut usable = vec![false; self.factory.targets()];
        for entry in entries.iter() {
            usable[entry.position] |= entry.availability(now, false) == Availability::Usable;
        }
        self.metrics.set_panic(self.balancer.is_panic(&entries, now));
        entries.iter().for_each(|entry| entry.state.set_usable(usable[entry.position]));
    }

    /// Returns `true` if the authority is the one of a target.
    pub(crate) fn has_authority(&self, authority: &Authority, default_port: u16) -> bool {
        let port = authority.port_u16().unwrap_or(default_port);
        let mut targets = self.authorities.iter();
        targets.any(|(host, other)| *other == port && host.eq_ignore_ascii_case(authority.host()))
    }

    /// Returns the `Host` for requests without one. Empty if the upstream has no authority (RFC 9112 section 3.2).
    pub fn default_host(&self) -> &HeaderValue {
        &self.default_host
    }
}
