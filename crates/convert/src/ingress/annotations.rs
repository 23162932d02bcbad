//! The annotations of an Ingress. Each one gets a finding.

use super::manifest::Ingress;
use super::{Conversion, PREFIX};
use crate::report::Verdict;
use crate::tree::Entry;

/// The most annotations of an Ingress that are read.
const MAX_ANNOTATIONS: usize = 1_000;

/// The longest text of an annotation that is read, in bytes. Each path of the Ingress gets a copy of a list.
const MAX_TEXT: usize = 16 << 10;

/// The start of the names of the annotations of F5's controller.
const F5_PREFIX: &str = "nginx.org/";

/// Annotations about logs, buffers, and the controller itself.
const OTHERS: [&str; 24] = [
    "canary-weight-total",
    "client-body-buffer-size",
    "connection-proxy-header",
    "enable-access-log",
    "enable-opentelemetry",
    "enable-opentracing",
    "enable-rewrite-log",
    "http2-push-preload",
    "opentelemetry-operation-name",
    "opentelemetry-trust-incoming-span",
    "opentracing-trust-incoming-span",
    "preserve-trailing-slash",
    "proxy-buffer-size",
    "proxy-buffering",
    "proxy-buffers-number",
    "proxy-busy-buffers-size",
    "proxy-http-version",
    "proxy-max-temp-file-size",
    "proxy-request-buffering",
    "proxy-cookie-path-none",
    "proxy-headers-hash",
    "service-upstream",
    "ssl-prefer-server-ciphers",
    "websocket-services",
];

impl<'t> Ingress<'t> {
    /// Returns an annotation of the controller, without its prefix.
    pub(super) fn annotation(&self, name: &str) -> Option<&'t Entry> {
        let entries = self.resource.entries(&["metadata", "annotations"]);
        entries.iter().rev().take(MAX_ANNOTATIONS).find(|entry| entry.key.strip_prefix(PREFIX) == Some(name))
    }

    /// Returns the text of an annotation, unless it is too long.
    pub(super) fn text(&self, name: &str) -> Option<&'t str> {
        self.annotation(name)?.value.text().filter(|text| text.len() <= MAX_TEXT)
    }

    /// Returns `true` if an annotation is `true`.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.annotation(name).and_then(|entry| entry.value.flag()) == Some(true)
    }

    /// Returns a positive number. The controller ignores other values.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.annotation(name)?.value.number().filter(|number| *number > 0)
    }
}

// === impl Conversion ===

impl Conversion<'_> {
    /// Notes an annotation, if the Ingress has it.
    pub(super) fn note(&mut self, ingress: &Ingress<'_>, name: &str, verdict: Verdict, reason: impl Into<String>) {
        if let Some(entry) = ingress.annotation(name) {
            self.notes.add(&ingress.resource.place(entry.line), setting(entry), verdict, reason);
        }
    }

    /// Notes an annotation that the rule file has in the same way.
    pub(super) fn same(&mut self, ingress: &Ingress<'_>, name: &str, reason: impl Into<String>) {
        self.note(ingress, name, Verdict::Same, reason);
    }

    /// Notes an annotation that the rule file does not have.
    pub(super) fn lost(&mut self, ingress: &Ingress<'_>, name: &str, reason: impl Into<String>) {
        self.note(ingress, name, Verdict::Lost, reason);
    }

    /// Notes the annotations of the controller that have no finding yet.
    pub(super) fn note_others(&mut self, ingress: &Ingress<'_>) {
        for entry in ingress.resource.entries(&["metadata", "annotations"]) {
            if entry.key.starts_with(F5_PREFIX) {
                let place = ingress.resource.place(entry.line);
                self.notes.add(&place, setting(entry), Verdict::Lost, "an annotation of another controller");
            }
            let Some(name) = entry.key.strip_prefix(PREFIX).filter(|name| !OTHERS.contains(name)) else { continue };
            let place = ingress.resource.place(entry.line);
            if !self.notes.has(&place, setting(entry)) {
                let reason = match name {
                    "auth-url" | "auth-type" | "auth-secret" | "auth-tls-secret" => {
                        "its routes respond with 403, until you write `require`"
                    }
                    _ if name.starts_with("auth-") => "a part of the authentication, which is lost",
                    _ if name.ends_with("-snippet") => {
                        "directives of nginx are not converted; if they can reject requests, the routes respond with 403"
                    }
                    _ if name.contains("modsecurity") => "there is no web application firewall",
                    _ => "not supported",
                };
                self.notes.add(&place, setting(entry), Verdict::Lost, reason);
            }
        }
    }
}

/// Returns an annotation as in the file, without its prefix.
pub(super) fn setting(entry: &Entry) -> String {
    let name = entry.key.strip_prefix(PREFIX).unwrap_or(&entry.key);
    format!("{name}: {}", entry.value.text().unwrap_or_default())
}
