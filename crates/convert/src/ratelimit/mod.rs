//! Reads domains of envoyproxy/ratelimit, and configurations of Envoy.
//!
//! Domains alone become a rate limit service that reads the same files (`service`). With a configuration of Envoy, they become
//! limits of the routes of a gateway (`envoy`): `actions` reads the actions that make descriptors from a request, and `plan`
//! finds their limits in the trees of `domain`.

mod actions;
mod domain;
mod envoy;
mod plan;
mod service;
#[cfg(test)]
mod tests;
mod values;

use self::envoy::Document;
use crate::draft::Draft;
use crate::error::ConvertError;
use crate::report::Report;
use crate::sources::Input;
use crate::tree::{self, Node};

/// Returns `true` if a file is a domain of envoyproxy/ratelimit, or a configuration of Envoy.
pub(crate) fn recognizes(name: &str, text: &str) -> bool {
    let has =
        |words: &[&str]| words.iter().all(|word| memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some());
    let is_likely = has(&["domain", "descriptors"])
        || has(&["static_resources"])
        || has(&["staticResources"])
        || has(&["virtual_hosts", "domains"])
        || has(&["virtualHosts", "domains"]);
    let is_known = |document: &Node| is_domain(document) || envoy::is_envoy(document) || envoy::is_camel(document);
    is_likely && tree::read(name, text).is_ok_and(|documents| documents.iter().any(is_known))
}

/// Converts the files.
///
/// # Errors
/// Fails if a file cannot be read or parsed.
pub(crate) fn convert(input: &mut Input<'_>, draft: &mut Draft, report: &mut Report) -> Result<(), ConvertError> {
    let (mut domains, mut documents) = (Vec::new(), Vec::new());
    for path in input.paths {
        let file = input.read(path)?;
        for mut root in tree::read(&file.name, &file.text)? {
            if envoy::is_camel(&root) {
                envoy::to_snake(&mut root);
            }
            if is_domain(&root) {
                domains.push(domain::read(&file, &root)?);
            } else if envoy::is_envoy(&root) {
                documents.push(Document { file: file.clone(), root });
            } else {
                report.lost(&file.place(root.line), "file", "neither a domain nor a configuration of Envoy");
            }
        }
    }
    if documents.is_empty() {
        service::check_paths(&domains)?;
        service::write(&domains, input, draft, report);
    } else {
        envoy::write(&documents, &domains, input.options.replicas.get().into(), draft, report);
    }
    Ok(())
}

fn is_domain(document: &Node) -> bool {
    document.get("domain").is_some() && document.get("descriptors").is_some()
}
