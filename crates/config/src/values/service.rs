//! Settings of the rate limit service.

use std::sync::Arc;

use serde::Serialize;

use super::control_plane::ControlPlane;
use super::listen::ListenAddress;
use tidegate_rules::json;
use tidegate_rules::settings::tls::ListenTls;
use tidegate_service::Domains;

/// The rate limit service of a rule file. At least one of `grpc` and `http` is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The listener for gRPC calls. `None` if it is off.
    pub grpc: Option<ServiceListener>,
    /// The address for calls over HTTP. `None` if it is off.
    pub http: Option<ListenAddress>,
    /// The names of the files with descriptors.
    pub files: Vec<String>,
    /// The control plane that sends more domains. `None` without `xds`.
    pub control_plane: Option<ControlPlane>,
    /// The domains with their limits.
    pub domains: Arc<Domains>,
}

/// An address for gRPC calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceListener {
    /// The address.
    #[serde(serialize_with = "json::text")]
    pub address: ListenAddress,
    /// TLS settings, or `None` for plaintext.
    pub tls: Option<ListenTls>,
}
