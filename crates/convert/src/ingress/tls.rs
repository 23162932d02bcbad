//! Listeners, and the certificates of `spec.tls`.

use super::Conversion;
use super::manifest::Ingress;
use crate::draft::Listen;
use crate::draft::value::{Map, Value};
use crate::report::Verdict;
use crate::tree::Node;

impl Conversion<'_> {
    /// Adds the listeners: plaintext, and TLS if an Ingress has certificates.
    pub(super) fn listeners(&mut self, ingresses: &[&Ingress<'_>]) {
        let mut certificates: Vec<Value> = Vec::new();
        for ingress in ingresses {
            for entry in ingress.resource.node.at(&["spec", "tls"]).map(Node::items).unwrap_or_default() {
                let Some(secret) = entry.get("secretName").and_then(Node::text).filter(|name| is_name(name)) else {
                    continue;
                };
                let folder = format!("tls/{secret}");
                let certificate = Map::of([
                    ("cert", format!("{folder}/tls.crt").into()),
                    ("key", format!("{folder}/tls.key").into()),
                ]);
                if !certificates.contains(&Value::Map(certificate.clone())) {
                    certificates.push(Value::Map(certificate));
                }
                let reason = format!("`tls.certificates`: mount the secret as the folder {folder}");
                self.notes.add(
                    &ingress.resource.place(entry.line),
                    format!("secretName: {secret}"),
                    Verdict::Same,
                    reason,
                );
            }
        }
        let plaintext = Listen { address: "0.0.0.0:80".to_owned(), more: self.listener_keys(), place: None };
        self.draft.listen.push(plaintext);
        if !certificates.is_empty() {
            let mut more = self.listener_keys();
            more.set("tls", Map::of([("certificates", Value::List(certificates))]));
            self.draft.listen.push(Listen { address: "0.0.0.0:443".to_owned(), more, place: None });
        }
    }
}

/// Returns `true` for the name of a resource, which is safe as the name of a folder.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('.')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}
