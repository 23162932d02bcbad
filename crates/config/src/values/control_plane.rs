//! Settings of a control plane that sends domains to the rate limit service.

use std::sync::Arc;

use serde::Serialize;

use tidegate_rules::json;
use tidegate_rules::settings::store::BucketNames;
use tidegate_rules::settings::upstream::{Target, UpstreamTls};
use tidegate_service::{Domains, Window};

/// A control plane that sends domains to the rate limit service. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ControlPlane {
    /// The address: [`Target::Http`] or [`Target::Https`].
    #[serde(rename = "xds", serialize_with = "json::text")]
    pub target: Target,
    /// The `id` of the node that the service sends.
    pub node: String,
    /// Whether the health checks of the service fail until the control plane has sent a configuration.
    #[serde(rename = "required")]
    pub is_required: bool,
    /// TLS settings. `None` for plaintext.
    pub tls: Option<UpstreamTls>,
    /// The settings of the domains that the control plane sends.
    #[serde(skip)]
    pub(crate) domains: SentDomains,
}

/// The settings of the domains that a control plane sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentDomains {
    /// The algorithms of the domains.
    pub(crate) windows: Windows,
    /// Whether several resources may have the same domain.
    pub(crate) merges: bool,
    /// The names of buckets in the store.
    pub(crate) names: BucketNames,
    /// The domains of the rule file.
    pub(crate) own: Arc<Domains>,
}

/// The algorithms of domains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Windows {
    pub(crate) default: Window,
    /// The name and the algorithm of single domains.
    pub(crate) domains: Vec<(String, Window)>,
}

impl ControlPlane {
    /// Returns `true` if both are the same control plane, with the same TLS settings. Their domains can differ.
    pub fn has_same_connection(&self, other: &Self) -> bool {
        (&self.target, &self.node, &self.tls) == (&other.target, &other.node, &other.tls)
    }
}

impl Windows {
    /// Returns the algorithm of a domain.
    pub(crate) fn of(&self, domain: &str) -> Window {
        let own = self.domains.iter().find(|(name, _)| name == domain);
        own.map_or(self.default, |(_, window)| *window)
    }
}
