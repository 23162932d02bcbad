//! Reads configurations of ingress-nginx: Ingress resources with its annotations, and the ConfigMap of the controller.
//!
//! `manifest` finds the resources, `annotations` reads settings and notes them, and `routes` writes a route for each path,
//! in the order of the controller: hosts before wildcards, and longer paths before shorter ones.

mod annotations;
mod backend;
mod canary;
mod config_map;
mod cors;
mod guards;
mod limits;
mod manifest;
mod order;
mod redirects;
mod routes;
mod tls;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use self::config_map::Defaults;
use self::manifest::{Ingress, Resource};
use crate::draft::Draft;
use crate::error::ConvertError;
use crate::report::{Notes, Report};
use crate::sources::Input;

/// The start of the names of the controller's annotations.
const PREFIX: &str = "nginx.ingress.kubernetes.io/";

/// Settings of the controller's ConfigMap, one of which each such ConfigMap has.
const CONFIG_KEYS: [&str; 6] = [
    "use-forwarded-headers",
    "proxy-body-size",
    "limit-req-status-code",
    "use-proxy-protocol",
    "server-snippet",
    "ssl-protocols",
];

/// A conversion of the resources.
struct Conversion<'d> {
    draft: &'d mut Draft,
    notes: Notes,
    /// The settings of the ConfigMap.
    defaults: Defaults,
    replicas: NonZeroU32,
    /// The names of upstreams, by their URL and settings.
    upstreams: HashMap<String, String>,
    reach: crate::nginx::reach::Reach,
}

/// Returns `true` if a file has this format.
pub(crate) fn recognizes(_name: &str, text: &str) -> bool {
    let has = |word: &str| text.contains(word);
    let is_ingress = has("kind: Ingress") || has("\"kind\": \"Ingress\"") || has("\"kind\":\"Ingress\"");
    let is_config = has("ConfigMap") && CONFIG_KEYS.iter().any(|key| text.contains(key));
    has("apiVersion") && (is_ingress || is_config) || is_ingress && has(PREFIX)
}

/// Converts the files.
///
/// # Errors
/// Fails if a file cannot be read or parsed.
pub(crate) fn convert(input: &mut Input<'_>, draft: &mut Draft, report: &mut Report) -> Result<(), ConvertError> {
    let mut documents = Vec::new();
    for path in input.paths {
        let text = input.read(path)?;
        let nodes = crate::tree::read(&text.name, &text.text)?;
        documents.extend(nodes.into_iter().map(|node| (Arc::clone(&text.name), node)));
    }
    let resources = manifest::resources(&documents);
    let (mut ingresses, mut config_maps) = (Vec::new(), Vec::new());
    for resource in &resources {
        match resource.kind() {
            "Ingress" => ingresses.push(Ingress::read(resource)),
            "ConfigMap" => config_maps.push(resource),
            _ => {}
        }
    }
    let mut conversion = Conversion {
        draft,
        notes: Notes::default(),
        defaults: Defaults::default(),
        replicas: input.options.replicas,
        upstreams: HashMap::new(),
        reach: crate::nginx::reach::Reach::default(),
    };
    conversion.config_maps(&config_maps);
    conversion.ingresses(&ingresses)?;
    conversion.notes.finish(report);
    Ok(())
}

// === impl Resource ===

impl Resource<'_> {
    fn kind(&self) -> &str {
        self.node.get("kind").and_then(|kind| kind.text()).unwrap_or_default()
    }
}
