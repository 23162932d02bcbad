//! Settings of the gateway: listeners, the admin listener, the access log, metrics and DNS.

pub(crate) mod access_log;
pub(crate) mod admin;
pub(crate) mod dns;
pub(crate) mod listen;
pub(crate) mod listen_tls;
pub(crate) mod metrics;
