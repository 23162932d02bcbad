//! The keys of TLS to upstreams and control planes.

use super::keys::Kind::{Flag, Text};
use super::shape::shape;

shape! {
    /// Files are PEM. The gateway notices changed files, and uses them for new connections. A relative path starts at the
    /// folder of the rule file.
    UPSTREAM_TLS: UpstreamTls = "`tls` of an upstream" {
        /// The authorities that may sign the targets' certificates. By default, the authorities that the system trusts.
        ca: String = Text, Optional;
        /// The server name that the gateway sends (SNI) and verifies. By default, the host of the target.
        server_name: String = Text, Optional;
        /// The client certificate for the targets, followed by its intermediate certificates. Requires `key`.
        cert: String = Text, Optional;
        /// The private key of `cert`, not encrypted.
        key: String = Text, Optional;
        /// Whether to verify certificates. With `false`, anyone on the network path can read and change the traffic.
        verify: bool = Flag, Default("true");
    }
}
