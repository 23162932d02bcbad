//! The targets of an upstream as one worker uses them. DNS can change them while requests are in flight.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use tokio::time::Instant;

use super::address::Address;
use super::balance::hash;
use super::dialer::Dialer;
use super::dns::{ResolvedAddress, ResolvedName, Resolver};
use super::endpoint::Endpoint;
use super::settings::{Target, UpstreamSettings};
use super::target::{Availability, TargetState, TargetStates};
use super::tls::UpstreamTlsConfigs;
use tidegate_metrics::{Metrics, TargetMetrics, UpstreamMetrics};

/// A target, or one address of a target with a host name, as one worker uses it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The state that all workers share.
    pub(crate) state: Arc<TargetState>,
    /// The position of the target in the rule file.
    pub(crate) position: usize,
    /// The resolved address. `None` if the target has no host name, or it was not resolved yet.
    pub(crate) address: Option<SocketAddr>,
    /// Whether the target has a host name without a known address.
    pub(super) lacks_address: bool,
    /// The weight in the rule file, times the weight of the SRV record.
    pub(crate) weight: u32,
    /// Identifies the target for hashes, equal in all gateways.
    pub(super) id: u64,
    /// The state for round robin.
    pub(super) turn: AtomicI64,
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
    /// The targets, with their addresses unless the gateway itself is the target.
    targets: Vec<(Target, TargetMetrics, Option<Address>)>,
    metrics: UpstreamMetrics,
}

// === impl Entry ===

impl Entry {
    /// Returns whether a request may use the target. In panic, the results of checks are ignored.
    pub(super) fn availability(&self, now: Instant, in_panic: bool) -> Availability {
        match self.state.availability(now, in_panic) {
            Availability::Excluded => Availability::Excluded,
            _ if self.lacks_address => Availability::NoAddress,
            availability => availability,
        }
    }

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
        resolver: &Resolver,
    ) -> Self {
        let with_metrics = |target: &Target| {
            let address = Address::from_target(target, resolver, metrics);
            (target.clone(), metrics.target(&settings.name, &target.to_string()), address)
        };
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
        (0..self.targets.len()).map(|position| self.entry(position, None, 1, false)).collect()
    }

    /// Returns the states of all targets in the process.
    pub(super) fn states(&self) -> &TargetStates {
        &self.states
    }

    /// Returns the number of targets in the rule file.
    pub(super) fn targets(&self) -> usize {
        self.targets.len()
    }

    /// Returns the targets whose names are resolved.
    pub(super) fn names(&self) -> impl Iterator<Item = (&Target, &Arc<ResolvedName>)> {
        self.targets.iter().filter_map(|(target, _, address)| Some((target, address.as_ref()?.name()?)))
    }

    /// Returns `before` with one entry for each address of `target`. Keeps the entries of addresses that stay. Without
    /// addresses, the target has an entry whose attempts fail, so that operators see the error.
    pub(super) fn with_addresses(
        &self,
        before: &[Arc<Entry>],
        target: &Target,
        addresses: &[ResolvedAddress],
    ) -> Vec<Arc<Entry>> {
        // The first answer for a name makes no slow start: at the start of the gateway, all targets are new.
        let is_new = before.iter().any(|entry| entry.address.is_some() && self.targets[entry.position].0 == *target);
        let resolved = |position| {
            let entry = |resolved: Option<&ResolvedAddress>| {
                let (address, weight) = resolved.map_or((None, 1), |found| (Some(found.address), found.weight));
                let kept = (position, address, self.weight(position, weight));
                let is_kept = |entry: &&Arc<Entry>| (entry.position, entry.address, entry.weight) == kept;
                before.iter().find(is_kept).cloned().unwrap_or_else(|| self.entry(position, address, weight, is_new))
            };
            match addresses {
                [] => vec![entry(None)],
                resolved => resolved.iter().map(|address| entry(Some(address))).collect(),
            }
        };
        let others = |position| before.iter().filter(|entry| entry.position == position).cloned().collect();
        let all = self.targets.iter().enumerate();
        all.flat_map(|(position, (other, ..))| if other == target { resolved(position) } else { others(position) })
            .collect()
    }

    /// Creates the entry of the target at this position.
    fn entry(&self, position: usize, address: Option<SocketAddr>, srv_weight: u32, is_new: bool) -> Arc<Entry> {
        let (settings, (target, metrics, target_address)) = (&self.settings, &self.targets[position]);
        let name = target.to_string();
        let state = self.states.get_or_create(&settings.name, &name, address, metrics, is_new);
        let address_text = address.map(|address| address.to_string()).unwrap_or_default();
        let id = hash(&[name.as_bytes(), address_text.as_bytes()]);
        let weight = self.weight(position, srv_weight);
        let tls = || self.tls_configs.get_or_read(settings);
        let dialer = |address| match (target, target.authority()) {
            (target, Some(authority)) if target.uses_tls() => Dialer::tls(address, &authority, settings, tls()),
            (_, authority) => Dialer::plaintext(address, authority.as_ref(), settings),
        };
        let lacks_address = address.is_none() && target_address.as_ref().is_some_and(|target| target.name().is_some());
        let dialer = target_address.as_ref().map(|target| dialer(target.with_resolved(address)));
        let endpoint = |dialer| Backend::Http(Endpoint::new(dialer, settings, self.metrics.clone(), &state));
        let backend = dialer.map_or(Backend::Echo, endpoint);
        Arc::new(Entry { state, position, address, lacks_address, weight, id, turn: AtomicI64::new(0), backend })
    }

    fn weight(&self, position: usize, srv_weight: u32) -> u32 {
        self.settings.weights.get(position).map_or(srv_weight, |weight| weight.saturating_mul(srv_weight))
    }
}
