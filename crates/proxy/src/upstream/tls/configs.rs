//! The TLS configurations of all upstreams.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::config::UpstreamTlsConfig;
use crate::transport::tls::{CertificateWatcher, Reloadable};
use crate::upstream::settings::UpstreamSettings;
use tidegate_metrics::Metrics;

/// The TLS configurations of all upstreams, by name. All workers share them, so that each file is read once.
#[derive(Clone, Debug, Default)]
pub struct UpstreamTlsConfigs(BTreeMap<Arc<str>, Arc<UpstreamTlsConfig>>);

// === impl UpstreamTlsConfigs ===

impl UpstreamTlsConfigs {
    /// Reads the files of all upstreams that have TLS settings.
    pub fn read<'a>(upstreams: impl IntoIterator<Item = &'a UpstreamSettings>) -> Self {
        let read = |upstream: &UpstreamSettings| {
            let config = UpstreamTlsConfig::new(upstream.tls.clone()?);
            Some((Arc::clone(&upstream.name), Arc::new(config)))
        };
        Self(upstreams.into_iter().filter_map(read).collect())
    }

    /// Returns the configurations after a reload. Reads the files of an upstream only if its TLS settings changed.
    pub fn replaced<'a>(&self, upstreams: impl IntoIterator<Item = &'a UpstreamSettings>) -> Self {
        let replaced = |upstream: &UpstreamSettings| {
            let tls = upstream.tls.as_ref()?;
            let kept = self.0.get(&upstream.name).filter(|config| config.has_settings(tls)).cloned();
            let config = kept.unwrap_or_else(|| Arc::new(UpstreamTlsConfig::new(tls.clone())));
            Some((Arc::clone(&upstream.name), config))
        };
        Self(upstreams.into_iter().filter_map(replaced).collect())
    }

    /// Returns the configuration of an upstream. Reads its files if that has not been done.
    pub(in crate::upstream) fn get_or_read(&self, upstream: &UpstreamSettings) -> Arc<UpstreamTlsConfig> {
        let existing = self.0.get(&upstream.name).cloned();
        existing.unwrap_or_else(|| Arc::new(UpstreamTlsConfig::new(upstream.tls.clone().unwrap_or_default())))
    }

    /// Creates watchers that reload the configurations whose files change.
    pub fn watchers(&self, metrics: &Arc<Metrics>) -> Vec<CertificateWatcher> {
        self.watchers_since(&Self::default(), metrics)
    }

    /// Like [`watchers`](Self::watchers), without the configurations that `before` has.
    pub fn watchers_since(&self, before: &Self, metrics: &Arc<Metrics>) -> Vec<CertificateWatcher> {
        let is_new = |name: &Arc<str>, config: &Arc<UpstreamTlsConfig>| {
            !before.0.get(name).is_some_and(|before| Arc::ptr_eq(before, config))
        };
        let with_files = self.0.iter().filter(|(name, config)| is_new(name, config) && !config.files().is_empty());
        let watcher = |(name, config): (&Arc<str>, &Arc<UpstreamTlsConfig>)| {
            let user = format!("upstream {name}");
            CertificateWatcher::new(Arc::clone(config) as _, &user, config.check_interval(), Arc::clone(metrics))
        };
        with_files.map(watcher).collect()
    }
}
