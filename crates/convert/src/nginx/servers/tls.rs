//! TLS of listeners: certificates, versions and client certificates.

use super::Server;
use crate::draft::value::{Map, Value};
use crate::nginx::Conversion;
use crate::nginx::scope::Scope;
use crate::nginx::syntax::Directive;

impl<'c> Conversion<'c, '_> {
    /// Returns `tls` of a listener. Returns `None` if no server has a certificate.
    pub(super) fn tls(&mut self, servers: &[&Server<'c>], default: Option<&Server<'c>>) -> Option<Map> {
        let mut certificates: Vec<Value> = Vec::new();
        // Without a matching name, a listener presents the first certificate.
        for server in default.iter().chain(servers) {
            for certificate in self.certificates(&server.scope) {
                if !certificates.contains(&certificate) {
                    certificates.push(certificate);
                }
            }
        }
        if certificates.is_empty() {
            for directive in servers.iter().flat_map(|server| server.scope.own("listen")) {
                self.notes.lost(directive, "no TLS: the server has no certificate in a file");
            }
            for directive in servers.iter().filter_map(|server| server.scope.last("ssl_verify_client")) {
                if directive.arg(0) != Some("off") {
                    self.notes.lost(directive, "no TLS: the routes of the server respond with 403");
                }
            }
            return None;
        }
        let mut tls = Map::of([("certificates", Value::List(certificates))]);
        let scope = &default.or(servers.first().copied())?.scope;
        self.versions(scope, &mut tls);
        self.client_certificates(scope, &mut tls);
        for server in servers {
            self.note_tls(&server.scope);
            self.note_other_clients(&server.scope, scope);
        }
        Some(tls)
    }

    /// Returns the certificates of a server. Each `ssl_certificate` belongs to the `ssl_certificate_key` at its position.
    fn certificates(&mut self, scope: &Scope<'c>) -> Vec<Value> {
        let (certificates, keys) = (scope.all("ssl_certificate"), scope.all("ssl_certificate_key"));
        let mut found = Vec::new();
        for (index, certificate) in certificates.iter().enumerate() {
            let file = |directive: &&Directive| {
                directive.arg(0).filter(|path| !path.contains('$') && !path.contains(':')).map(|path| self.file(path))
            };
            let key = keys.get(index);
            match (file(certificate), key.and_then(file)) {
                (Some(cert), Some(file)) => {
                    found.push(Value::Map(Map::of([("cert", cert.into()), ("key", file.into())])));
                    self.notes.same(certificate, "`tls.certificates`");
                    key.iter().for_each(|key| self.notes.same(key, "`tls.certificates`"));
                }
                _ => {
                    self.notes.lost(certificate, "the certificate and its key are not files with fixed names");
                    key.iter().for_each(|key| self.notes.lost(key, "see its certificate"));
                }
            }
        }
        found
    }

    fn versions(&mut self, scope: &Scope<'c>, tls: &mut Map) {
        let Some(directive) = scope.last("ssl_protocols") else { return };
        let has = |version: &str| directive.texts().any(|text| text == version);
        if !has("TLSv1.2") && has("TLSv1.3") {
            tls.set("min_version", "1.3");
        }
        match (has("TLSv1.3"), directive.texts().any(|text| !matches!(text, "TLSv1.2" | "TLSv1.3"))) {
            (_, true) => self.notes.stricter(directive, "versions before TLS 1.2 are not supported"),
            (true, false) => self.notes.same(directive, "`min_version`"),
            (false, false) => self.notes.same(directive, "TLS 1.2, and TLS 1.3 as well"),
        }
    }

    fn client_certificates(&mut self, scope: &Scope<'c>, tls: &mut Map) {
        let (verify, ca) = (scope.last("ssl_verify_client"), scope.last("ssl_client_certificate"));
        let mode = verify.and_then(|verify| verify.arg(0)).unwrap_or("off");
        let file = ca.and_then(|ca| ca.arg(0)).map(|path| self.file(path));
        match (mode, file) {
            ("on" | "optional", Some(file)) => {
                let mut auth = Map::of([("ca", file.into())]);
                auth.set_some("required", (mode == "optional").then_some(false));
                tls.set("client_auth", auth);
                let reason = "`client_auth` of the listener: a missing or invalid certificate fails the handshake";
                verify.into_iter().chain(ca).for_each(|directive| self.notes.same(directive, reason));
            }
            ("off", _) => verify.into_iter().for_each(|directive| self.notes.same(directive, "")),
            _ => verify.into_iter().for_each(|directive| {
                self.notes.lost(directive, "client certificates need `on` or `optional`, and `ssl_client_certificate`");
            }),
        }
    }

    /// Notes the client certificates of a server whose listener has other ones.
    fn note_other_clients(&mut self, server: &Scope<'c>, default: &Scope<'c>) {
        for name in ["ssl_verify_client", "ssl_client_certificate"] {
            match (server.last(name), default.last(name)) {
                (Some(own), other) if other != Some(own) => {
                    self.notes.lost(own, "the listener has the client certificates of its default server");
                }
                _ => {}
            }
        }
    }

    /// Notes the settings of TLS that need no key in the rule file.
    fn note_tls(&mut self, scope: &Scope<'c>) {
        if let Some(directive) = scope.last("ssl_ciphers") {
            self.notes.stricter(directive, "only cipher suites with forward secrecy and AEAD");
        }
        if let Some(directive) = scope.last("ssl_stapling") {
            self.notes.lost(directive, "`ocsp` of a certificate needs a file with the response");
        }
        for name in ["http2", "ssl_session_cache", "ssl_session_timeout", "ssl_session_tickets"] {
            if let Some(directive) = scope.last(name) {
                let reason = if name == "http2" { "HTTP/2 is on by default" } else { "tickets resume sessions" };
                self.notes.same(directive, reason);
            }
        }
    }
}
