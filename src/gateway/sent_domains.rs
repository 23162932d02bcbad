//! The domains that a control plane has sent last, which reloads of the rule file keep.

use bytes::Bytes;
use tokio::sync::watch;

use super::error::ReloadError;
use super::saved_domains::SavedDomains;
use crate::service::SentResources;
use tidegate_config::{Config, ControlPlane, WithSentDomains};
use tidegate_metrics::Metrics;

/// The control plane of a running gateway, and what it has sent.
#[derive(Debug)]
pub(super) struct SentDomains {
    /// The resources of the last valid configuration. `None` before the first one.
    pub(super) resources: Option<SentResources>,
    pub(super) plane: watch::Sender<Option<ControlPlane>>,
    /// The file for the next start. `None` without `--state`.
    pub(super) file: Option<SavedDomains>,
}

// === impl SentDomains ===

impl SentDomains {
    /// Starts with the control plane of a configuration.
    pub(super) fn new(config: &Config) -> Self {
        Self { resources: None, plane: watch::channel(plane(config).cloned()).0, file: None }
    }

    /// Adds the domains that were sent to the configuration of a reload.
    ///
    /// # Errors
    /// They do not fit the new configuration.
    pub(super) fn add_to(&self, config: Config) -> Result<Config, ReloadError> {
        let (Some(service), Some(resources)) = (&config.service, &self.resources) else { return Ok(config) };
        let WithSentDomains { service, .. } =
            service.with_sent_domains(&resources.parts).map_err(ReloadError::ControlPlane)?;
        Ok(Config { service: Some(service), ..config })
    }

    /// Returns the encoded resources.
    pub(super) fn encoded(&self) -> Option<Vec<Bytes>> {
        self.resources.as_ref().map(|resources| resources.encoded.clone())
    }

    /// Saves the resources for the next start. Without `--state`, does nothing.
    pub(super) fn save(&self) {
        if let (Some(file), Some(resources), Some(plane)) = (&self.file, &self.resources, &*self.plane.borrow()) {
            file.write(plane, &resources.encoded);
        }
    }

    /// Follows the control plane of a new configuration. The previous domains stay in use until its domains arrive.
    pub(super) fn follow(&mut self, config: &Config, metrics: &Metrics) {
        let new = plane(config);
        if new.is_none() {
            self.resources = None;
        }
        let is_changed = self.plane.send_if_modified(|old| {
            let is_same = match (&*old, new) {
                (Some(old), Some(new)) => old.has_same_connection(new),
                (old, new) => old.is_none() && new.is_none(),
            };
            if !is_same {
                *old = new.cloned();
            }
            !is_same
        });
        if is_changed {
            metrics.set_control_plane(new.map(|plane| plane.target.to_string()).as_deref());
        }
    }
}

fn plane(config: &Config) -> Option<&ControlPlane> {
    config.service.as_ref()?.control_plane.as_ref()
}
