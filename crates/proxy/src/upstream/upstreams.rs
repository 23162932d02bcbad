//! The upstreams of a worker, by their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::Upstream;
use super::dns::Resolver;
use super::settings::UpstreamSettings;
use super::target::TargetStates;
use super::tls::UpstreamTlsConfigs;
use tidegate_metrics::Metrics;

/// The upstreams of a rule file, each with its own connections. Each worker has its own `Upstreams`.
#[derive(Debug, Default)]
pub struct Upstreams(pub(super) BTreeMap<Arc<str>, Arc<Upstream>>);

// === impl Upstreams ===

impl Upstreams {
    /// Creates the upstreams of one of `workers` workers. Connections are opened on demand.
    pub fn new<'a>(
        settings: impl IntoIterator<Item = &'a UpstreamSettings>,
        workers: usize,
        metrics: &Metrics,
    ) -> Self {
        let (resolver, _) = Resolver::new(&[]);
        let (tls_configs, targets) = (UpstreamTlsConfigs::default(), TargetStates::default());
        Self::with_shared_state(settings, workers, metrics, &tls_configs, &targets, &resolver)
    }

    /// Like [`new`](Self::new), with TLS configurations, target states and names that all workers share.
    pub fn with_shared_state<'a>(
        settings: impl IntoIterator<Item = &'a UpstreamSettings>,
        workers: usize,
        metrics: &Metrics,
        tls_configs: &UpstreamTlsConfigs,
        targets: &TargetStates,
        resolver: &Resolver,
    ) -> Self {
        let named = |settings: &UpstreamSettings| {
            let upstream = Upstream::new(settings.share(workers.max(1)), metrics, tls_configs, targets, resolver);
            let upstream = Arc::new(upstream);
            upstream.follow_names();
            (settings.name.clone(), upstream)
        };
        Self(settings.into_iter().map(named).collect())
    }

    /// Adds the upstreams of `other` with these names.
    pub fn with_kept<'a>(mut self, other: &Self, names: impl Iterator<Item = &'a Arc<str>>) -> Self {
        self.0.extend(names.filter_map(|name| Some((Arc::clone(name), Arc::clone(other.0.get(name)?)))));
        self
    }

    /// Returns the same upstreams. Both use the same connections.
    pub fn share(&self) -> Self {
        Self(self.0.clone())
    }

    /// Sets the metrics that depend on the time.
    pub fn update_metrics(&self) {
        let now = Instant::now();
        self.0.values().for_each(|upstream| upstream.update_metrics(now));
    }

    /// Returns the upstream with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.0.get(name)
    }
}
