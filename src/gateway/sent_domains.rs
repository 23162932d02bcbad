//! The domains that a control plane has sent last, which reloads of the rule file keep.

use tokio::sync::watch;

use super::error::ReloadError;
use tidegate_config::built::Part;
use tidegate_config::{Config, ControlPlane, WithSentDomains};
use tidegate_metrics::Metrics;

/// The control plane of a running gateway, and what it has sent.
#[derive(Debug)]
pub(super) struct SentDomains {
    /// The resources of the last valid configuration. `None` before the first one.
    pub(super) resources: Option<Vec<Part>>,
    pub(super) plane: watch::Sender<Option<ControlPlane>>,
}

// === impl SentDomains ===

impl SentDomains {
    /// Starts with the control plane of a configuration.
    pub(super) fn new(config: &Config) -> Self {
        Self { resources: None, plane: watch::channel(plane(config).cloned()).0 }
    }

    /// Adds the domains that were sent to the configuration of a reload.
    ///
    /// # Errors
    /// They do not fit the new configuration.
    pub(super) fn add_to(&self, config: Config) -> Result<Config, ReloadError> {
        let (Some(service), Some(resources)) = (&config.service, &self.resources) else { return Ok(config) };
        let WithSentDomains { service, .. } =
            service.with_sent_domains(resources).map_err(ReloadError::ControlPlane)?;
        Ok(Config { service: Some(service), ..config })
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
