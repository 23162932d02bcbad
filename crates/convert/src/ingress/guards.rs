//! Protections of an Ingress that are lost: its routes are closed.

use super::annotations::setting;
use super::manifest::Ingress;
use super::{Conversion, PREFIX};
use crate::report::Verdict;
use crate::tree::Entry;

/// Texts of snippets that reject requests.
const REJECTING: [&str; 6] = ["deny ", "auth_", "return 4", "access_by_lua", "ssl_verify", "limit_except"];

/// Settings of the ConfigMap that reject requests to all Ingresses.
const OF_ALL: [&str; 7] = [
    "global-auth-url",
    "whitelist-source-range",
    "denylist-source-range",
    "block-cidrs",
    "block-referers",
    "block-user-agents",
    "server-snippet",
];

/// Returns `true` if a setting of the ConfigMap rejects requests.
pub(super) fn protects_all(entry: &Entry) -> bool {
    let text = entry.value.text().unwrap_or_default();
    let is_snippet = entry.key.ends_with("-snippet");
    OF_ALL.contains(&entry.key.as_str()) && !text.is_empty() && (!is_snippet || rejects(text))
}

impl Conversion<'_> {
    /// Returns the first protection of an Ingress that is lost. The lists of addresses have been read before.
    pub(super) fn lost_guard(&self, ingress: &Ingress<'_>) -> Option<String> {
        let is_optional = ingress.text("satisfy") == Some("any")
            && ["whitelist-source-range", "allowlist-source-range"].iter().any(|name| ingress.text(name).is_some());
        let entries = ingress.resource.entries(&["metadata", "annotations"]);
        let is_lost = |entry: &Entry| {
            let place = ingress.resource.place(entry.line);
            self.notes.verdict(&place, setting(entry)) == Some(Verdict::Lost)
        };
        let own = entries.iter().find(|entry| match entry.key.strip_prefix(PREFIX) {
            Some(name) if name.ends_with("-source-range") => is_lost(entry),
            Some(name) if name.starts_with("auth-") && is_optional => false,
            Some(name) => protects(name, entry, ingress),
            None => protects_elsewhere(entry),
        });
        let shown = |entry: &Entry| {
            let name = entry.key.strip_prefix(PREFIX).unwrap_or(&entry.key);
            format!("`{name}` ({})", ingress.resource.place(entry.line))
        };
        let of_all = self.defaults.guards.iter().find(|(name, _)| match name.as_str() {
            "global-auth-url" => ingress.text("enable-global-auth") != Some("false"),
            "whitelist-source-range" | "denylist-source-range" => ingress.text(name).is_none(),
            _ => true,
        });
        own.map(shown).or_else(|| of_all.map(|(_, shown)| shown.clone()))
    }
}

/// Returns `true` if an annotation of the controller rejects requests, and is not converted.
fn protects(name: &str, entry: &Entry, ingress: &Ingress<'_>) -> bool {
    let text = entry.value.text().unwrap_or_default();
    match name {
        "auth-url" | "auth-type" | "auth-secret" => !text.is_empty(),
        "auth-tls-secret" => {
            let mode = ingress.text("auth-tls-verify-client").unwrap_or("on");
            !text.is_empty() && !matches!(mode, "off" | "optional" | "optional_no_ca")
        }
        name => name.ends_with("-snippet") && rejects(text),
    }
}

/// Returns `true` if an annotation of F5's controller rejects requests.
fn protects_elsewhere(entry: &Entry) -> bool {
    let name = entry.key.strip_prefix("nginx.org/").or_else(|| entry.key.strip_prefix("nginx.com/"));
    let is_snippet = |name: &str| name.ends_with("-snippets") && rejects(entry.value.text().unwrap_or_default());
    name.is_some_and(|name| crate::guards::is_protective(name) || name == "policies" || is_snippet(name))
}

fn rejects(snippet: &str) -> bool {
    REJECTING.iter().any(|text| snippet.contains(text))
}
