//! TLS of listeners and clusters.

use super::{At, one};
use crate::draft::value::{Map, Value};
use crate::report::Report;

/// Adds `tls` to a listener.
pub(super) fn downstream_tls(socket: At<'_>, listen: &mut Map, report: &mut Report) {
    let Some(config) = socket.get("typed_config") else { return };
    let common = config.get("common_tls_context");
    let certificates = common.map(|common| certificates(common)).unwrap_or_default();
    if certificates.is_empty() {
        report.lost(&socket.place(), "transport_socket", "its certificates are not files: write `tls` of the listener");
        return;
    }
    let mut tls = Map::of([("certificates", Value::List(certificates))]);
    let minimum = common.and_then(|common| common.at(&["tls_params", "tls_minimum_protocol_version"]));
    if minimum.and_then(|minimum| minimum.node.text()) == Some("TLSv1_3") {
        tls.set("min_version", "1.3");
    }
    if config.flag("require_client_certificate") {
        match common.and_then(|common| common.at(&["validation_context", "trusted_ca"])).and_then(file) {
            Some(ca) => tls.set("client_auth", one("ca", ca)),
            None => report.lost(&socket.place(), "require_client_certificate", "its authorities are not a file"),
        }
    }
    listen.set("tls", tls);
    report.same(&socket.place(), "transport_socket", "`tls` of the listener");
}

/// Returns the `tls` of an upstream.
pub(super) fn upstream_tls(socket: At<'_>, report: &mut Report) -> Map {
    let mut tls = Map::default();
    let Some(config) = socket.get("typed_config") else { return tls };
    tls.set_some("server_name", config.text("sni"));
    let common = config.get("common_tls_context");
    match common.and_then(|common| common.at(&["validation_context", "trusted_ca"])) {
        Some(ca) => match file(ca) {
            Some(ca) => tls.set("ca", ca),
            None => report.lost(&ca.place(), "trusted_ca", "not a file"),
        },
        None => {
            let reason = "certificates of the targets are verified; there, they are not: set `verify: false` for that";
            report.stricter(&socket.place(), "validation_context", reason);
        }
    }
    if let Some(Value::Map(own)) = common.and_then(|common| certificates(common).into_iter().next()) {
        tls.extend(own);
    }
    report.same(&socket.place(), "transport_socket", "`tls` of the upstream, with `https://`");
    tls
}

/// Returns the certificates that are files.
fn certificates(common: At<'_>) -> Vec<Value> {
    let pair = |certificate: At<'_>| {
        let cert = certificate.get("certificate_chain").and_then(file)?;
        let key = certificate.get("private_key").and_then(file)?;
        Some(Value::Map(Map::of([("cert", cert.into()), ("key", key.into())])))
    };
    common.items("tls_certificates").filter_map(pair).collect()
}

/// Returns the path of a file.
fn file(source: At<'_>) -> Option<String> {
    source.text("filename").map(str::to_owned)
}
