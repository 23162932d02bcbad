//! The targets of an upstream as one worker uses them. DNS can change them while requests are in flight.

use std::net::SocketAddr;
use std::sync::Arc;

use super::dialer::Dialer;
use super::endpoint::Endpoint;
use super::settings::{Target, UpstreamSettings};
use super::target::{TargetState, TargetStates};
use super::tls::UpstreamTlsConfigs;
use crate::metrics::{Metrics, TargetMetrics, UpstreamMetrics};

/// A target, or one address of a target with a host name, as one worker uses it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The state that all workers share.
    pub(crate) state: Arc<TargetState>,
    /// The position of the target in the rule file.
    pub(crate) position: usize,
    /// The resolved address. `None` if the target has no host name, or it was not resolved yet.
    pub(crate) address: Option<SocketAddr>,
    pub(super) backend: Backend,
}

#[derive(Debug)]
pub(super) enum Backend {
    Http(Endpoint),
    Echo,
}

/// Creates the entries of an upstream.
#[derive(Debug)]
pub(super) struct EntryFactory {
    /// The settings of one worker.
    settings: UpstreamSettings,
    tls_configs: UpstreamTlsConfigs,
    states: TargetStates,
    targets: Vec<(Target, TargetMetrics)>,
    metrics: UpstreamMetrics,
}

// === impl Entry ===

impl Entry {
    /// Returns the number of connection slots in use, and of idle connections.
    pub(super) fn usage(&self) -> (usize, usize) {
        match &self.backend {
            Backend::Http(endpoint) => endpoint.usage(),
            Backend::Echo => (0, 0),
        }
    }
}

// === impl EntryFactory ===

impl EntryFactory {
    pub(super) fn new(
        settings: UpstreamSettings,
        metrics: &Metrics,
        tls_configs: &UpstreamTlsConfigs,
        states: &TargetStates,
    ) -> Self {
        let with_metrics = |target: &Target| (target.clone(), metrics.target(&settings.name, &target.to_string()));
        Self {
            tls_configs: tls_configs.clone(),
            states: states.clone(),
            targets: settings.targets.iter().map(with_metrics).collect(),
            metrics: metrics.upstream(&settings.name),
            settings,
        }
    }

    /// Creates the entries of all targets. Names are not resolved yet.
    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        (0..self.targets.len()).map(|position| self.entry(position, None)).collect()
    }

    /// Returns the number of targets in the rule file.
    pub(super) fn targets(&self) -> usize {
        self.targets.len()
    }

    /// Returns `before` with one entry for each address of `target`. Keeps the entries of addresses that stay.
    pub(super) fn with_addresses(
        &self,
        before: &[Arc<Entry>],
        target: &Target,
        addresses: &[SocketAddr],
    ) -> Vec<Arc<Entry>> {
        let resolved = |position| {
            let entry = |address: &SocketAddr| {
                let is_kept = |entry: &&Arc<Entry>| entry.position == position && entry.address == Some(*address);
                before.iter().find(is_kept).cloned().unwrap_or_else(|| self.entry(position, Some(*address)))
            };
            addresses.iter().map(entry).collect::<Vec<_>>()
        };
        let others = |position| before.iter().filter(|entry| entry.position == position).cloned().collect();
        let all = self.targets.iter().enumerate();
        all.flat_map(|(position, (other, _))| if other == target { resolved(position) } else { others(position) })
            .collect()
    }

    /// Creates the entry of the target at this position.
    fn entry(&self, position: usize, address: Option<SocketAddr>) -> Arc<Entry> {
        let (settings, (target, metrics)) = (&self.settings, &self.targets[position]);
        let state = self.states.get_or_create(&settings.name, &target.to_string(), address, metrics);
        let remote = |dialer: Dialer| {
            let dialer = dialer.with_address(address);
            Backend::Http(Endpoint::new(dialer, settings, self.metrics.clone(), &state))
        };
        let backend = match target {
            Target::Http(authority) => remote(Dialer::plaintext(authority, settings)),
            Target::Https(authority) => {
                remote(Dialer::tls(authority, settings, self.tls_configs.get_or_read(settings)))
            }
            Target::Unix(path) => remote(Dialer::unix(path, settings)),
            Target::Echo => Backend::Echo,
        };
        Arc::new(Entry { state, position, address, backend })
    }
}
