//! The addresses: `HOST`, `GRPC_HOST`, `DEBUG_HOST`, their ports, and `PROMETHEUS_ADDR`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::environment::Environment;
use super::yaml::{FlowMap, flow_list, quoted};

/// Returns `http` of the service.
pub(super) fn http(env: &mut Environment) -> String {
    quoted(&address(env, "HOST", ("PORT", 8080)))
}

/// Returns `grpc` of the service.
pub(super) fn grpc(env: &mut Environment) -> String {
    let address = match env.text("GRPC_UDS") {
        Some(path) => format!("unix:{path}"),
        None => address(env, "GRPC_HOST", ("GRPC_PORT", 8081)),
    };
    let Some(tls) = grpc_tls(env) else { return quoted(&address) };
    let mut listener = FlowMap::default();
    listener.add("address", quoted(&address));
    listener.add("tls", tls);
    listener.flow()
}

fn grpc_tls(env: &mut Environment) -> Option<String> {
    if !env.flag("GRPC_SERVER_USE_TLS", false) {
        return None;
    }
    if env.text("GRPC_CLIENT_TLS_SAN").is_some() {
        env.fault("GRPC_CLIENT_TLS_SAN", "is not supported: the authorities of GRPC_CLIENT_TLS_CACERT decide");
    }
    let mut certificate = FlowMap::default();
    for (key, name) in [("cert", "GRPC_SERVER_TLS_CERT"), ("key", "GRPC_SERVER_TLS_KEY")] {
        certificate.add_text(key, env.text(name));
        if env.text(name).is_none() {
            env.fault(name, "is not set, but GRPC_SERVER_USE_TLS is");
        }
    }
    let mut tls = FlowMap::default();
    tls.add("certificates", flow_list([certificate.flow()]));
    if let Some(ca) = env.text("GRPC_CLIENT_TLS_CACERT") {
        tls.add("client_auth", format!("{{ ca: {} }}", quoted(ca)));
    }
    Some(tls.flow())
}

/// Returns `admin`: the address for Prometheus, or else the address for debugging.
pub(super) fn admin(env: &mut Environment) -> String {
    let debug = address(env, "DEBUG_HOST", ("DEBUG_PORT", 6070));
    let address = if env.flag("USE_PROMETHEUS", false) { prometheus(env) } else { debug };
    format!("{{ address: {}, dashboard: off }}", quoted(&address))
}

fn prometheus(env: &mut Environment) -> String {
    let text = env.text_or("PROMETHEUS_ADDR", ":9090");
    match text.rsplit_once(':').and_then(|(host, port)| Some(join(host, port.parse().ok()?)?.to_string())) {
        Some(address) => address,
        None => {
            env.fault("PROMETHEUS_ADDR", "is not an address with a port, such as `:9090` or `127.0.0.1:9090`");
            String::new()
        }
    }
}

fn address(env: &mut Environment, host_name: &str, (port_name, default): (&str, u16)) -> String {
    let port = env.port(port_name, default);
    let host = env.text_or(host_name, "0.0.0.0");
    match join(host, port) {
        Some(address) => address.to_string(),
        None => {
            env.fault(host_name, "is not an IP address");
            String::new()
        }
    }
}

/// Returns the address. Returns `None` if the host is a name.
fn join(host: &str, port: u16) -> Option<SocketAddr> {
    let host: IpAddr = match host {
        "" => Ipv4Addr::UNSPECIFIED.into(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => host.trim_start_matches('[').trim_end_matches(']').parse().ok()?,
    };
    Some(SocketAddr::new(host, port))
}
