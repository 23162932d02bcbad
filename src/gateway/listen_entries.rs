//! The addresses that a gateway listens on: the entries of `listen`, and the addresses of the rate limit service.

use std::time::Duration;

use tidegate_config::diff::listeners as named_listeners;
use tidegate_config::{Config, Listen, ListenAddress};

/// How long a proxy may keep an idle connection. Longer than an hour, after which Envoy closes it: if the gateway closed it
/// first, a call that is sent at this moment would fail.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);

/// How long the body of a call may wait for its proxy. A call is short, and proxies do not pause in it.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The highest numbers of connections: each worker of a proxy keeps one or a few, and calls over HTTP are for tools.
const MAX_GRPC_CONNECTIONS: usize = 5_000;
const MAX_HTTP_CONNECTIONS: usize = 1_000;

/// The highest number of calls on one connection. Then the proxy reconnects, perhaps to another gateway.
const MAX_CALLS: u32 = 1_000_000;

/// The use of the connections to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Requests to routes.
    Proxy,
    /// Calls of the rate limit service over gRPC.
    ServiceGrpc,
    /// Calls of the rate limit service over HTTP.
    ServiceHttp,
}

/// An entry to listen on.
#[derive(Clone, Debug)]
pub(super) struct ListenEntry {
    /// Identifies the entry in a reload: its role and its address, numbered if several entries have port 0.
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) listen: Listen,
}

/// Returns all entries of a configuration.
pub(super) fn listen_entries(config: &Config) -> Vec<ListenEntry> {
    let of_routes = named_listeners(config).into_iter();
    let of_routes = of_routes.map(|(name, listen)| ListenEntry { name, role: Role::Proxy, listen: listen.clone() });
    let mut entries: Vec<_> = of_routes.collect();
    let Some(service) = &config.service else { return entries };
    if let Some(grpc) = &service.grpc {
        let listen = Listen { tls: grpc.tls.clone(), ..of_calls(&grpc.address, MAX_GRPC_CONNECTIONS) };
        entries.push(ListenEntry { name: format!("grpc {}", grpc.address), role: Role::ServiceGrpc, listen });
    }
    if let Some(address) = &service.http {
        let (name, listen) = (format!("http {address}"), of_calls(address, MAX_HTTP_CONNECTIONS));
        entries.push(ListenEntry { name, role: Role::ServiceHttp, listen });
    }
    entries
}

/// Returns the settings of an address for calls.
fn of_calls(address: &ListenAddress, max_connections: usize) -> Listen {
    Listen {
        max_connections,
        idle_timeout: IDLE_TIMEOUT,
        body_timeout: BODY_TIMEOUT,
        max_requests: MAX_CALLS,
        ..Listen::new(address.clone())
    }
}
