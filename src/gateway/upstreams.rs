//! The upstreams of all workers, and the state that the workers share: the states of targets, TLS configurations, the
//! names of targets, and the permissions of authorization services.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::authorization::{AnswerCache, services};
use tidegate_layer::authorization::WorkerServices;
use tidegate_metrics::Metrics;
use tidegate_proxy::transport::tls::CertificateWatcher;
use tidegate_proxy::upstream::tls::UpstreamTlsConfigs;
use tidegate_proxy::upstream::{NameTasks, Resolver, TargetStates, Upstreams};
use tidegate_rules::settings::upstream::UpstreamSettings;

type Settings = BTreeMap<Arc<str>, UpstreamSettings>;

/// The upstreams of all workers.
#[derive(Debug)]
pub(super) struct WorkerUpstreams {
    targets: TargetStates,
    tls_configs: UpstreamTlsConfigs,
    resolver: Resolver,
    per_worker: Vec<Upstreams>,
    permissions: Arc<AnswerCache>,
}

impl WorkerUpstreams {
    /// Creates the upstreams. Their names are resolved with these DNS servers, while the returned tasks run.
    pub(super) fn new(
        settings: &Settings,
        dns_servers: &[SocketAddr],
        workers: usize,
        metrics: &Metrics,
    ) -> (Self, NameTasks) {
        settings.values().for_each(warn_if_unverified);
        let targets = TargetStates::default();
        let tls_configs = UpstreamTlsConfigs::read(settings.values());
        let (resolver, tasks) = Resolver::new(dns_servers);
        let upstreams =
            |_| Upstreams::with_shared_state(settings.values(), workers, metrics, &tls_configs, &targets, &resolver);
        let per_worker = (0..workers).map(upstreams).collect();
        let permissions = Arc::new(AnswerCache::new());
        (Self { targets, tls_configs, resolver, per_worker, permissions }, tasks)
    }

    /// Returns the upstreams after a reload. An upstream whose settings are equal keeps its connections.
    pub(super) fn replaced(&self, old: &Settings, new: &Settings, metrics: &Metrics) -> Self {
        let is_kept = |settings: &UpstreamSettings| old.get(&settings.name) == Some(settings);
        let changed = || new.values().filter(|settings| !is_kept(settings));
        changed().for_each(warn_if_unverified);
        let targets = self.targets.clone();
        let tls_configs = self.tls_configs.replaced(new.values());
        let workers = self.per_worker.len();
        let upstreams = |before: &Upstreams| {
            let kept = new.values().filter(|settings| is_kept(settings)).map(|settings| &settings.name);
            let new = Upstreams::with_shared_state(changed(), workers, metrics, &tls_configs, &targets, &self.resolver);
            new.with_kept(before, kept)
        };
        let per_worker = self.per_worker.iter().map(upstreams).collect();
        let permissions = Arc::clone(&self.permissions);
        Self { targets, tls_configs, resolver: self.resolver.clone(), per_worker, permissions }
    }

    /// Returns the resolver of the names of all upstreams.
    pub(super) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Returns the upstreams of each worker.
    pub(super) fn per_worker(&self) -> &[Upstreams] {
        &self.per_worker
    }

    /// Returns the access of each worker to authorization services. Permissions survive a reload.
    pub(super) fn services(&self) -> WorkerServices {
        services(&self.per_worker, &self.permissions)
    }

    /// Returns the upstreams of one worker: all workers have the same targets, and each is checked once.
    pub(super) fn checked(&self) -> Upstreams {
        self.per_worker.first().map(Upstreams::share).unwrap_or_default()
    }

    /// Returns the upstreams of each worker, with the same connections.
    pub(super) fn shared(&self) -> Vec<Upstreams> {
        self.per_worker.iter().map(Upstreams::share).collect()
    }

    /// Creates watchers for the certificate files.
    pub(super) fn watchers(&self, metrics: &Arc<Metrics>) -> Vec<CertificateWatcher> {
        self.tls_configs.watchers(metrics)
    }

    /// Creates watchers for the certificate files that `before` did not watch.
    pub(super) fn watchers_since(&self, before: &Self, metrics: &Arc<Metrics>) -> Vec<CertificateWatcher> {
        self.tls_configs.watchers_since(&before.tls_configs, metrics)
    }
}

/// Warns about `verify: false` at every start and change, so that operators cannot miss it.
fn warn_if_unverified(upstream: &UpstreamSettings) {
    if upstream.tls.as_ref().is_some_and(|tls| !tls.verify) {
        tracing::warn!(
            upstream = %upstream.name,
            "`verify: false`: certificates are not verified, an attacker in the network can read and change all traffic"
        );
    }
}
